"""Language models of words, characters and byte pairs, and what is said of texts they score."""

import json
import math
import re

import pytest

from bayesrnn.data.vocabulary import EOS, UNK
from bayesrnn.errors import CorpusError
from bayesrnn.tasks.lm.about_text import bits_per_character, unknown_warning
from bayesrnn.tasks.lm.data import load_corpus
from bayesrnn.tasks.lm.scored_text import other_text
from bayesrnn.tasks.lm.task import TASK

CHINESE = "我们今天去北京看望老朋友和他的家人。明天再回来。\n" * 40


@pytest.fixture(scope="module")
def trained(tiny_text, tmp_path_factory):
    """The path of a run of some tokens, trained once."""
    from bayesrnn.cli.main import main

    from ...conftest import TINY

    folder = tmp_path_factory.mktemp("tokens")

    def train(tokens):
        run = folder / tokens
        if not run.exists():
            given = ("--tokens", tokens, "--method", "plain", "--epochs", "1", "--out", str(run))
            limit = ("--vocabulary-limit", "400") if tokens == "bpe" else ()
            assert main(["train", "lm", "--corpus", str(tiny_text), *TINY, *given, *limit]) == 0
        return run

    return train


def test_characters_are_learnt_scored_written_and_inspected(trained, program, tiny_text):
    run = trained("character")
    code, out, errors = program("evaluate", run, "--json", "-")
    assert code == 0, errors
    found = json.loads(out)
    assert found["unit"] == "character"
    assert found["unknown"] < 0.01
    # All characters are predicted but the first; hardly one is unknown.
    assert found["bits_per_character"] == pytest.approx(found["nll"] / math.log(2), rel=0.02)
    code, out, _ = program("evaluate", run)
    assert re.search(r"nats a character, [\d,]+ characters, 0\.\d% of them <unk>\)", out)
    assert re.search(r"\d\.\d{3} bits a character", out)
    code, out, _ = program("generate", run, "--prompt", "It Is", "--words", "20")
    assert code == 0
    assert out.startswith("It Is")
    assert len(out) <= len("It Is") + 21
    code, out, _ = program("inspect", run, "--text", "It is", "--samples", "0")
    assert code == 0
    assert "␣" in out


def test_byte_pairs_know_every_text(trained, program, tmp_path):
    pytest.importorskip("tokenizers")
    run = trained("bpe")
    other = tmp_path / "other.txt"
    other.write_text("Grüße, 世界!\n")
    code, out, errors = program("evaluate", run, "--corpus", other, "--json", "-")
    assert code == 0, errors
    found = json.loads(out)
    assert (found["unknown"], found["unit"]) == (0, "token")
    assert found["tokens"] >= len(set("Grüße, 世界!\n"))
    expected = found["nll"] * found["tokens"] / math.log(2) / len("Grüße, 世界!\n")
    assert found["bits_per_character"] == pytest.approx(expected)
    code, out, _ = program("generate", run, "--prompt", "Grüße", "--words", "5")
    assert code == 0
    assert out.startswith("Grüße")


def test_another_text_is_scored_and_kept_apart(trained, program, tiny_text, tmp_path):
    run = trained("word")
    program("evaluate", run)
    before = (run / "results" / "test-mean.json").read_text()
    other = tmp_path / "my novel.txt"
    other.write_text("It is a truth universally acknowledged. Xyzzy plugh.")
    code, out, errors = program("evaluate", run, "--corpus", other)
    assert code == 0, errors
    assert f"{other} is not what {run} was trained on; all of its 12 words are" in errors
    assert f"{other} (all of it), plain:" in out
    assert re.search(r"12 words, \d+\.\d% of them <unk>\)", out)
    assert "warning: " in out
    kept = json.loads((run / "results" / "other-my_novel.txt-mean.json").read_text())
    assert kept["split"] == "other-my_novel.txt"
    assert (run / "results" / "test-mean.json").read_text() == before
    code, _, errors = program("evaluate", run, "--corpus", tiny_text)
    assert f"{tiny_text} is what {run} was trained on; its test part is evaluated" in errors
    assert json.loads((run / "results" / "test-mean.json").read_text())["split"] == "test"
    folder = tmp_path / "folder"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text("it is a truth\nthat is so\n")
    code, _, errors = program("evaluate", run, "--corpus", folder)
    assert code == 0, errors
    assert "its test part is evaluated" in errors
    other.write_text("\n")
    code, _, errors = program("evaluate", run, "--corpus", other)
    assert code == 1
    assert "fewer than two words" in errors
    code, _, errors = program("evaluate", run, "--corpus", tmp_path / "none.txt")
    assert code == 1
    assert "none.txt" in errors


