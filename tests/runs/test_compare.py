import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from markupsafe import Markup

from bayesrnn.errors import RunError
from bayesrnn.report.page import Section
from bayesrnn.runs.compare import comparison_page, curves

from ..made_up import summary_of

MakeRun = Callable[..., Path]
ReadPage = Callable[[str], Any]


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
