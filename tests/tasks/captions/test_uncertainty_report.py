import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bayesrnn.report.table import Table
from bayesrnn.report.text import cells
from bayesrnn.tasks.captions.uncertainty_report import (
    caption_uncertainty_page,
    caption_uncertainty_tables,
    caption_uncertainty_text,
)
from bayesrnn.tasks.captions.uncertainty_results import (
    CaptionLevel,
    CaptionUncertainty,
    SelectiveCaptions,
    UnknownImages,
)
from bayesrnn.uncertainty.bootstrap import Interval
from bayesrnn.uncertainty.detection import Detection

from ...made_up import for_wide_screens

ReadPage = Callable[[str], Any]
SVG = "{http://www.w3.org/2000/svg}"
TENTHS = tuple(n / 10 for n in range(1, 11))


def detection(auroc: float) -> Detection:
    return Detection(
        Interval(auroc, auroc - 0.02, auroc + 0.02),
        Interval(0.777, 0, 1),
        Interval(1.5 - auroc, 0.7, 0.9),
        5313,
    )


def level(samples: int = 0, more: float = 0.0, unknown: bool = True) -> CaptionLevel:
    """Figures that all differ; with draws there is information."""
    information = 0.0321 if samples > 1 else None
    return CaptionLevel(
        samples,
        -1.2345,
        information,
        SelectiveCaptions(
            TENTHS,
            tuple(100 - 50 * share + more for share in TENTHS),
            Interval(72.25 + more, 70.0, 75.0),
            50.0 + more,
            120.5,
            Interval(0.3158, 0.2, 0.4),
            Interval(0.0456, -0.0123, 0.1),
        ),
        UnknownImages(
            -1.3456,
            0.0432 if samples > 1 else None,
            detection(0.65),
            detection(0.75) if samples > 1 else None,
        )
        if unknown
        else None,
    )


def run(name: str = "a", *levels: CaptionLevel, **fields: Any) -> CaptionUncertainty:
    values: dict[str, Any] = {
        "name": name,
        "path": f"runs/{name}",
        "method": "bbb",
        "data": "flickr8k",
        "settings": "lstm 1x512, seed 1, 8 epochs",
        "split": "test",
        "images": 1000,
        "unknown_data": "coco-val2017",
        "unknown": 4313,
        "step": 2345,
        "seed": 7,
        "beam": 3,
        "bootstrap": 1000,
        "levels": levels or (level(0), level(10, more=3)),
    }
    return CaptionUncertainty(**{**values, **fields})


def tables(*runs: CaptionUncertainty) -> list[list[dict[str, str]]]:
    def lines(table: Table) -> list[dict[str, str]]:
        return [dict(zip(table.header, row, strict=True)) for row in table.rows]

    return [lines(table) for _, table in caption_uncertainty_tables(runs)]


def test_withholding() -> None:
    found, _, _ = tables(run("a"), run("b", level(5)))
    assert [(line["run"], line["draws"]) for line in found] == [
        *(("a", "mean"), ("a", "10"), ("b", "5"))
    ]
    assert found[1] == {
        "run": "a",
        "draws": "10",
        "100%": "53.0",
        "90%": "58.0",
        "70%": "68.0",
        "50%": "78.0",
        "30%": "88.0",
        "10%": "98.0",
        "area": "75.2 (70.0-75.0)",
        "oracle": "120.5",
    }


def test_confidence_and_cider() -> None:
    _, found, _ = tables(run("a"))
    same = {"run": "a", "confidence": "-1.234", "gain": "0.316 (0.200-0.400)"}
    spearman = "0.046 (-0.012 to 0.100)"  # a minus would be lost among dashes
    assert found == [
        {**same, "draws": "mean", "MI": "-", "Spearman": spearman},
        {**same, "draws": "10", "MI": "0.032", "Spearman": spearman},
    ]


def test_images_told_apart() -> None:
    *_, found = tables(run("a"))
    assert [(line["draws"], line["by"]) for line in found] == [
        *(("mean", "confidence"), ("10", "confidence"), ("10", "MI"))
    ]
    assert found[1]["flickr8k"] == "-1.234"
    assert found[1]["coco-val2017"] == "-1.346"
    assert found[1]["AUROC"] == "0.650 (0.630-0.670)"
    assert found[1]["FPR95"] == "0.850 (0.700-0.900)"
    assert found[2]["flickr8k"] == "0.032"
    assert found[2]["coco-val2017"] == "0.043"
    assert found[2]["AUROC"] == "0.750 (0.730-0.770)"


def test_what_was_measured_is_said() -> None:
    text = " ".join(caption_uncertainty_text([run()]).split())
    assert "Telling images of coco-val2017 from those of flickr8k" in text
    assert "1,000 test images; mean: the mean network" in text
    assert "a beam of 3" in text
    assert "flickr8k: 1,000 test images, of a set that shows people and dogs" in text
    assert "coco-val2017: 4,313 images of everyday scenes" in text


