"""Parallel coordinates: a line for each trial, through its values on an axis for each option."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bayesrnn.report.chart import CHARACTER, NARROW, Chart
from bayesrnn.report.page import render
from bayesrnn.report.text import cells, printable, shortened

_HEIGHT, _ROW = 420, 74
_GAP, _WIDE = 116, 760  # between two axes, and of a picture with few of them


@dataclass(frozen=True)
class ParallelAxis:
    """An axis: its name, and what is written at places from 0 to 1."""

    name: str
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True)
class ParallelLine:
    """A line: its places on the axes, from 0 to 1; what it is; and how much it stands out.

    rank: 0 for the best, 1 for those that are good, 2 for the others.
    """

    places: Sequence[float]
    name: str
    rank: int


class _Frame(NamedTuple):
    """Where the axes are: side by side, or on a narrow screen one below the other."""

    width: int
    height: int
    axes: int
    narrow: bool
    labels: float

    def at(self, axis: int, place: float) -> tuple[float, float]:
        steps = max(self.axes - 1, 1)
        if self.narrow:
            return 24 + (self.width - 48) * place, 84 + _ROW * axis
        inside = self.width - 32 - 2 * self.labels
        top, bottom = 84, self.height - 28
        return 16 + self.labels + inside * axis / steps, bottom - (bottom - top) * place


def parallel_chart(
    axes: Sequence[ParallelAxis], lines: Sequence[ParallelLine], title: str, legend: Sequence[str]
) -> Chart:
    """The lines over the axes, the best drawn last; `legend` has a word for each rank."""
    labels = CHARACTER * max((cells(text) for one in axes for _, text in one.ticks), default=4)
    width = max(_WIDE, round(32 + _GAP * (len(axes) - 1) + 2 * max(labels, _GAP / 2)))
    wide = _Frame(width, _HEIGHT, len(axes), False, max(labels, _GAP / 2))
    narrow = _Frame(NARROW, 40 + _ROW * len(axes), len(axes), True, labels)
    made = [_drawn(frame, axes, lines, title, legend) for frame in (wide, narrow)]
    return Chart.of(*made)


def _drawn(
    frame: _Frame,
    axes: Sequence[ParallelAxis],
    lines: Sequence[ParallelLine],
    title: str,
    legend: Sequence[str],
) -> str:
    room = int((frame.width - 32 if frame.narrow else _GAP - 4) / CHARACTER)
    return render(
        "report/templates/parallel.svg.j2",
        width=frame.width,
        height=frame.height,
        title=title,
        heading=shortened(printable(title), frame.width // 9),
        narrow=frame.narrow,
        legend=legend,
        axes=[
            {
                "ends": (frame.at(number, 0), frame.at(number, 1)),
                "texts": _texts(frame, number, axis, room),
            }
            for number, axis in enumerate(axes)
        ],
        lines=[
            {
                "name": line.name,
                "rank": line.rank,
                "points": [frame.at(number, place) for number, place in enumerate(line.places)],
            }
            for line in sorted(lines, key=lambda line: -line.rank)
        ],
    )


def _texts(
    frame: _Frame, number: int, axis: ParallelAxis, room: int
) -> list[tuple[str, str, bool, float, float, float, float]]:
    """What is written at an axis: text, anchor, bold, its place, and the box that it takes."""
    name = shortened(printable(axis.name), room)
    if frame.narrow:
        written = [(name, "start", True, 16.0, frame.at(number, 0)[1] - 9)]
    else:
        written = [(name, "middle", True, frame.at(number, 1)[0], 70.0)]
    for place, text in axis.ticks:
        x, y = frame.at(number, place)
        if frame.narrow:
            anchor = "start" if place < 0.05 else "end" if place > 0.95 else "middle"
            written.append((text, anchor, False, x, y + 17))
        else:
            written.append((text, "end", False, x - 6, y + 4))
    made = []
    for text, anchor, bold, x, y in written:
        width = CHARACTER * cells(text)
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        made.append((text, anchor, bold, x, y, left - 1, width + 2))
    return made
