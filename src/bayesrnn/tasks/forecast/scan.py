"""Read new values one after the other: how probable each is, given all that came before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesrnn.data.series import Floats, SeriesSet
from bayesrnn.methods.base import Network
from bayesrnn.tasks.forecast.heads import HEADS
from bayesrnn.tasks.forecast.layout import Layout
from bayesrnn.tasks.forecast.panel import Panel, make_panel
from bayesrnn.tasks.forecast.windows import Windows, cut_windows

#: Values drawn from each network for the median and the interval of a step.
_SAMPLES: Final = 40
#: A value with a smaller p is replaced where later inputs would read it. It need not be a strange
#: one: of one in a hundred the median says more of what comes next than the value itself.
REPLACED_BELOW: Final = 0.01
#: The share of a season's values that may be strange: more of them are a change that stays.
_MOST_STRANGE: Final = 0.5


@dataclass(frozen=True)
class Scan:
    """What is said of the values of one series from place `first` on; arrays are [values].

    p: of the mixture over draws, the two-sided tail probability; NaN where there is no value.
    log_prob: the log-density in units of the window. epistemic: the share of the variance between
        the means of draws.
    """

    first: int
    median: Floats
    low: Floats
    high: Floats
    p: Floats
    log_prob: Floats
    epistemic: Floats


@torch.no_grad()
def scan_series(
    series: SeriesSet,
    layout: Layout,
    networks: Sequence[Network],
    first: int,
    generator: torch.Generator,
    replaced_below: float = REPLACED_BELOW,
    advance: Callable[[int], object] = lambda number: None,
    device: torch.device | None = None,
) -> Scan:
    """Read the only series of a set from the place `first` on.

    All draws read in step, block by block as long as the horizon they were trained for; each block
    begins with a context. replaced_below: a value with a smaller p is replaced by the median where
    later inputs and scales would read it, so that it has no echo a season later, and a strange day
    does not get used to itself. Where more than half of a season was like that, it is a change that
    stays, and values are read as they are. device: where the networks are.
    """
    panel = make_panel(series, layout)
    panel = panel if device is None else panel.to(device)
    length = int(panel.lengths[0])
    rows: list[list[float]] = []
    strange = np.zeros(length, dtype=bool)
    for start in range(first, length, layout.horizon):
        count = min(layout.horizon, length - start)
        rows += _block(panel, networks, start, count, generator, replaced_below, strange)
        advance(count)
    found = np.array(rows).reshape(-1, 6).T
    return Scan(first, *found)


def _block(
    panel: Panel,
    networks: Sequence[Network],
    start: int,
    count: int,
    generator: torch.Generator,
    replaced_below: float,
    strange: NDArray[np.bool_],
) -> list[list[float]]:
    layout = panel.layout
    number, place = torch.tensor([[0], [start]], device=panel.values.device)
    windows = cut_windows(panel, number, place)
    before = windows.network_inputs(windows.values, windows.steps(-layout.context, layout.context))
    states = [network(before)[1] for network in networks]
    rows = []
    for step in range(count):
        place = windows.steps(step, 1)
        inputs = windows.network_inputs(windows.values, place)
        said = [network(inputs, state) for network, state in zip(networks, states, strict=True)]
        states = [state for _, state in said]
        parameters = torch.cat([of[0] for of, _ in said])
        is_there = bool(windows.observed[0, place].item())
        y = windows.values[:, place][0]
        row = _judged(windows, layout, parameters, y, place, generator)
        if not is_there:
            row = [*row[:3], np.nan, np.nan, row[5]]
        elif row[3] < replaced_below or not np.isfinite(row[4]):
            strange[start + step] = True
            if not _is_the_rule(strange, start + step, layout):
                # Later windows are cut from the panel, later steps of this one from its own values.
                windows.values[0, place] = row[0]
                panel.values[panel.offsets[0] + start + step] = row[0]
        rows.append(row)
    return rows


def _is_the_rule(strange: NDArray[np.bool_], place: int, layout: Layout) -> bool:
    """Whether so many of the last values were strange that something has changed for good."""
    last = strange[max(0, place - max(layout.season, layout.horizon)) : place]
    return len(last) > 0 and bool(last.mean() > _MOST_STRANGE)


def _judged(
    windows: Windows,
    layout: Layout,
    parameters: Tensor,
    y: Tensor,
    place: Tensor,
    generator: torch.Generator,
) -> list[float]:
    """median, low, high, p, log-density and epistemic share of one value, over all draws."""
    head, draws = HEADS[layout.likelihood], len(parameters)
    base, unit = windows.base(windows.values, place)[0], windows.unit
    tails = head.tails(parameters, y.expand(draws), base, unit).mean(1)
    log_probs = head.log_prob(parameters, y.expand(draws), base, unit).double()
    means = head.mean(parameters, base, unit)
    many = parameters[:, None].expand(-1, _SAMPLES, -1)
    samples = head.sample(many, base, unit, generator)
    if layout.non_negative:
        samples = samples.clamp_min(0.0)
    noise = samples.var(1).mean().item()
    between = means.var(correction=1).item() if draws > 1 else 0.0
    low, median, high = np.quantile(samples.cpu().numpy(), [0.025, 0.5, 0.975])
    return [
        float(median),
        float(low),
        float(high),
        min(1.0, 2 * tails.min().item()),
        (log_probs.logsumexp(0) - np.log(draws)).item(),
        between / max(between + noise, 1e-300),
    ]


def one_series(series: SeriesSet, number: int) -> SeriesSet:
    """A set of one of the series."""
    return replace(series, series=(series.series[number],))
