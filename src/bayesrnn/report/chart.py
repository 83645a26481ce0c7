"""Line charts as SVG that stands alone: readable on white, and in the dark on a page."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from markupsafe import Markup

from bayesrnn.report.axes import Axis, AxisMaker, count_axis, draw_axis, even_axis, value_axis
from bayesrnn.report.page import render
from bayesrnn.report.text import cells, number_text, printable, shortened

_COLOURS = 10  # of templates/colours.j2
_LINE = 16  # height of a line of text
CHARACTER = 6.9  # width of a character, on the safe side
_LABEL = 24  # characters of a label beside a line
_MANY = 5  # names, above which dashed lines have no label
NARROW, _NARROW_HEIGHT = 360, 300  # of a chart for a phone


@dataclass(frozen=True)
class Series:
    """A line: (x, y) points in the order of x, with None where there is no value.

    Series of the same name share a colour; `dashed` tells them apart.
    """

    name: str
    points: Sequence[tuple[float, float | None]]
    dashed: bool = False

    @classmethod
    def by_draws(
        cls, name: str, values: Iterable[tuple[int, float | None]], dashed: bool = False
    ) -> "Series":
        """A line over numbers of draws; the mean network (0) is joined to none."""
        points: list[tuple[float, float | None]] = []
        for samples, value in values:
            points += [(samples, value), *([] if samples else [(0, None)])]
        return cls(name, points, dashed)

    def pieces(self) -> list[list[tuple[float, float]]]:
        """The stretches without a missing value."""
        pieces: list[list[tuple[float, float]]] = [[]]
        for x, y in self.points:
            if y is None or not (math.isfinite(x) and math.isfinite(y)):
                pieces.append([])
            else:
                pieces[-1].append((x, y))
        return [piece for piece in pieces if piece]


@dataclass(frozen=True)
class Reference:
    """A straight line to compare with: from the value at the left edge to that at the right one."""

    label: str
    left: float
    right: float

    @classmethod
    def level(cls, label: str, value: float) -> "Reference":
        """A horizontal line."""
        return cls(label, value, value)


@dataclass(frozen=True)
class _Frame:
    """Where the lines are drawn, and the axes that say where a value goes."""

    left: float
    right: float
    top: float
    bottom: float
    x: Axis
    y: Axis

    def at(self, x: float, y: float) -> tuple[float, float]:
        return (
            self.left + (self.right - self.left) * self.x.place(x),
            self.bottom - (self.bottom - self.top) * self.y.place(y),
        )


class Chart(Markup):
    """A picture as SVG; on a page there is a second one, which a narrow screen shows in its place.

    What is written in the first would be too small to read there.
    """

    narrow: str

    @classmethod
    def of(cls, wide: str, narrow: str) -> "Chart":
        """The picture, and the one for narrow screens."""
        made = cls(wide)
        made.narrow = narrow
        return made

    def __html__(self) -> str:  # type: ignore[override]  # Markup gives itself
        # Its own text, not itself: that would ask for this again.
        wide = Markup(str.__str__(self))
        return str(render("report/templates/chart.html.j2", wide=wide, narrow=Markup(self.narrow)))


def line_chart(
    series: Sequence[Series],
    title: str,
    x_label: str,
    y_label: str,
    *,
    x: AxisMaker = count_axis,
    y: AxisMaker = value_axis,
    references: Sequence[Reference] = (),
    solid: str = "validation",
    dashed: str = "train",
    empty: str = "no finished epoch yet",
    width: int = 760,
    height: int = 420,
) -> Chart:
    """An SVG picture of the series; `solid` and `dashed` say what the two kinds of line mean.

    It grows in height where the labels at the ends of the lines need it; with many names, dashed
    lines have none and are known by their colour. A series without a value keeps its colour, so
    that charts of the same names agree. On a narrow screen names are in the legend alone.
    """
    shown = [(one, one.pieces()) for one in series if one.pieces()]
    points = [point for _, pieces in shown for piece in pieces for point in piece]
    references = [r for r in references if shown and math.isfinite(r.left + r.right)]
    compared = [value for r in references for value in (r.left, r.right)]
    content = _Content(
        shown=shown,
        known=list(dict.fromkeys(one.name for one in series)),
        title=title,
        labels=(x_label, y_label),
        axes=(x([place for place, _ in points]), y([v for _, v in points] + compared)),
        references=references,
        kinds=(solid, dashed),
        empty=empty,
    )
    wide = _drawn(content, width, height, narrow=False)
    return Chart.of(wide, _drawn(content, NARROW, min(height, _NARROW_HEIGHT), narrow=True))


class _Content(NamedTuple):
    """What a chart shows, however wide it is; `known`: the names of all series, shown or not."""

    shown: list[tuple[Series, list[list[tuple[float, float]]]]]
    known: list[str]
    title: str
    labels: tuple[str, str]
    axes: tuple[Axis, Axis]
    references: Sequence[Reference]
    kinds: tuple[str, str]
    empty: str


def _drawn(content: _Content, width: int, height: int, narrow: bool) -> Markup:
    shown, references, (solid, dashed) = content.shown, content.references, content.kinds
    (x_label, y_label), (x_axis, y_axis) = content.labels, content.axes
    names = {one.name for one, _ in shown}
    colours = {n: number % _COLOURS for number, n in enumerate(content.known) if n in names}
    # What is written beside the end of a line: label, colour, and where the line ends.
    ends = [
        (_label(one.name) + f" {dashed}" * one.dashed, colours[one.name], *pieces[-1][-1])
        for one, pieces in shown
        if not narrow and (not one.dashed or len(names) <= _MANY)
    ]
    ends += [(_label(r.label), -1, x_axis.high, r.right) for r in references if not narrow]
    left = 34 + CHARACTER * max((cells(y_axis.text(t)) for t in y_axis.ticks), default=1)
    beside = 16 if narrow else 30
    right = width - beside - CHARACTER * max((cells(label) for label, *_ in ends), default=0)
    kinds = {one.dashed: dashed if one.dashed else solid for one, _ in shown}
    legend = []
    if len(shown) > 1 or (narrow and references):
        said = kinds if len(kinds) > 1 else {}
        lines = [r.label for r in references] if narrow else []
        legend = _legend(colours, said, lines, right=width - 16)
    top = (legend[-1][-1] if legend else 30.0) + 20
    # A narrow chart keeps its height for the lines, below whatever the legend needs.
    needed = top + height - 80 if narrow else top + _LINE * len(ends) + 54
    height = max(height, math.ceil(needed))
    frame = _Frame(left, right, top, height - 50, x_axis, y_axis)
    return render(
        "report/templates/chart.svg.j2",
        width=width,
        height=height,
        left=left,
        right=right,
        top=top,
        bottom=frame.bottom,
        title=content.title,
        heading=shortened(printable(content.title), width // (9 if narrow else 10)),
        x_label=x_label,
        y_label=y_label + " (log scale)" * y_axis.log,
        x_ticks=_apart([(frame.at(t, y_axis.low)[0], x_axis.text(t)) for t in x_axis.ticks]),
        y_ticks=[(frame.at(x_axis.low, t)[1], y_axis.text(t)) for t in y_axis.ticks],
        empty=content.empty,
        legend=legend,
        references=[[frame.at(x_axis.low, v)[1] for v in (r.left, r.right)] for r in references],
        lines=[_line(one, pieces, colours[one.name], frame, x_label) for one, pieces in shown],
        ends=_end_labels(ends, frame),
    )


def _apart(ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """The ticks of an axis from left to right, without those that would touch the one before."""
    kept: list[tuple[float, str]] = []
    for place, text in ticks:
        room = place - kept[-1][0] if kept else math.inf
        if room >= CHARACTER * (cells(text) + cells(kept[-1][1]) + 1 if kept else 0) / 2:
            kept.append((place, text))
    return kept


#: A chart over numbers of draws.
draws_chart = partial(
    line_chart, x_label="draws", x=draw_axis, y=even_axis, empty="nothing measured"
)


def _label(name: str) -> str:
    return shortened(printable(name), _LABEL)


def _legend(
    colours: Mapping[str, int], kinds: Mapping[bool, str], references: Iterable[str], right: float
) -> list[tuple[str, int, bool, float, float]]:
    """What colours and kinds of line mean: text, colour, dashed, and where it begins."""
    entries = [(text, -1, dashed) for dashed, text in sorted(kinds.items())]
    entries += [(_label(label), -1, True) for label in references]
    entries += [(shortened(printable(name), 40), colour, False) for name, colour in colours.items()]
    left = x = 16.0
    y = 46.0
    placed = []
    for text, colour, dashed in entries:
        needed = 34 + CHARACTER * cells(text) + 14
        if x > left and x + needed > right:
            x, y = left, y + _LINE
        placed.append((text, colour, dashed, x, y))
        x += needed
    return placed


def _line(
    series: Series,
    pieces: Sequence[Sequence[tuple[float, float]]],
    colour: int,
    frame: _Frame,
    x_label: str,
) -> dict[str, object]:
    """The stretches of a line and its points, each with what the pointer shows over it."""
    kind = " (dashed)" if series.dashed else ""
    points = []
    for x, y in (point for piece in pieces for point in piece):
        value = number_text(y, 2 if abs(y) >= 10 else 3)
        title = f"{series.name}{kind}, {x_label} {frame.x.text(float(f'{x:.6g}'))}: {value}"
        room = int((frame.right - frame.left) // CHARACTER)
        points.append((*frame.at(x, y), title, shortened(printable(title), room)))
    placed = [[frame.at(x, y) for x, y in piece] for piece in pieces]
    return {"colour": colour, "dashed": series.dashed, "pieces": placed, "points": points}


def _end_labels(
    ends: Sequence[tuple[str, int, float, float]], frame: _Frame
) -> list[tuple[str, int, float, float, float]]:
    """The name of each line beside its end, moved up or down where two would overlap."""
    places = [frame.at(x, y) for _, _, x, y in ends]
    heights = spread([y for _, y in places], _LINE, frame.top, frame.bottom)
    return [
        (label, colour, *place, height)
        for (label, colour, _, _), place, height in zip(ends, places, heights, strict=True)
    ]


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places nearest to the wanted ones that are `gap` apart and, with room, in low to high.

    Those that are too near become a block around their middle; blocks that meet become one.
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    blocks: list[list[int]] = []

    def start(block: list[int]) -> float:
        size = gap * (len(block) - 1)
        middle = sum(wanted[index] for index in block) / len(block)
        return max(min(middle - size / 2, high - size), low)

    for index in order:
        blocks.append([index])
        while len(blocks) > 1 and start(blocks[-2]) + gap * len(blocks[-2]) > start(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    placed = list(wanted)
    for block in blocks:
        for place, index in enumerate(block):
            placed[index] = start(block) + gap * place
    return placed
