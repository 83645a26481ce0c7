"""Bars from left to right: a number for each name."""

from collections.abc import Mapping

from bayesrnn.report.chart import CHARACTER, NARROW, Chart
from bayesrnn.report.page import render
from bayesrnn.report.text import cells, printable, shortened

_ROW, _TOP, _BOTTOM = 28, 44, 12
_WIDE, _LABEL = 760, 26


def bar_chart(values: Mapping[str, float], title: str, empty: str = "nothing measured") -> Chart:
    """Shares of 1 as bars, in the order given."""
    return Chart.of(_drawn(values, title, empty, _WIDE), _drawn(values, title, empty, NARROW))


def _drawn(values: Mapping[str, float], title: str, empty: str, width: int) -> str:
    labels = [shortened(printable(name), _LABEL) for name in values]
    left = 24 + CHARACTER * max(map(cells, labels), default=0)
    room = width - left - 64
    bars = [
        (label, _TOP + _ROW * row, room * share, f"{share:.0%}")
        for row, (label, share) in enumerate(zip(labels, values.values(), strict=True))
    ]
    return render(
        "report/templates/bars.svg.j2",
        width=width,
        height=_TOP + _ROW * max(len(bars), 1) + _BOTTOM,
        title=title,
        heading=shortened(printable(title), width // 9),
        left=left,
        bars=bars,
        empty=empty,
    )
