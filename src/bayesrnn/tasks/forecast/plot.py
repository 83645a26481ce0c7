"""A forecast as a plot of matplotlib, which is imported only here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesrnn.errors import MissingExtraError
from bayesrnn.tasks.forecast.report import Outlook, shown_history

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The colours of the page: of what is forecast, and of the part that is ignorance.
_FORECAST, _IGNORANCE, _VALUES = "#0072b2", "#d55e00", "#23282d"


def plot_forecast(outlook: Outlook, number: int, axes: Axes | None = None) -> Axes:
    """The past, the median, its intervals, and inside them what is ignorance, of one series.

    axes: where to draw; new ones, if there are none.
    """
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        raise MissingExtraError(
            "plots need an extra: pip install 'bayesrnn[plot]'; to_html(path) needs none"
        ) from None
    if axes is None:
        _, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    future = outlook.future
    one = future.series.series[number]
    history, first = shown_history(outlook, number)
    stop = len(one.target)
    ahead = _places(outlook, number, stop, future.horizon)
    axes.plot(_places(outlook, number, first, stop - first), history, color=_VALUES, lw=1)
    levels = sorted(outlook.levels, reverse=True)
    for level, alpha in zip(levels, np.linspace(0.18, 0.34, len(levels)), strict=True):
        low, high = (ends[number] for ends in future.interval(level))
        axes.fill_between(ahead, low, high, color=_FORECAST, alpha=alpha, lw=0, label=f"{level}%")
    ignorance = future.ignorance_band()
    if ignorance is not None:
        low, high = (ends[number] for ends in ignorance)
        axes.fill_between(
            ahead, low, high, color=_IGNORANCE, alpha=0.5, lw=0, label="of it the model's"
        )
    axes.plot(ahead, future.median[number], color=_FORECAST, label="median")
    axes.set_title(one.name)
    axes.set_ylabel(outlook.unit)
    axes.legend()
    return axes


def _places(outlook: Outlook, number: int, first: int, count: int) -> Any:
    """Dates, or numbers where there are none."""
    series = outlook.future.series
    one = series.series[number]
    if series.frequency is None:
        return one.number + series.stride * np.arange(first, first + count)
    return series.frequency.stamps(one.start, first, count)
