"""A picture of a forecast: the past, the median, intervals, and in them what is ignorance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from bayesrnn.data.series import Floats
from bayesrnn.report.axes import even_axis
from bayesrnn.report.page import render

_WIDTH, _HEIGHT = 760, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 84.0, 744.0, 66.0, 292.0
_DATES = 6  # at most
_CHARACTER = 6.9  # width of a character, on the safe side


@dataclass(frozen=True)
class Band:
    """A range at each step of the forecast; `kind` chooses its colour, see the template."""

    name: str
    kind: str
    low: Floats
    high: Floats


def fan_chart(
    title: str,
    history: Floats,
    median: Floats,
    bands: Sequence[Band],
    labels: Sequence[str],
    truth: Floats | None = None,
) -> Markup:
    """An SVG picture.

    history: values before the forecast, NaN where there is none. labels: of all steps of history
        and forecast. truth: what came, where that is known.
    """
    start, steps = len(history), len(history) + len(median)
    known = [*history, *median, *(value for band in bands for value in (*band.low, *band.high))]
    known += [] if truth is None else list(truth)
    axis = even_axis([float(value) for value in known if np.isfinite(value)])

    def x(step: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * step / max(steps - 1, 1)

    def y(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * axis.place(value)

    def line(values: Floats, first: int) -> list[list[tuple[float, float]]]:
        pieces: list[list[tuple[float, float]]] = [[]]
        for step, value in enumerate(values, start=first):
            if np.isfinite(value):
                pieces[-1].append((x(step), y(float(value))))
            elif pieces[-1]:
                pieces.append([])
        return [piece for piece in pieces if piece]

    def outline(band: Band) -> list[tuple[float, float]]:
        low, high = (list(enumerate(of, start=start)) for of in (band.low, band.high))
        return [(x(step), y(float(value))) for step, value in (*high, *reversed(low))]

    # The last date ends where the axis does, so that half of it more has to fit before it.
    needed = 1.5 * _CHARACTER * max(map(len, labels), default=0) + 8
    dates = min(_DATES, steps, 1 + int((_RIGHT - _LEFT) / needed))
    shown = np.linspace(0, steps - 1, dates).round().astype(int).tolist()
    return render(
        "tasks/forecast/fan.svg.j2",
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=_RIGHT,
        top=_TOP,
        bottom=_BOTTOM,
        title=title,
        y_ticks=[(y(tick), axis.text(tick)) for tick in axis.ticks],
        x_ticks=[(x(step), labels[step]) for step in shown],
        start=x(start - 0.5) if start else None,
        history=line(history, 0),
        median=line(median, start),
        truth=[] if truth is None else line(truth, start),
        bands=[(band.name, band.kind, outline(band)) for band in bands],
    )
