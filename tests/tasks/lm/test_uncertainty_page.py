import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bayesrnn.tasks.lm.uncertainty_page import uncertainty_page
from bayesrnn.tasks.lm.uncertainty_results import RunUncertainty
from bayesrnn.uncertainty.calibration import Reliability

from ...made_up import for_wide_screens

MakeUncertainty = Callable[..., RunUncertainty]
ReadPage = Callable[[str], Any]
SVG = "{http://www.w3.org/2000/svg}"


def charts(*runs: RunUncertainty) -> dict[str, ET.Element]:
    """The pictures of the page by their titles."""
    page = for_wide_screens(uncertainty_page(runs))
    found = re.findall(r"<svg .*?</svg>", page, flags=re.DOTALL)
    pictures = [ET.fromstring(text) for text in found]
    return {picture.attrib["aria-label"]: picture for picture in pictures}


def dashed(chart: ET.Element) -> list[bool]:
    """Of each line with two or more points."""
    return ["stroke-dasharray" in line.attrib for line in chart.iter(f"{SVG}polyline")]


def tooltips(chart: ET.Element) -> list[str]:
    return [title.text or "" for title in chart.iter(f"{SVG}title")]


def texts(chart: ET.Element) -> set[str]:
    return {text.text or "" for text in chart.iter(f"{SVG}text")}


def test_the_page_shows_everything(make_uncertainty: MakeUncertainty, read_page: ReadPage) -> None:
    page = read_page(uncertainty_page([make_uncertainty("a"), make_uncertainty("b")]))
    assert page.tags.count("table") == 3
    assert page.tags.count("section") == 8
    assert page.tags.count("svg") == 8
    assert "Uncertainty of 2 runs on ptb" in page.text
    short = page.text[page.text.index("In short") : page.text.index("Entropy gap to")]
    assert "a tells reversed text from regular text best: AUROC" in short
    assert "b (20 draws): " in short
    assert "nats a word too" in short or "about as surprised as it expects to be" in short
    assert "seed 1, 8 epochs, mixture prior per row" in page.text
    assert "runs/a at step 12,345, test text in 1 stream" in page.text
    assert "draws: mean network, 1, 2, 5, 10, 20; seed 7 of the benchmark" in page.text
    assert "windows of 50 words" in page.text
    assert page.text.count("0.432") >= 12, "every level is in the table"


def test_the_figures(make_uncertainty: MakeUncertainty) -> None:
    found = charts(make_uncertainty("a"), make_uncertainty("b"))
    assert list(found) == [
        "Entropy gap, reversed text",
        "Entropy gap, random 20% text",
        "NLL minus entropy, regular text",
        "Entropy, regular and reversed text",
        "Reliability",
        "Reliability with temperature",
        "Risk and coverage",
        "AUROC, reversed against regular text",
    ]
    gap = found["Entropy gap, reversed text"]
    assert dashed(gap) == [False, False, True, True]
    assert {"mean", "1", "2", "5", "10", "20", "raw", "scaled", "a scaled"} <= texts(gap)
    assert "a, draws mean: 0.432" in tooltips(gap)
    assert "b (dashed), draws 20: 0.216" in tooltips(gap)
    entropy = found["Entropy, regular and reversed text"]
    assert {"unigram", "regular", "reversed"} <= texts(entropy)
    assert "unigram" not in texts(gap)
    assert "a (dashed), draws 5: 4.482" in tooltips(entropy)
    assert "as expected" in texts(found["NLL minus entropy, regular text"])
    assert "calibrated" in texts(found["Reliability"])
    assert "a, confidence 0.5: 0.470" in tooltips(found["Reliability"])
    assert "a, confidence 0.5: 0.476" in tooltips(found["Reliability with temperature"])
    risk = "a, share of words answered (coverage) 0.25: 0.200"
    assert risk in tooltips(found["Risk and coverage"])
    auroc = found["AUROC, reversed against regular text"]
    assert {"by entropy", "by MI", "guessing"} <= texts(auroc)
    assert "a (dashed), draws 2: 0.800" in tooltips(auroc)
    assert not any("(dashed), draws 1:" in said for said in tooltips(auroc))


