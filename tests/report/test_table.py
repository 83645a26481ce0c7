import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayesrnn.report.table import Table, markdown_lines
from bayesrnn.report.text import cells, printable, shortened


@given(
    st.lists(st.tuples(*[st.text(max_size=60)] * 3), min_size=1, max_size=5),
    st.integers(min_value=30, max_value=120),
)
def test_any_words_fit_and_cannot_break_out(rows: list[tuple[str, ...]], width: int) -> None:
    table = Table(("a", "b", "c"), rows, ("a", "b", "c"))
    lines = table.text(width).split("\n")
    assert len(lines) == len(rows) + 3
    assert all(cells(line) <= width and line.isprintable() for line in lines)
    assert len(table.markdown().split("\n")) == len(rows) + 3
    parser = _Cells()
    parser.feed(table.html())
    assert parser.found == [printable(cell) for row in rows for cell in row]


@given(st.text(), st.integers(min_value=1, max_value=20))
def test_shortened_is_short(text: str, width: int) -> None:
    assert cells(shortened(text, width)) <= width
    assert cells(text) > width or shortened(text, width) == text


def test_the_middle_is_left_out() -> None:
    assert shortened("abcdefghij", 5) == "ab…ij"
    assert shortened("abcdefghij", 6) == "abc…ij"
    assert shortened("世界世界世界", 6) == "世…界"
    assert shortened("x" * 10**6, 5) == "xx…xx", "a long text takes no longer than it is"


def test_markup_is_escaped() -> None:
    table = Table(
        ("run", "method", "valid"),
        [("<script>", "plain", "1"), ("a|b_*", "plain", "2")],
        ("run", "method"),
    )
    assert "&lt;script&gt;" in table.html()
    assert "<script" not in table.html()
    assert r"| \<script\> | plain |" in table.markdown()
    assert r"| a\|b\_\* | plain |" in table.markdown()
    assert ":--- | :--- | ---: |" in table.markdown()


def test_markdown_is_wrapped_and_no_line_begins_a_list_of_its_own() -> None:
    for filler in range(80, 110):
        text = f"{'x' * filler} - 1 + 2 3. 4) {'a word of the text ' * 12}end"
        first, *others = markdown_lines(text, "- ").split("\n")
        assert first.startswith("- x")
        assert others
        assert all(line.startswith("  ") for line in others)
        lines = [line[2:] for line in (first, *others)]
        assert all(len(line) <= 98 or " " not in line for line in lines)
        assert not any(re.match(r"[-+] |\d+[.)] ", line) for line in lines)
        assert re.sub(r"\\([-+.)])", r"\1", " ".join(lines)) == text


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


WIDE = Table(
    ["run", *(f"column {number}" for number in range(12))],
    [["runs/a-name-of-some-length", *(f"{number}.25" for number in range(12))], ["b", *["-"] * 12]],
    left=("run",),
    notes=("a note",),
)


@pytest.mark.parametrize("columns", ["80", "60", "40"])
def test_a_table_wider_than_the_terminal_goes_on_below(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    lines = WIDE.text().splitlines()
    assert max(map(len, lines)) <= int(columns)
    heads = [line.split("  ") for line in lines if line.startswith("run ")]
    assert len(heads) > 1
    shown = [word.strip() for head in heads for word in head[1:] if word.strip()]
    assert shown == list(WIDE.header[1:])
    assert lines[-1] == "a note"


def test_a_wider_terminal_makes_no_table_wider(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert max(map(len, WIDE.text().splitlines())) <= 100
