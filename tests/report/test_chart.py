import itertools
import math
import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from bayesrnn.report.axes import count_axis, even_axis, share_axis, step_axis, tick_text, value_axis
from bayesrnn.report.chart import Reference, Series, line_chart, spread
from bayesrnn.report.page import Section, document
from bayesrnn.report.text import number_text, printable

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


def test_small_values_have_more_digits_and_shares_their_own_axis() -> None:
    one = Series("a", [(0.25, 0.12345), (0.75, 12.345)])
    chart = ET.fromstring(line_chart([one], "T", "coverage", "risk", x=share_axis))
    titles = [title.text for title in chart.iter(f"{SVG}title")]
    assert titles == ["a, coverage 0.25: 0.123", "a, coverage 0.75: 12.35"]
    assert {"0", "0.2", "0.8", "1"} <= {text.text for text in chart.iter(f"{SVG}text")}


def references(chart: ET.Element) -> list[list[float]]:
    """The numbers in the paths of the dotted lines."""
    dotted = [p for p in chart.iter(f"{SVG}path") if p.get("stroke-dasharray") == "2 3"]
    return [[float(n) for n in re.findall(r"[\d.]+", path.attrib["d"])] for path in dotted]


def test_reference_lines() -> None:
    def with_lines(points: Points, *lines: Reference) -> ET.Element:
        one = Series("one", points)
        text = line_chart([one], "T", "x", "y", x=share_axis, y=even_axis, references=lines)
        return ET.fromstring(text)

    level, diagonal = Reference.level("<unigram>", 6.4), Reference("right\n", 0, 1)
    chart = with_lines([(0.1, 4.0), (1.0, 5.0)], level, Reference.level("nothing", math.nan))
    ((left, above, right, still),) = references(chart)
    assert left < right
    assert above == still
    drawn_at = [y for line in chart.iter(f"{SVG}polyline") for _, y in places_of(line)]
    assert above < min(drawn_at), "the axis makes room for it, above the smaller values"
    texts = [text.text for text in chart.iter(f"{SVG}text")]
    assert "<unigram>" in texts
    assert "nothing" not in texts

    chart = with_lines([(0.0, 0.0), (1.0, 1.0)], diagonal)
    ((line,), (found,)) = chart.iter(f"{SVG}polyline"), references(chart)
    assert [n for place in places_of(line) for n in place] == found
    assert references(with_lines([], level)) == [], "nothing to compare with"


def places_of(line: ET.Element) -> list[tuple[float, float]]:
    points = (point.split(",") for point in line.attrib["points"].split())
    return [(float(x), float(y)) for x, y in points]


def test_a_name_keeps_its_colour_where_another_has_no_value() -> None:
    points: Points = [(1, 1.0), (2, 2.0)]
    for first in (points, [(1, None)]):
        chart = drawn([Series("a", first), Series("b", points)])
        (*_, last) = (g for g in chart.iter(f"{SVG}g") if g.find(f"{SVG}polyline") is not None)
        assert last.attrib["class"] == "c1"


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


def test_steps_are_as_far_from_each_other() -> None:
    axis = step_axis([20, 0, 1, 2, 5, 10, 1])
    assert axis.ticks == (0, 1, 2, 5, 10, 20)
    places = [axis.place(tick) for tick in axis.ticks]
    gaps = [b - a for a, b in itertools.pairwise(places)]
    assert gaps == pytest.approx([1 / 6] * 5)
    assert 0 < places[0] < places[-1] < 1
    assert axis.place(7.5) == pytest.approx((axis.place(5) + axis.place(10)) / 2)
    assert step_axis([3]).place(3) == 0.5
    assert step_axis([]).ticks


@settings(deadline=None)
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=100))
def test_steps_are_not_too_many(values: list[int]) -> None:
    axis = step_axis(values)
    assert len(axis.ticks) <= 13
    assert (axis.ticks[0], axis.ticks[-1]) == (min(values), max(values))
    order = sorted(set(values))
    assert all(axis.place(a) < axis.place(b) for a, b in itertools.pairwise(order))


@settings(deadline=None)
@example([5e-324, -7.0])
@given(st.lists(st.floats(-1e6, 1e6)))
def test_shares_go_from_0_to_1_and_even_axes_are_even(values: list[float]) -> None:
    assert (share_axis(values).low, share_axis(values).high) == (0, 1)
    assert share_axis(values).ticks == (0, 0.2, 0.4, 0.6, 0.8, 1)
    axis = even_axis(values)
    assert axis.scale == "even"
    assert all(axis.low <= value <= axis.high for value in values)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.23456, "1.235"), (-0.0001, "0.000"), (None, "-"), (math.nan, "-"), (2e7, "2.00e+07")],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert number_text(value) == text


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


def test_a_page_has_a_second_chart_for_narrow_screens(read_page):
    series = [Series("one", [(1, 5.0), (2, 3.0)]), Series("two", [(1, 4.0), (2, 2.0)])]
    chart = line_chart(series, "By epoch", "epoch", "loss", references=[Reference.level("at", 3)])
    assert str(chart).count("<svg") == 1, "by itself, as in a file, it is one picture"
    page = document("t", [Section("s", chart, Markup("").join([chart, chart]))])
    assert page.count("<svg") == 6
    assert page.count('class="on-narrow"') == 3
    assert 'viewBox="0 0 360 ' in chart.narrow
    # In the narrow one, names and references are in the legend alone, as large as in the wide one.
    for name in ("one", "two", "at"):
        assert chart.narrow.count(f">{name}</text>") == 1
    assert 'font-size="12"' in chart.narrow
    assert "script" not in read_page(page).tags


def test_what_the_pointer_shows_a_finger_can_touch():
    chart = line_chart([Series("one", [(1, 5.0)])], "By epoch", "epoch", "loss")
    assert '<g class="point" tabindex="-1">' in chart
    assert "<title>one, epoch 1: 5.000</title>" in chart
    assert 'class="said" display="none"' in chart, "hidden where there is no style sheet"
    page = document("t", [Section("s", chart)])
    assert ".point:focus .said { display: inline; }" in page
    assert ".heat span:focus::after { content: attr(title)" in page


def test_ticks_of_a_narrow_chart_do_not_touch():
    points = [(float(number), 1.0) for number in range(0, 5_000_000, 500_000)]
    chart = line_chart([Series("one", points)], "t", "step", "loss")
    texts = re.findall(r'text-anchor="middle">([\d,e]+)</text>', chart.narrow)
    wide = re.findall(r'text-anchor="middle">([\d,e]+)</text>', str(chart))
    assert 2 <= len(texts) < len(wide)