def test_no_other_images() -> None:
    bare = run("a", level(0, unknown=False), unknown=0)
    assert len(caption_uncertainty_tables([bare])) == 2
    assert "everyday scenes" not in caption_uncertainty_text([bare])
    found = tables(bare, run("b"))
    assert {line["run"] for line in found[2]} == {"b"}


def test_no_intervals_without_resamples() -> None:
    plain = level(0)
    doubts = replace(plain.doubts, area=Interval(72.25, 72.25, 72.25))
    found, _, _ = tables(run("a", replace(plain, doubts=doubts)))
    assert found[0]["area"] == "72.2"


def test_fewer_images_than_shares() -> None:
    few = replace(level(0).doubts, coverage=(1 / 3, 2 / 3, 1.0), score=(9.0, 8.0, 7.0))
    found, _, _ = tables(run("a", replace(level(0), doubts=few)))
    assert [found[0][share] for share in ("100%", "90%", "70%", "50%", "30%", "10%")] == [
        *("7.0", "7.0", "7.0", "8.0", "9.0", "9.0")
    ]


@pytest.mark.parametrize("name", ["long-name-" * 20, "長い名前" * 30, "\x1b[2J\n\t\0" * 30, ""])
def test_any_names_fit_in_the_terminal(name: str) -> None:
    text = caption_uncertainty_text([run(name + end) for end in ("first", "second")])
    assert all(cells(line) <= 100 and line.isprintable() for line in text.split("\n"))
    assert text.count("75.2 (70.0-75.0)") == 2, "figures are never shortened"


# The page


def chart(*runs: CaptionUncertainty) -> ET.Element:
    page = for_wide_screens(caption_uncertainty_page(runs))
    (found,) = re.findall(r"<svg .*?</svg>", page, flags=re.DOTALL)
    return ET.fromstring(found)


def tooltips(picture: ET.Element) -> list[str]:
    return [title.text or "" for title in picture.iter(f"{SVG}title")]


def dashed(picture: ET.Element) -> list[bool]:
    return ["stroke-dasharray" in line.attrib for line in picture.iter(f"{SVG}polyline")]


def test_the_page_shows_everything(read_page: ReadPage) -> None:
    page = read_page(caption_uncertainty_page([run("a"), run("b")]))
    assert page.tags.count("table") == 3
    assert page.tags.count("section") == 5
    assert "Uncertainty of 2 captioners on flickr8k" in page.text
    assert "b: withholding its least certain captions gains" in page.text
    assert "a tells images of coco-val2017 from those of flickr8k best: AUROC" in page.text
    assert "runs/a at step 2,345; 1,000 test images of flickr8k, 4,313 images of" in page.text
    assert "draws: mean network, 10; seed 7" in page.text
    bare = read_page(caption_uncertainty_page([run("a", level(0, unknown=False), unknown=0)]))
    assert bare.tags.count("section") == 4
    assert "Uncertainty of 1 captioner on" in bare.text


def test_the_chart_has_the_most_and_the_fewest_draws() -> None:
    picture = chart(run("a"), run("b"))
    assert dashed(picture) == [False, False, True, True]
    said = tooltips(picture)
    assert "a, share of captions kept (coverage) 0.5: 78.00" in said
    assert "a (dashed), share of captions kept (coverage) 0.5: 75.00" in said
    texts = {text.text for text in picture.iter(f"{SVG}text")}
    assert {"most draws", "mean", "a", "a mean"} <= texts


def test_draws_that_are_all_the_same_are_one_line() -> None:
    assert dashed(chart(run("plain", level(0), replace(level(0), samples=10)))) == [False]
    texts = {t.text for t in chart(run("a", level(2), level(5, more=1))).iter(f"{SVG}text")}
    assert "a fewest draws" in texts


def test_the_page_needs_nothing_else(read_page: ReadPage) -> None:
    text = caption_uncertainty_page([run("a"), run("b")])
    page = read_page(text)
    assert not {"script", "link", "img", "iframe", "object", "use", "image"} & set(page.tags)
    assert not {"src", "href", "xlink:href", "srcset", "action"} & {n for n, _ in page.attributes}
    assert set(re.findall(r"\w+://[^\"' )]+|url\(|@import", text)) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("bad", ["<script>alert('&\")", '" onload="x', "\x1b[2J\udcff", "{data}"])
def test_what_comes_from_outside_is_escaped(read_page: ReadPage, bad: str) -> None:
    outside = {"path": bad, "method": bad, "data": bad, "settings": bad, "unknown_data": bad}
    text = caption_uncertainty_page([run(bad, **outside)])
    page = read_page(text)
    assert "script" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "\x1b" not in text
    text.encode()


@pytest.mark.parametrize("number", [math.nan, math.inf, 1e30])
def test_figures_that_are_no_numbers(read_page: ReadPage, number: float) -> None:
    odd = replace(level(0).doubts, score=(number,) * 10, area=Interval(number, 0, number))
    text = caption_uncertainty_page([run("a", replace(level(0), doubts=odd, confidence=number))])
    assert "nan" not in read_page(text).text
