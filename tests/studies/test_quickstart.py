"""The story of the quickstart, told with runs that are there already."""

import shutil

from bayesrnn.data.vocabulary import EOS, UNK
from bayesrnn.studies import quickstart as module
from bayesrnn.tasks.lm.task import TASK


def test_the_page_and_the_terminal_show_where_draws_disagree(
    runs, tmp_path, monkeypatch, capsys, read_page
):
    for method in module.SHOWN_METHODS:
        shutil.copytree(runs / method, tmp_path / method)
    asked = []
    monkeypatch.setattr(module, "train_run", lambda task, arguments, given: asked.append(given))
    module.quickstart(module.QuickstartOptions(out=tmp_path))
    assert [given["method"] for given in asked] == list(module.SHOWN_METHODS)
    html = (tmp_path / "comparison.html").read_text(encoding="utf-8")
    page, said = read_page(html), capsys.readouterr().out
    assert (tmp_path / "curves.svg").read_text(encoding="utf-8").startswith("<svg")
    for title in (
        *("Results", "Learning curves", "Text that bbb wrote"),
        *("What bbb expected of sentences", "Where the draws disagree most"),
        *("The least expected words", "The likeliest words after the end"),
    ):
        assert title in page.text
    assert page.tags.count("input") == 3, "words are shaded by what the reader chooses"
    trained = TASK.open_run(tmp_path / "bbb")
    sentences = module.some_sentences(trained)
    assert sentences[-1] == EOS
    assert UNK not in sentences
    for word in set(sentences) - {EOS}:
        assert word in said
        assert word in page.text
    assert "bbb writes:" in said
    assert "Where the draws disagree most" in said
    assert str(tmp_path / "comparison.html") in said
