import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from markupsafe import Markup

from bayesrnn.errors import RunError
from bayesrnn.report.page import Section
from bayesrnn.report.table import Table
from bayesrnn.runs.compare import (
    comparable_groups,
    compare,
    comparison_page,
    comparison_table,
    curves,
    end_of_curves,
    result_columns,
    winners,
)
from bayesrnn.runs.evaluation import CALIBRATED
from bayesrnn.tasks import TASKS
from bayesrnn.training.checkpoints import CheckpointStore

from ..made_up import summary_of

MakeRun = Callable[..., Path]
ReadPage = Callable[[str], Any]

TEST_COLUMNS = result_columns([TASKS["lm"]])


def page_of(*runs: Path, sections: tuple[Section, ...] = ()) -> str:
    return comparison_page([summary_of(run) for run in runs], sections)


def test_the_page_shows_everything(make_run: MakeRun, read_page: ReadPage) -> None:
    runs = [make_run("one"), make_run("two", "bbb", valid=(800.0, 180.0))]
    page = read_page(page_of(*runs))
    assert {"table", "svg", "polyline", "details"} <= set(page.tags)
    assert page.tags.count("svg") == 1
    assert page.tags.count("polyline") == 4
    assert "*180.00" in page.text
    assert "seed 1, 8 epochs, mixture prior per row; best validation perplexity 180.00" in page.text
    for run in runs:
        assert f"bayesrnn train lm --config {run}/config.toml --out {run}-again" in page.text
    assert "prior_pi = 0.25" in page.text


def test_the_page_needs_nothing_else(make_run: MakeRun, read_page: ReadPage) -> None:
    text = page_of(make_run("one"), make_run("two", "dropout"))
    page = read_page(text)
    assert not {"script", "link", "img", "iframe", "object", "use", "image"} & set(page.tags)
    assert not {"src", "href", "xlink:href", "srcset", "action"} & {n for n, _ in page.attributes}
    addresses = re.findall(r"\w+://[^\"' )]+|url\(|@import", text)
    assert set(addresses) == {"http://www.w3.org/2000/svg"}, "the name of SVG, which is not fetched"
    assert "prefers-color-scheme: dark" in text


def test_what_comes_from_outside_is_escaped(make_run: MakeRun, read_page: ReadPage) -> None:
    bad = "<script>alert('&\")"
    runs = [
        make_run("<script>", corpus=bad, cell=bad),
        make_run('x" onload="y', corpus=bad, cell="lstm"),
    ]
    text = page_of(*runs, sections=(Section("<script>", Markup("<p>own</p>")),))
    page = read_page(text)
    assert "script" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert bad in page.text
    assert "<p>own</p>" in text


def test_a_folder_with_spaces_can_be_run_again(make_run: MakeRun, read_page: ReadPage) -> None:
    run = make_run("my run")
    assert f"--config '{run}/config.toml'" in read_page(page_of(run)).text


def test_a_chart_for_every_corpus(make_run: MakeRun, read_page: ReadPage) -> None:
    page = read_page(page_of(make_run("a"), make_run("b", corpus="wikitext-2")))
    assert page.tags.count("svg") == 2
    assert "different data" in page.text


def test_it_begins_with_who_won(make_run: MakeRun, read_page: ReadPage) -> None:
    test = {"test-mean": {"split": "test", "samples": 0, "inference": "mean", "perplexity": 170.0}}
    runs = [
        make_run("one", valid=(900.0, 250.0, 200.0), results=test),
        make_run("two", "bbb", valid=(800.0, 180.0), results=test),
        make_run("three", "dropout", valid=(None,)),
    ]
    (said,) = winners([summary_of(run) for run in runs])
    assert said == (
        "two wins: validation perplexity 180.00, 10.0% less than one (200.00); on the test set "
        "170.00 against 170.00. Another seed may change that."
    )
    page = read_page(page_of(*runs))
    assert page.text.index("In short") < page.text.index("two wins") < page.text.index("Results")
    assert winners([summary_of(runs[0])]) == []
    again = make_run("four", "bbb", valid=(190.0,))
    assert "Another seed" not in winners([summary_of(run) for run in (*runs, again)])[0]
    other = [make_run(f"w{place}", corpus="wikitext-2", valid=(50.0 + place,)) for place in (0, 1)]
    both = winners([summary_of(run) for run in (*runs, *other)])
    assert [line.split(",")[0] for line in both] == ["On ptb", "On wikitext-2"]
    assert "w0 wins: validation perplexity 50.00, 2.0% less than w1 (51.00)." in both[1]
    assert both[0] in " ".join(compare([summary_of(run) for run in (*runs, *other)]).split())


