"""A picture of a forecast: the past, the median, intervals, and in them what is ignorance."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from bayesrnn.data.series import Floats
from bayesrnn.report.axes import even_axis
from bayesrnn.report.chart import Chart
from bayesrnn.report.page import render

_DATES = 6  # at most
_CHARACTER = 6.9  # width of a character, on the safe side


@dataclass(frozen=True)
class _Frame:
    """The size of a picture and the place of its axes; bands are named at `legend`, `apart`."""

    width: int
    height: int
    left: float
    right: float
    top: float
    bottom: float
    legend: tuple[float, float]
    apart: float


_WIDE = _Frame(760, 340, 84.0, 744.0, 66.0, 292.0, legend=(180, 40), apart=130)
#: For a phone; the bands have a line of the legend to themselves.
_NARROW = _Frame(360, 340, 64.0, 350.0, 84.0, 292.0, legend=(16, 58), apart=80)
#: So many steps before the forecast a narrow picture shows, in steps of the forecast.
_NARROW_PAST = 1.5


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
) -> Chart:
    """An SVG picture; on a page, narrow screens have one of less of the past.

    history: values before the forecast, NaN where there is none. labels: of all steps of history
        and forecast. truth: what came, where that is known.
    """
    wide = _drawn(_WIDE, title, history, median, bands, labels, truth)
    most = math.ceil(_NARROW_PAST * len(median)) if len(median) else len(history)
    left_out = max(0, len(history) - most)
    labels = labels[left_out:]
    narrow = _drawn(_NARROW, title, history[left_out:], median, bands, labels, truth)
    return Chart.of(wide, narrow)


def _drawn(
    frame: _Frame,
    title: str,
    history: Floats,
    median: Floats,
    bands: Sequence[Band],
    labels: Sequence[str],
    truth: Floats | None,
) -> Markup:
    start, steps = len(history), len(history) + len(median)
    known = [*history, *median, *(value for band in bands for value in (*band.low, *band.high))]
    known += [] if truth is None else list(truth)
    axis = even_axis([float(value) for value in known if np.isfinite(value)])

    def x(step: float) -> float:
        return frame.left + (frame.right - frame.left) * step / max(steps - 1, 1)

    def y(value: float) -> float:
        return frame.bottom - (frame.bottom - frame.top) * axis.place(value)

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
    dates = min(_DATES, steps, 1 + int((frame.right - frame.left) / needed))
    shown = np.linspace(0, steps - 1, dates).round().astype(int).tolist()
    return render(
        "tasks/forecast/fan.svg.j2",
        frame=frame,
        title=title,
        y_ticks=[(y(tick), axis.text(tick)) for tick in axis.ticks],
        x_ticks=[(x(step), labels[step]) for step in shown],
        start=x(start - 0.5) if start else None,
        history=line(history, 0),
        median=line(median, start),
        truth=[] if truth is None else line(truth, start),
        bands=[(band.name, band.kind, outline(band)) for band in bands],
    )