def test_the_mean_network_is_joined_to_none(make_uncertainty: MakeUncertainty) -> None:
    gap = charts(make_uncertainty(scaled=()))["Entropy gap, reversed text"]
    (line,) = gap.iter(f"{SVG}polyline")
    assert len(line.attrib["points"].split()) == 5
    assert len(tooltips(gap)) == 6


def test_small_bins_are_left_out(make_uncertainty: MakeUncertainty) -> None:
    bins = Reliability((0.1, 0.5, 0.9), (0.1, 0.5, 0.9), (1000, 20, 19))
    run = make_uncertainty(changes={"reliability": bins})
    assert len(tooltips(charts(run)["Reliability"])) == 2


def test_the_page_needs_nothing_else(
    make_uncertainty: MakeUncertainty, read_page: ReadPage
) -> None:
    text = uncertainty_page([make_uncertainty("a"), make_uncertainty("b")])
    page = read_page(text)
    assert not {"script", "link", "img", "iframe", "object", "use", "image"} & set(page.tags)
    assert not {"src", "href", "xlink:href", "srcset", "action"} & {n for n, _ in page.attributes}
    addresses = re.findall(r"\w+://[^\"' )]+|url\(|@import", text)
    assert set(addresses) == {"http://www.w3.org/2000/svg"}
    assert "prefers-color-scheme: dark" in text
    assert "default-src 'none'" in text


@pytest.mark.parametrize("bad", ["<script>alert('&\")", '" onload="x', "\x1b[2J\udcff", "{shift}"])
def test_what_comes_from_outside_is_escaped(
    make_uncertainty: MakeUncertainty, read_page: ReadPage, bad: str
) -> None:
    outside = {"path": bad, "method": bad, "corpus": bad, "settings": bad, "split": bad}
    text = uncertainty_page([make_uncertainty(bad, gaps={bad: 0.5}, vocabulary=bad, **outside)])
    page = read_page(text)
    assert "script" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "\x1b" not in text
    text.encode()


def test_charts_stay_inside_their_box(make_uncertainty: MakeUncertainty) -> None:
    name = "名前" * 60
    for chart in charts(
        *(make_uncertainty(f"{name}{n}", gaps={name: n}) for n in range(6))
    ).values():
        width, height = map(float, chart.attrib["viewBox"].split()[2:])
        for text in chart.iter(f"{SVG}text"):
            assert 0 <= float(text.attrib["x"]) <= width
            assert 0 <= float(text.attrib["y"]) <= height
        for line in chart.iter(f"{SVG}polyline"):
            points = [float(p.split(",")[0]) for p in line.attrib["points"].split()]
            assert 0 < points[0] < points[-1] < width


def test_charts_for_every_problem(make_uncertainty: MakeUncertainty) -> None:
    found = charts(make_uncertainty("a"), make_uncertainty("b", corpus="my.txt"))
    assert len(found) == 16
    assert tooltips(found["Risk and coverage: my.txt"])[0].startswith("b, ")


@pytest.mark.parametrize("draws", [(), (0,), (20,)])
def test_few_levels(make_uncertainty: MakeUncertainty, draws: tuple[int, ...]) -> None:
    found = charts(make_uncertainty("a", draws=draws))
    marks = [len(tooltips(found[title])) for title in found if title.startswith("Entropy gap")]
    assert marks == [2 * len(draws)] * (2 if draws else 0)
    assert ("no figures" in texts(found["Reliability"])) != bool(draws)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e30])
def test_figures_that_are_no_numbers(
    make_uncertainty: MakeUncertainty, read_page: ReadPage, number: float
) -> None:
    bins = Reliability((0.1, number), (number, 0.5), (100, 100))
    run = make_uncertainty(
        gaps={"reversed": number},
        auroc=number,
        unigram_entropy=number,
        changes={"reliability": bins, "error": number},
    )
    text = uncertainty_page([run, replace(run, scaled=())])
    assert "nan" not in read_page(text).text
    charts(run)
