"""Parallel coordinates and bars as SVG."""

import re
from xml.etree import ElementTree

import pytest

from bayesrnn.report.bars import bar_chart
from bayesrnn.report.parallel import ParallelAxis, ParallelLine, parallel_chart

AXES = [
    ParallelAxis("first", [(0.0, "low"), (1.0, "high")]),
    ParallelAxis("a <name> that is far too long for its axis", [(0.5, "middle")]),
    ParallelAxis("loss", []),
]
LINES = [
    ParallelLine([0.0, 0.5, 0.0], "the best", 0),
    ParallelLine([1.0, 0.25, 1.0], "<another>", 2),
]


def points(svg, name):
    """The points of the line that a title names."""
    (found,) = [
        line.get("points").split()
        for line in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}polyline")
        if line.findtext("{http://www.w3.org/2000/svg}title") == name
    ]
    return [tuple(map(float, point.split(","))) for point in found]


@pytest.mark.parametrize("narrow", [False, True])
def test_lines_meet_their_axes_at_their_places(narrow):
    chart = parallel_chart(AXES, LINES, "A title", ("best", "good", "others"))
    svg = chart.narrow if narrow else str.__str__(chart)
    axes = [
        [tuple(map(float, end.split())) for end in ends]
        for ends in re.findall(r'd="M([\d. ]+)L([\d. ]+)"', svg)
    ]
    assert len(axes) == 3
    for line in LINES:
        for (low, high), place, point in zip(
            axes, line.places, points(svg, line.name), strict=True
        ):
            at = [a + (b - a) * place for a, b in zip(low, high, strict=True)]
            assert point == pytest.approx(at, abs=0.11)
    # The best is drawn last, upon the others.
    assert svg.index("the best") > svg.index("&lt;another&gt;")


def test_everything_stays_inside_of_the_picture():
    for axes in (AXES, AXES * 5):
        lines = [ParallelLine([0.0] * len(axes), "one", 1)]
        chart = parallel_chart(axes, lines, "A title", ("best", "good", "others"))
        for svg in (str.__str__(chart), chart.narrow):
            root = ElementTree.fromstring(svg)
            width = float(root.get("width"))
            for box in root.iter("{http://www.w3.org/2000/svg}rect"):
                left = float(box.get("x", 0))
                assert -2 <= left <= left + float(box.get("width")) <= width + 2


def test_bars_are_as_long_as_their_shares():
    svg = str.__str__(bar_chart({"one": 0.6, "other <name>": 0.3}, "Shares"))
    first, second = (float(w) for w in re.findall(r'width="([\d.]+)" height="20"', svg))
    assert first == pytest.approx(2 * second, rel=0.01)
    assert "other &lt;name&gt;" in svg
    assert ">60%<" in svg
    assert "nothing measured" in str.__str__(bar_chart({}, "Shares"))