def test_the_end_of_long_curves_is_shown_by_itself(make_run: MakeRun) -> None:
    long = tuple(900.0 / epoch for epoch in range(1, 9))
    runs = [summary_of(make_run(name, valid=long)) for name in ("a", "b")]
    end = end_of_curves(runs)
    assert end is not None
    titles = re.findall("<title>a, epoch (.*?)</title>", str(end))
    assert titles == ["5: 180.00", "6: 150.00", "7: 128.57", "8: 112.50"]
    assert "log scale" not in end
    assert end_of_curves(runs[:1]) is None
    assert end_of_curves([summary_of(make_run(n, valid=long[:5])) for n in ("c", "d")]) is None


def test_curves_are_one_picture(make_run: MakeRun) -> None:
    runs = [make_run("a"), make_run("b", corpus="wikitext-2")]
    picture = ET.fromstring(curves([summary_of(run) for run in runs]))
    assert picture.attrib["aria-label"] == "Perplexity by epoch: ptb, wikitext-2"
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}polyline"))) == 4


def test_more_sections(make_run: MakeRun, read_page: ReadPage) -> None:
    sections = (
        Section("Text", "It is a truth"),
        Section("Least sure", ["of <this>", "of that"]),
    )
    page = read_page(page_of(make_run("a"), sections=sections))
    assert page.tags.count("section") == 5
    assert page.text.index("It is a truth") < page.text.index("Least sure")
    assert page.tags.count("li") == 2
    assert "of <this>" in page.text


def test_a_fresh_run_has_a_page(make_run: MakeRun, read_page: ReadPage) -> None:
    page = read_page(page_of(make_run("fresh", valid=())))
    assert "no finished epoch yet" in page.text
    assert "no epoch with a validation metric yet" in page.text


def test_a_folder_name_that_is_not_text(make_run: MakeRun) -> None:
    text = page_of(make_run("bad\udcff\x1b[2J"))
    assert "\x1b" not in text
    text.encode()


def test_no_runs() -> None:
    with pytest.raises(RunError, match="no runs to compare"):
        comparison_page([])


def result(perplexity: float | None, samples: int, **more: int | str) -> dict[str, object]:
    return {"perplexity": perplexity, "samples": samples, "split": "test", **more}