def test_a_text_has_one_number_of_characters(tiny_text, trained, tmp_path):
    run = TASK.open_run(trained("word"))
    path = tmp_path / "other.txt"
    path.write_text("It is (so) a  truth -- universally,\nacknowledged. Is it? \n\n" * 60)
    own = load_corpus(path, vocabulary=run.vocabulary)
    scored = other_text(run, [str(path)], "test", None)
    assert scored.characters == sum(own.characters.values())


def test_training_begins_with_what_the_text_is(train_arguments, program, tmp_path, tiny_text):
    given = ("--method", "plain", "--epochs", "1", "--out", tmp_path / "run")
    code, _, errors = program(*train_arguments, *given)
    assert code == 0
    corpus = load_corpus(tiny_text)
    first, second = errors.splitlines()[:2]
    assert first.startswith(f"novel.txt, in words: {len(corpus.train):,} to train on, ")
    assert f"{corpus.types:,} different ones in training" in first
    assert f"{len(corpus.vocabulary):,} in the vocabulary" in first
    shares = [
        (part == corpus.vocabulary.index(UNK)).double().mean().item()
        for part in (corpus.train, corpus.valid, corpus.test)
    ]
    assert first.endswith(f"<unk>: {' / '.join(f'{share:.1%}' for share in shares)}")
    assert second.startswith(f"warning: {shares[1]:.1%} of the words of the validation text are")


def test_chinese_without_spaces_is_noticed(train_arguments, program, tmp_path):
    text = tmp_path / "zh.txt"
    text.write_text("".join(CHINESE.replace("今", chr(0x4E00 + n)) for n in range(30)))
    given = (*train_arguments, "--method", "plain", "--epochs", "1", "--corpus", text)
    code, _, errors = program(*given, "--out", tmp_path / "words")
    assert code == 0, errors
    assert "give --tokens character" in errors
    code, _, errors = program(*given, "--tokens", "character", "--out", tmp_path / "characters")
    assert code == 0, errors
    assert "warning" not in errors


def test_a_share_of_five_percent_is_not_much():
    assert unknown_warning(0.05, "the text", "word") == []
    assert "6.0% of the words of the text" in unknown_warning(0.06, "the text", "word")[0]


def test_bits_a_character_of_a_known_case():
    # Ten tokens of one nat each, and a word that costs two nats to spell, in six characters.
    assert bits_per_character(1.0, 10, 6, 2.0) == pytest.approx(12 / math.log(2) / 6)
    assert bits_per_character(1.0, 10, 0) is None


