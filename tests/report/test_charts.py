import itertools
import math
import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesrnn.report import Series, line_chart
from bayesrnn.report.axes import count_axis, tick_text, value_axis
from bayesrnn.report.marks import spread
from bayesrnn.report.words import printable

SVG = "{http://www.w3.org/2000/svg}"
Points = list[tuple[float, float | None]]


def drawn(series: Sequence[Series]) -> ET.Element:
    return ET.fromstring(line_chart(series, "Title", "epoch", "perplexity"))


def places(chart: ET.Element) -> list[tuple[float, float]]:
    """Every coordinate at which something is drawn."""
    found = []
    for line in chart.iter(f"{SVG}polyline"):
        found += [tuple(map(float, p.split(","))) for p in line.attrib["points"].split()]
    for text in chart.iter(f"{SVG}text"):
        found.append((float(text.attrib["x"]), float(text.attrib["y"])))
    for circle in chart.iter(f"{SVG}circle"):
        found.append((float(circle.attrib["cx"]), float(circle.attrib["cy"])))
    for path in chart.iter(f"{SVG}path"):
        match = re.match(r"M(\S+) ([\d.-]+)", path.attrib["d"])
        assert match
        found.append((float(match[1]), float(match[2])))
    return [(x, y) for x, y in found]


def pieces(points: Points) -> int:
    """Stretches of two or more values in a row."""
    text = "".join(" " if y is None else "x" for _, y in points)
    return sum(len(part) > 1 for part in text.split())


values = st.none() | st.floats(1e-6, 1e300) | st.floats(-1e12, 1e12)
lines = st.lists(
    st.builds(
        Series,
        st.text(max_size=80),
        st.lists(values, max_size=12).map(lambda ys: [(x, y) for x, y in enumerate(ys, 1)]),
        st.booleans(),
    ),
    max_size=20,
)


@settings(deadline=None)
@given(lines)
def test_any_chart_is_whole_and_inside_its_box(series: list[Series]) -> None:
    chart = drawn(series)
    width, height = map(float, chart.attrib["viewBox"].split()[2:])
    for x, y in places(chart):
        assert 0 <= x <= width
        assert 0 <= y <= height
    assert len(list(chart.iter(f"{SVG}polyline"))) == sum(pieces(list(s.points)) for s in series)
    tooltips = sum(y is not None for one in series for _, y in one.points)
    assert len(list(chart.iter(f"{SVG}title"))) == tooltips


def test_validation_is_solid_and_train_dashed_in_the_same_colour() -> None:
    points: Points = [(1, 200.0), (2, 150.0)]
    chart = drawn([Series("a", points), Series("a", points, True), Series("b", points)])
    parents = {child: parent for parent in chart.iter() for child in parent}
    lines = list(chart.iter(f"{SVG}polyline"))
    assert ["stroke-dasharray" in line.attrib for line in lines] == [False, True, False]
    first, second, third = (parents[line].attrib["color"] for line in lines)
    assert first == second != third
    texts = [text.text for text in chart.iter(f"{SVG}text")]
    assert {"a", "a train", "b", "validation", "train"} <= set(texts)


def test_ten_lines_have_ten_colours_and_labels_that_do_not_overlap() -> None:
    series = [
        Series(f"run {n}", [(1, 200.0), (2, 100.0 + n / 100)], d)
        for n in range(10)
        for d in (False, True)
    ]
    chart = drawn(series)
    labels = [
        text for text in chart.iter(f"{SVG}text") if re.match("run .( train)?$", text.text or "")
    ]
    ends = sorted(
        float(t.attrib["y"])
        for t in labels
        if float(t.attrib["x"]) > 500 and float(t.attrib["y"]) > 100
    )
    assert len(ends) == 10
    assert min(b - a for a, b in itertools.pairwise(ends)) >= 12
    colours = {
        group.attrib["class"]
        for group in chart.iter(f"{SVG}g")
        if group.find(f"{SVG}polyline") is not None
    }
    assert len(colours) == 10


@pytest.mark.parametrize(
    "points", [[], [(1, None)], [(1, 98.4)], [(1, 5.0), (2, 5.0)], [(3, 0.0)], [(1, math.inf)]]
)
def test_little_to_draw(points: Points) -> None:
    chart = drawn([Series("only", points)])
    texts = [text.text for text in chart.iter(f"{SVG}text")]
    assert ("only" in texts) == any(y is not None and math.isfinite(y) for _, y in points)
    assert ("no finished epoch yet" in texts) != ("only" in texts)


def test_tooltips_say_the_value() -> None:
    chart = drawn([Series("<b>", [(1, 98.4)])])
    assert [title.text for title in chart.iter(f"{SVG}title")] == ["<b>, epoch 1: 98.40"]


def test_control_characters_do_not_break_the_picture() -> None:
    chart = ET.fromstring(line_chart([Series("\x01\ud800", [(1, 1.0)])], "\x1b[2J", "\0", "\n"))
    assert chart.attrib["aria-label"] == printable("\x1b[2J")


@pytest.mark.parametrize(
    ("values", "log", "ticks"),
    [
        ([98.0, 250.0], False, (50, 100, 150, 200, 250)),
        ([98.0, 900.0], True, (100, 150, 200, 300, 400, 500, 600, 800)),
        ([3.0, 30000.0], True, (10, 100, 1000, 10000)),
        ([-1.0, 100.0], False, (-20, 0, 20, 40, 60, 80, 100)),
    ],
)
def test_ticks_are_round(values: list[float], log: bool, ticks: tuple[float, ...]) -> None:
    axis = value_axis(values)
    assert axis.log == log
    assert axis.ticks == ticks
    assert 3 <= len(axis.ticks) <= 10
    assert axis.low <= min(values) < max(values) <= axis.high


@settings(deadline=None)
@given(st.lists(st.integers(1, 500), min_size=1))
def test_epochs_have_whole_ticks(epochs: list[int]) -> None:
    axis = count_axis(epochs)
    assert axis.ticks
    assert all(tick == int(tick) for tick in axis.ticks)
    assert len(axis.ticks) <= 12


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.5, "0.5"), (1500, "1,500"), (2e7, "2e7"), (1e-5, "1e-5")]
)
def test_ticks_are_short(value: float, text: str) -> None:
    assert tick_text(value) == text


@settings(deadline=None)
@given(st.lists(st.floats(0, 300), max_size=15))
def test_spread_keeps_the_order_and_the_gap(wished: list[float]) -> None:
    placed = spread(wished, 16, 0, 300)
    order = sorted(range(len(wished)), key=lambda i: placed[i])
    assert [wished[i] for i in order] == sorted(wished)
    assert all(placed[b] - placed[a] > 15.99 for a, b in itertools.pairwise(order))
    assert all(-0.01 <= place <= 300.01 for place in placed)
    if all(b - a >= 16 for a, b in zip(sorted(wished), sorted(wished)[1:], strict=False)):
        assert placed == wished