@pytest.fixture
def make_mnist_run(make_run: MakeRun) -> MakeRun:
    """As `make_run`, of the digits task."""

    def make(name: str, valid: Sequence[float], results: dict[str, dict[str, object]]) -> Path:
        run = make_run(name, valid=(), results=results, task="mnist", images="digits")
        records = [
            {"kind": "epoch", "epoch": epoch, "step": 18 * epoch, "valid_error": error}
            for epoch, error in enumerate(valid, start=1)
        ]
        (run / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        return run

    return make


def compared(*runs: Path) -> Table:
    return comparison_table([summary_of(run) for run in runs])


def test_the_table_says_what_the_runs_say(make_run: MakeRun) -> None:
    found = {"test-mean": result(181.5, 0), "test-samples20": result(180.25, 20)}
    table = compared(
        make_run("plain", valid=(900.0, 250.0, 260.0)),
        make_run("bayes", "bbb", valid=(700.0, 210.0, 190.0), results=found),
        make_run("fresh", "dropout", valid=()),
    )
    assert list(table.header) == [
        *("run", "method", "network", "epochs", "train", "valid"),
        *("test", "draws", "words/s"),
    ]
    assert [list(row) for row in table.rows] == [
        ["plain", "plain", "lstm 1x200", "3/8", "300.00", "250.00", "-", "-", "2,000"],
        ["bayes", "bbb", "lstm 1x200", "3/8", "200.00", "190.00", "181.50", "180.25 (20)", "2,000"],
        ["fresh", "dropout", "lstm 1x200", "0/8", "-", "-", "-", "-", "-"],
    ]
    lines = table.text().splitlines()
    assert [line for line in lines if "*190.00" in line] == [lines[3]]
    assert "* best on the validation set" in lines
    assert lines[2].index("250.00") == lines[3].index("190.00"), "numbers end in the same column"


def cell(table: Table, row: int, inference: str) -> str:
    """What a row says under the title of a way of prediction."""
    return table.rows[row][list(table.header).index(TEST_COLUMNS[inference][0])]


def test_no_test_columns_without_results(make_run: MakeRun) -> None:
    titles = {title for title, _ in TEST_COLUMNS.values()}
    assert not titles & set(compared(make_run("run")).header)


def test_each_inference_has_a_column(make_run: MakeRun) -> None:
    """Of the same run, and no way is taken for another where a run has only that one."""
    ways = {"mean": "mean", "samples": "samples10", CALIBRATED: "samples10-calibrated"} | {
        way: way
        for way in ("dynamic-sgd", "dynamic-rms", "sharpened-read", "sharpened-bound", "bound")
    }
    drawn = ("samples", CALIBRATED)
    found = {
        f"test-{inference}": result(100.0 + place, 10 if way in drawn else 0, inference=inference)
        for place, (way, inference) in enumerate(ways.items())
    }
    runs = [make_run("all", "bbb", results=found)]
    for way, inference in ways.items():
        name = f"test-{inference}"
        runs.append(make_run(f"only-{way}", "bbb", results={name: found[name]}))
    table = compared(*runs)
    titles = [TEST_COLUMNS[way][0] for way in ways]
    assert len(set(titles)) == len(ways)
    assert sorted(titles) == sorted(table.header[6:-1])
    metrics = {way: f"{100 + place:.2f}" for place, way in enumerate(ways)}
    for way in drawn:
        metrics[way] += " (10)"
    assert {way: cell(table, 0, way) for way in ways} == metrics
    for row, only in enumerate(ways, start=1):
        assert {way: cell(table, row, way) for way in ways} == {
            way: metrics[way] if way == only else "-" for way in ways
        }
    notes = " ".join(table.notes)
    assert all(f"{title}: {note}" in notes for title, note in TEST_COLUMNS.values() if note)


def test_results_that_do_not_name_their_inference_are_still_read(make_run: MakeRun) -> None:
    """Earlier versions said only how many draws; beside them lie results of this one."""
    old = {"test-mean": result(181.5, 0), "test-samples20": result(180.25, 20)}
    new = {"test-bound": result(150.0, 0, inference="bound")}
    table = compared(make_run("old", "bbb", results=old), make_run("both", results={**old, **new}))
    for row in (0, 1):
        assert (cell(table, row, "mean"), cell(table, row, "samples")) == ("181.50", "180.25 (20)")
    assert [cell(table, row, "bound") for row in (0, 1)] == ["-", "150.00"]


def test_an_error_of_zero_is_shown(make_mnist_run: MakeRun) -> None:
    found = {
        f"test-samples{draws}": {"error": error, "samples": draws, "split": "test"}
        for draws, error in ((10, 0.01), (50, 0.0))
    }
    found["test-mean"] = {"error": 0.0, "samples": 0, "split": "test"}
    table = compared(make_mnist_run("run", valid=(0.1, 0.0), results=found))
    assert list(table.header[4:6]) == ["train", "valid"]
    assert table.rows[0][5] == "0.00"
    assert (cell(table, 0, "mean"), cell(table, 0, "samples")) == ("0.00", "0.00 (50)")
    assert table.header[-1] == "images/s"
    assert "error in %" in table.notes[0]


def test_one_run_is_not_the_best_of_anything(make_run: MakeRun) -> None:
    assert "*" not in compared(make_run("run")).text()


def test_different_corpora_are_noted_and_not_ranked_together(make_run: MakeRun) -> None:
    runs = [make_run("a"), make_run("b", valid=(150.0,)), make_run("c", corpus="my.txt")]
    assert "different corpora" not in compared(*runs[:2]).text()
    text = " ".join(compared(*runs).text().split())
    assert "can be compared only within one: ptb (a, b); my.txt (c)" in text
    assert text.count("*") == 2, "one mark and the note"


def test_different_vocabularies_are_noted(make_run: MakeRun) -> None:
    assert "or vocabularies" in compared(make_run("a"), make_run("b", vocabulary_limit=5)).text()


def test_a_result_from_another_moment_is_noted(make_run: MakeRun) -> None:
    good = make_run("good", results={"test-mean": result(1.0, 0, step=300)})
    old = make_run("old", results={"test-mean": result(1.0, 0, step=100)})
    assert "not measured" not in compared(good).text()
    assert "not measured at the best epoch: test of old;" in compared(good, old).text()


def test_runs_of_the_same_name_show_their_paths(make_run: MakeRun) -> None:
    runs = [make_run("one/run"), make_run("two/run"), make_run("three")]
    assert [row[0] for row in compared(*runs).rows] == [str(runs[0]), str(runs[1]), "three"]


def test_nothing_to_compare() -> None:
    with pytest.raises(RunError, match="no runs to compare"):
        comparison_table([])


def test_long_names_and_large_numbers_fit(make_run: MakeRun) -> None:
    found = {"test-mean": result(123456.7, 0), "test-samples1000": result(None, 1000)}
    runs = [
        make_run(
            f"{'long-name-' * 12}{end}", "bbb", valid=(1e30, 99999.99), results=found, epochs=100
        )
        for end in ("first", "second")
    ]
    lines = compared(*runs).text(width=100).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[2].split()[0].endswith("first"), "runs differ at their ends"
    assert "99999.99" in lines[2]


@pytest.mark.parametrize(
    ("target", "metric", "note", "shown"),
    [
        ('{"kind": "number", "mean": 0.5, "sd": 0.2}', "rmse", "RMSE;", "0.1357"),
        ('{"kind": "label", "labels": ["a", "b"]}', "error", "error in %;", "13.57"),
    ],
)
def test_readers_of_texts_are_compared_by_what_they_predict(
    make_run: MakeRun, target: str, metric: str, note: str, shown: str
) -> None:
    runs = []
    for name, words in (("a", "one\ntwo\n"), ("b", "one\n")):
        found = {"test-mean": {metric: 0.25, "samples": 0, "split": "test", "inference": "mean"}}
        run = make_run(name, valid=(), results=found, task="sentiment", data="scale")
        (run / "target.json").write_text(target)
        (run / "vocabulary.txt").write_text(words)
        records = [
            {"kind": "train", "epoch": 1, "step": 1, "segments_per_second": 120},
            {"kind": "epoch", "epoch": 1, "step": 9, f"valid_{metric}": 0.1357,
             f"train_{metric}": 0.1},
        ]  # fmt: skip
        (run / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        runs.append(run)
    table = compared(*runs)
    row = dict(zip(table.header, table.rows[0], strict=True))
    tenth, quarter = ("0.1000", "0.2500") if metric == "rmse" else ("10.00", "25.00")
    assert (row["valid"], row["train"], row["test"]) == (shown, tenth, quarter)
    assert row["segments/s"] == "120"
    assert any(line.startswith(note) and "with the mean" in line for line in table.notes)
    assert not any("different" in line for line in table.notes), "other words, the same problem"


def test_data_of_one_name_in_two_places_are_two_problems(make_run: MakeRun) -> None:
    runs = [make_run(name, corpus=f"/{name}/book.txt") for name in ("one", "two")]
    first, second = map(summary_of, runs)
    assert first.data == second.data == "book.txt"
    assert comparable_groups([first, second]) == [[0], [1]]
    assert "can be compared only within one" in comparison_table([first, second]).text()
    moved = [replace(one, fingerprint="the same") for one in (first, second)]
    assert comparable_groups(moved) == [[0, 1]]
    third = replace(first, fingerprint="the same")
    assert comparable_groups([first, second, third, moved[1]]) == [[0, 1, 2, 3]]
    assert comparable_groups([second, first, third]) == [[0], [1, 2]]


def test_a_path_of_an_earlier_version_is_the_whole_one(make_run: MakeRun, tmp_path: Path) -> None:
    (tmp_path / "book.txt").touch()
    old, new = make_run("old", corpus="book.txt"), make_run("new", corpus=f"{tmp_path}/book.txt")
    assert comparable_groups([summary_of(old), summary_of(new)]) == [[0, 1]]


def test_a_summary_has_the_fingerprint_of_its_checkpoint(runs: Path) -> None:
    run = runs / "plain"
    found = summary_of(run).fingerprint
    assert found == CheckpointStore(run).load().state["fingerprint"]
    assert found is not None


def test_a_rate_that_was_changed_is_said(make_run: MakeRun, read_page: ReadPage) -> None:
    said = "The learning rate was changed in epoch 3"
    assert said in read_page(page_of(make_run("resumed", lr_from=2))).text
    assert said not in read_page(page_of(make_run("as it is", lr_from=0))).text
