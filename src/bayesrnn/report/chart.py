"""Line charts as SVG that stands alone: readable on white, and in the dark with the
rules that a page adds (`marks.DARK_STYLE`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from bayesrnn.report.axes import Axis, AxisMaker, count_axis, value_axis
from bayesrnn.report.marks import CHARACTER, LIGHT, LINE, chart_legend, coloured, shape, spread
from bayesrnn.report.text import cells, escaped, number_text, printable, shortened

_LABEL = 24  # characters of a label beside a line
_MANY = 5  # names, above which dashed lines have no label


@dataclass(frozen=True)
class Series:
    """A line: (x, y) points in the order of x, with None where there is no value.

    Series of the same name share a colour; `dashed` tells them apart.
    """

    name: str
    points: Sequence[tuple[float, float | None]]
    dashed: bool = False

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


@dataclass(frozen=True)
class _End:
    """The last point of a line, and what to write beside it."""

    label: str
    colour: int
    x: float
    y: float


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
) -> Markup:
    """An SVG picture of the series; `solid` and `dashed` say what the two kinds of line mean.

    It grows in height where the labels at the ends of the lines need it; with many names, dashed
    lines have none and are known by their colour. A series without a value keeps its colour, so
    that charts of the same names agree.
    """
    heading = shortened(printable(title), width // 10)
    shown = [(one, one.pieces()) for one in series if one.pieces()]
    names = dict.fromkeys(one.name for one, _ in shown)
    known = dict.fromkeys(one.name for one in series)
    colours = {n: number % len(LIGHT) for number, n in enumerate(known) if n in names}
    ends = [
        _End(
            shortened(printable(one.name), _LABEL) + f" {dashed}" * one.dashed,
            colours[one.name],
            *pieces[-1][-1],
        )
        for one, pieces in shown
        if not one.dashed or len(names) <= _MANY
    ]
    points = [point for _, pieces in shown for piece in pieces for point in piece]
    references = [r for r in references if shown and math.isfinite(r.left + r.right)]
    compared = [value for r in references for value in (r.left, r.right)]
    x_axis, y_axis = x([place for place, _ in points]), y([v for _, v in points] + compared)
    ends += [
        _End(shortened(printable(r.label), _LABEL), -1, x_axis.high, r.right) for r in references
    ]
    left = 34 + CHARACTER * max((cells(y_axis.text(t)) for t in y_axis.ticks), default=1)
    right = width - 30 - CHARACTER * max((cells(end.label) for end in ends), default=0)
    kinds = {one.dashed: dashed if one.dashed else solid for one, _ in shown}
    key, top = "", 30.0
    if len(shown) > 1:
        key, top = chart_legend(colours, kinds if len(kinds) > 1 else {}, 16, width - 16, 46)
    top += 20
    height = max(height, math.ceil(top + LINE * len(ends) + 54))
    frame = _Frame(left, right, top, height - 50, x_axis, y_axis)
    lines = [_line(one, pieces, colours[one.name], frame, x_label) for one, pieces in shown]
    nothing = f'<text x="{left + 12:.1f}" y="{top + 24:.1f}">{escaped(empty)}</text>'
    picture = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'aria-label="{escaped(title)}" font-family="system-ui, sans-serif" font-size="12">',
        f'<rect class="paper" width="{width}" height="{height}" fill="#ffffff"/>',
        '<g class="ink" color="#23282d" fill="currentColor">',
        f'<text x="16" y="24" font-size="15" font-weight="600">{escaped(heading)}</text>',
        *_axes(frame, x_label, y_label + " (log scale)" * y_axis.log),
        *([] if shown else [nothing]),
        "</g>",
        *([key] if key else []),
        *(_reference(one, frame) for one in references),
        *lines,
        *_end_labels(ends, frame),
        "</svg>\n",
    ]
    return Markup("\n".join(picture))  # all text in it is escaped


def _axes(frame: _Frame, x_label: str, y_label: str) -> Iterator[str]:
    left, right, top, bottom = frame.left, frame.right, frame.top, frame.bottom
    for tick in frame.y.ticks:
        _, y = frame.at(frame.x.low, tick)
        yield (
            f'<path class="grid" color="#d9dde1" stroke="currentColor" '
            f'd="M{left:.1f} {y:.1f}H{right:.1f}"/>'
            f'<text x="{left - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escaped(frame.y.text(tick))}</text>"
        )
    yield f'<path stroke="currentColor" d="M{left:.1f} {bottom:.1f}H{right:.1f}"/>'
    for tick in frame.x.ticks:
        x, _ = frame.at(tick, frame.y.low)
        yield (
            f'<path stroke="currentColor" d="M{x:.1f} {bottom:.1f}v4"/>'
            f'<text x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">'
            f"{escaped(frame.x.text(tick))}</text>"
        )
    yield (
        f'<text x="{(left + right) / 2:.1f}" y="{bottom + 38:.1f}" text-anchor="middle">'
        f"{escaped(x_label)}</text>"
    )
    middle = (top + bottom) / 2
    yield (
        f'<text x="18" y="{middle:.1f}" text-anchor="middle" '
        f'transform="rotate(-90 18 {middle:.1f})">{escaped(y_label)}</text>'
    )


def _reference(reference: Reference, frame: _Frame) -> str:
    (_, left), (_, right) = (frame.at(frame.x.low, v) for v in (reference.left, reference.right))
    return (
        f'{coloured(-1)}<path d="M{frame.left:.1f} {left:.1f}L{frame.right:.1f} {right:.1f}" '
        'stroke="currentColor" stroke-width="1.2" stroke-dasharray="2 3"/></g>'
    )


def _line(
    series: Series,
    pieces: Sequence[Sequence[tuple[float, float]]],
    colour: int,
    frame: _Frame,
    x_label: str,
) -> str:
    dash = ' stroke-dasharray="6 4"' if series.dashed else ""
    parts = [coloured(colour)]
    for piece in pieces:
        if len(piece) > 1:
            points = " ".join("{:.1f},{:.1f}".format(*frame.at(x, y)) for x, y in piece)
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="currentColor" '
                f'stroke-width="2" stroke-linejoin="round"{dash}/>'
            )
    crowded = sum(map(len, pieces)) > 40
    kind = " (dashed)" if series.dashed else ""
    for x, y in (point for piece in pieces for point in piece):
        value = number_text(y, 2 if abs(y) >= 10 else 3)
        said = f"{series.name}{kind}, {x_label} {frame.x.text(float(f'{x:.6g}'))}: {value}"
        mark = shape(colour, *frame.at(x, y), hollow=series.dashed)
        faint = ' opacity="0"' if crowded else ""
        parts.append(f"<g{faint}><title>{escaped(said)}</title>{mark}</g>")
    return "\n".join([*parts, "</g>"])


def _end_labels(ends: Sequence[_End], frame: _Frame) -> Iterator[str]:
    """The name of each line beside its end, moved up or down where two would overlap."""
    places = [frame.at(end.x, end.y) for end in ends]
    heights = spread([y for _, y in places], LINE, frame.top, frame.bottom)
    for end, (x, y), height in zip(ends, places, heights, strict=True):
        yield (
            f'{coloured(end.colour)}<path d="M{x + 5:.1f} {y:.1f}L{frame.right + 12:.1f} '
            f'{height:.1f}" stroke="currentColor" stroke-opacity="0.45" stroke-width="0.8"/>'
            f'<text x="{frame.right + 15:.1f}" y="{height + 4:.1f}" fill="currentColor">'
            f"{escaped(end.label)}</text></g>"
        )
