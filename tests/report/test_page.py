"""Pages and the templates that they are made of."""

import pytest
from jinja2 import DictLoader, UndefinedError
from markupsafe import Markup

from bayesrnn.report.page import _TEMPLATES, Section, code, document, entries, notes, render
from bayesrnn.report.table import Table
from bayesrnn.report.text import counted, draws_text, interval_text

BAD = "<script>alert('&\")</script>"


def test_plain_text_is_a_paragraph_and_lines_are_a_list(read_page):
    sections = [Section("One", "first", ["a", "b"], Table(["t"], [["cell"]])), Section("Two")]
    html = document("The title", sections)
    page = read_page(html)
    assert html.startswith("<!DOCTYPE html>")
    assert html.count("default-src 'none'") == 1
    assert page.tags.count("section") == 2
    assert page.text.index("first") < page.text.index("a\nb") < page.text.index("cell")
    assert [page.tags.count(tag) for tag in ("p", "li", "td")] == [1, 2, 1]
    assert type(html) is str


@pytest.mark.parametrize("bad", [BAD, '" onload="x', "\x1b[2J\udcff\0", "{{ 7 * 7 }}", "</style>"])
def test_whatever_is_shown_is_escaped_everywhere(bad, read_page):
    parts = [bad, [bad], notes([bad]), code([bad]), entries([(bad, bad, bad)])]
    text = document(bad, [Section(bad, *parts, Table([bad], [[bad]], (bad,), [bad]))])
    page = read_page(text)
    assert not {"script", "onload"} & {*page.tags, *(name for name, _ in page.attributes)}
    assert "\x1b" not in text
    assert "49" not in page.text.split("}\n\n")[-1]
    shown = "".join(c if c.isprintable() else "\ufffd" for c in bad)
    assert page.text.count(shown) == 13
    text.encode()


def test_markup_is_taken_as_it_is(read_page):
    page = read_page(document("t", [Section("s", Markup("<em>so</em>"))]))
    assert "em" in page.tags


def test_lines_of_code_stay_lines(read_page):
    assert "\na = 1\n  b = 2\n" in "\n" + read_page(code(["a = 1", "  b = 2"])).text


def test_an_entry_without_a_heading_has_none(read_page):
    assert read_page(entries([("", "text", "note")])).tags == ["p", "p"]


def test_what_a_template_is_not_given_is_an_error(monkeypatch):
    with pytest.raises(UndefinedError, match="lines"):
        render("report/templates/notes.html.j2")
    monkeypatch.setattr(_TEMPLATES, "loader", DictLoader({"x": "{{ a.b }}"}))
    with pytest.raises(UndefinedError, match="'b'"):
        render("x", a={})


@pytest.mark.parametrize(
    ("numbers", "digits", "text"),
    [
        ((0.5, 0.4, 0.6), 3, "0.500 (0.400-0.600)"),
        ((0.5, 0.5, 0.5), 3, "0.500"),
        ((0.1, -0.2, 0.3), 1, "0.1 (-0.2 to 0.3)"),
        ((float("nan"),) * 3, 3, "-"),
    ],
)
def test_a_value_and_its_interval(numbers, digits, text):
    assert interval_text(*numbers, digits=digits) == text


def test_numbers_of_things():
    assert [counted(n, "run") for n in (0, 1, 2, 1234)] == [
        "0 runs",
        "1 run",
        "2 runs",
        "1,234 runs",
    ]
    assert [draws_text(n) for n in (0, 1, 20)] == ["mean", "1", "20"]
