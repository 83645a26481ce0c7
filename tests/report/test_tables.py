from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesrnn.errors import RunError
from bayesrnn.report import Table, comparison_table, read_summary
from bayesrnn.report.words import cells, printable, shortened

MakeRun = Callable[..., Path]


def result(perplexity: float | None, samples: int, **more: int) -> dict[str, object]:
    return {"perplexity": perplexity, "samples": samples, "split": "test", **more}


def compared(*runs: Path) -> Table:
    return comparison_table([read_summary(run) for run in runs])


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


def test_no_test_columns_without_results(make_run: MakeRun) -> None:
    assert not {"test", "draws"} & set(compared(make_run("run")).header)


def test_one_run_is_not_the_best_of_anything(make_run: MakeRun) -> None:
    assert "*" not in compared(make_run("run")).text()


def test_different_corpora_are_told_and_not_ranked_together(make_run: MakeRun) -> None:
    runs = [make_run("a"), make_run("b", valid=(150.0,)), make_run("c", corpus="my.txt")]
    assert "different corpora" not in compared(*runs[:2]).text()
    text = " ".join(compared(*runs).text().split())
    assert "can be compared only within one: ptb (a, b); my.txt (c)" in text
    assert text.count("*") == 2, "one mark and the note"


def test_different_vocabularies_are_told(make_run: MakeRun) -> None:
    assert "or vocabularies" in compared(make_run("a"), make_run("b", vocabulary_limit=5)).text()


def test_a_result_from_another_moment_is_told(make_run: MakeRun) -> None:
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


@settings(deadline=None)
@given(
    st.lists(st.tuples(*[st.text(max_size=60)] * 3), min_size=1, max_size=5),
    st.integers(min_value=30, max_value=120),
)
def test_any_words_fit_and_cannot_break_out(rows: list[tuple[str, ...]], width: int) -> None:
    table = Table(("a", "b", "c"), rows, ("left", "left", "left"))
    lines = table.text(width).split("\n")
    assert len(lines) == len(rows) + 3
    assert all(cells(line) <= width and line.isprintable() for line in lines)
    assert len(table.markdown().split("\n")) == len(rows) + 3
    parser = _Cells()
    parser.feed(table.html())
    assert parser.found == [printable(cell) for row in rows for cell in row]


@settings(deadline=None)
@given(st.text(), st.integers(min_value=1, max_value=20))
def test_shortened_is_short(text: str, width: int) -> None:
    assert cells(shortened(text, width)) <= width
    assert cells(text) > width or shortened(text, width) == text


def test_markup_is_escaped(make_run: MakeRun) -> None:
    table = compared(make_run("<script>"), make_run("a|b_*"))
    assert "&lt;script&gt;" in table.html()
    assert "<script" not in table.html()
    assert r"| \<script\> | plain |" in table.markdown()
    assert r"| a\|b\_\* | plain |" in table.markdown()
    assert ":--- | :--- | :--- | ---: |" in table.markdown()


class _Cells(HTMLParser):
    """The text of every `td`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.inside = tag == "td"
        if self.inside:
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.found[-1] += data