def test_texts_are_cut_at_lines(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("abcdefghi\n" * 100)
    corpus = load_corpus(path, tokens="character")
    sizes = [len(part) for part in (corpus.train, corpus.valid, corpus.test)]
    assert sizes == [800, 100, 100]
    assert corpus.characters == {"train": 800, "valid": 100, "test": 100}
    assert corpus.vocabulary.decode(corpus.train[-2:]) == ["i", EOS]
    path.write_text("abcdefghij" * 100)
    corpus = load_corpus(path, tokens="character")
    assert [len(part) for part in (corpus.train, corpus.valid)] == [801, 101], "with <eos>"
    for text, words in (("  \n", "has no text"), ("abcdef", "too small")):
        path.write_text(text)
        with pytest.raises(CorpusError, match=words):
            load_corpus(path, tokens="character")


def test_a_vocabulary_that_is_given_stays(tmp_path, tiny_text):
    known = load_corpus(tiny_text).vocabulary
    path = tmp_path / "other.txt"
    path.write_text("The truth is out there. The lie is in here. " * 30)
    corpus = load_corpus(path, vocabulary=known)
    assert corpus.vocabulary == known
    assert corpus.vocabulary.decode(corpus.test[:4]) == ["the", "truth", "is", UNK]
    assert corpus.unknown("train") == (corpus.train == known.index(UNK)).double().mean()


# Training that starts from another run


def test_a_run_is_fine_tuned_on_another_text(trained, program, tmp_path):
    run = trained("word")
    other = tmp_path / "other.txt"
    other.write_text("It is a truth that the truth is universally acknowledged. " * 60)
    given = ("--threads", "1", "--epochs", "1", "--no-calibrate", "--out", tmp_path / "tuned")
    code, _, errors = program("train", "lm", "--start-from", run, "--corpus", other, *given)
    assert code == 0, errors
    assert f"starting from the weights of {run} at step" in errors
    before, tuned = TASK.open_run(run), TASK.open_run(tmp_path / "tuned")
    assert tuned.vocabulary == before.vocabulary
    assert tuned.config.lr == pytest.approx(before.config.lr / 10)
    assert (tuned.config.hidden, tuned.config.layers) == (12, 2)
    own = program("evaluate", run, "--corpus", other)[1]
    found = program("evaluate", tmp_path / "tuned")[1]
    perplexity = [float(re.search(r"perplexity (\S+)", text)[1]) for text in (own, found)]
    assert perplexity[1] < perplexity[0], "it learnt"
    # It is a run of its own: it goes on, and is used, when the other is gone.
    run.rename(tmp_path / "gone")
    try:
        code, _, errors = program(
            *("train", "lm", "--resume", "--epochs", "+1", "--out", tmp_path / "tuned")
        )
        assert code == 0, errors
        for command in ("evaluate", "doctor", "calibrate"):
            code, _, errors = program(command, tmp_path / "tuned")
            assert code == 0, (command, errors)
    finally:
        (tmp_path / "gone").rename(run)


def test_a_start_from_another_run_can_be_repeated(trained, program, tmp_path, monkeypatch):
    """As a job that is restarted says it: with --resume from the first call on."""
    monkeypatch.chdir(tmp_path)
    run = trained("word")
    other = tmp_path / "other.txt"
    other.write_text("It is a truth that the truth is universally acknowledged. " * 60)
    given = ("--threads", "1", "--epochs", "1", "--no-calibrate", "--resume", "--out", "new")
    start = ("train", "lm", "--start-from", run, "--corpus", other, *given)
    assert program(*start)[0] == 0
    new, before = TASK.open_run(tmp_path / "new").config, TASK.open_run(run).config
    assert new.lr == pytest.approx(before.lr / 10)
    assert (new.method, new.hidden, new.options) == (before.method, 12, before.options)
    code, _, errors = program(*start)
    assert (code, "is finished" in errors) == (0, True), errors


def test_another_text_in_the_same_words_is_not_the_runs_own(trained, program, tmp_path):
    run, text, new = trained("word"), tmp_path / "other.txt", tmp_path / "new"
    text.write_text("It is a truth that the truth is universally acknowledged. " * 60)
    given = ("--threads", "1", "--epochs", "1", "--no-calibrate", "--out", new)
    assert program("train", "lm", "--start-from", run, "--corpus", text, *given)[0] == 0
    assert program("evaluate", new)[0] == 0
    text.write_text("It is no truth, the truth is not universally acknowledged. " * 60)
    for command in ("evaluate", "doctor", "calibrate"):
        code, _, errors = program(command, new)
        assert code == 1, command
        assert f"the text of {text} is not the one that {new} was trained on" in errors


def test_the_network_begins_as_the_other_ended(trained, program, tmp_path, tiny_text):
    run = trained("word")
    given = ("--lr", "1e-12", "--epochs", "1", "--threads", "1", "--no-calibrate")
    start = ("train", "lm", "--start-from", run, "--corpus", tiny_text, *given)
    code, _, errors = program(*start, "--out", tmp_path / "same")
    assert code == 0, errors
    same, before = (TASK.open_run(path).net.state_dict() for path in (tmp_path / "same", run))
    for name, value in before.items():
        assert same[name].sub(value).abs().max() < 1e-6


def test_what_cannot_start_from_another_run_says_so(trained, program, tmp_path, tiny_text, runs):
    run = trained("word")
    file = tmp_path / "file"
    file.write_text("")
    for given, words in (
        (("lm", "--start-from", run), "--start-from is"),
        (("lm", "--start-from", run), "give --corpus"),
        (("lm", "--start-from", file, "--corpus", tiny_text), "which is a file"),
        (("lm", "--start-from", tmp_path, "--corpus", tiny_text), "not a run directory"),
        (
            ("lm", "--start-from", run, "--corpus", tiny_text, "--method", "bbb"),
            "--method is bbb, but",
        ),
        (
            ("lm", "--start-from", run, "--corpus", tiny_text, "--hidden", "9"),
            "do not fit the network",
        ),
        (("mnist", "--start-from", run), "give a run of `bayesrnn train mnist`"),
        (("sentiment", "--start-from", run, "--data", file), "cannot start from another one"),
    ):
        code, _, errors = program("train", *given, "--epochs", "1", "--out", tmp_path / "new")
        assert code == 1, given
        assert words in errors
        assert "Traceback" not in errors
