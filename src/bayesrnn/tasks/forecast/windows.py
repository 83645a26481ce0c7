"""Windows of series around the start of a forecast, in the units of their own past.

A window starts with the first value that is forecast. Its scales are taken from what lies before;
the inputs of each step are values before that step, so nothing at or after a step reaches it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from bayesrnn.tasks.forecast.layout import Layout
from bayesrnn.tasks.forecast.panel import Panel

#: A spread below this share of the level is taken for a series that does not move.
_LEAST_SPREAD: Final = 1e-4
#: Inputs are cut off here: a value that is far out must not drown the others.
_LARGEST: Final = 10.0


@dataclass(frozen=True)
class Windows:
    """Several windows side by side, the start of each at the place `reach`.

    values: float64 [windows, reach + horizon]. observed, exists: where there are some.
    inputs: float32 [windows, context + horizon, n], calendar and covariates.
    level: the mean of |y| in the past; spread: the mean absolute difference to the base.
    """

    layout: Layout
    values: Tensor
    observed: Tensor
    exists: Tensor
    inputs: Tensor
    level: Tensor
    spread: Tensor

    def __len__(self) -> int:
        return len(self.values)

    @property
    def unit(self) -> Tensor:
        """The unit of the outputs [windows]."""
        return self.level if self.layout.base == "none" else self.spread

    def steps(self, first: int, count: int) -> Tensor:
        """The places of the steps first, ... counted from the start of the forecast."""
        start = self.layout.reach + first
        return torch.arange(start, start + count, device=self.values.device)

    def base(self, values: Tensor, places: Tensor) -> Tensor:
        """What the outputs at these places are added to: [windows, places]."""
        if self.layout.base == "none":
            return torch.zeros_like(values[:, places])
        return values[:, places - self.layout.base_lag]

    def network_inputs(self, values: Tensor, places: Tensor) -> Tensor:
        """The inputs [places, windows, n] of the steps at these places."""
        layout = self.layout
        lags = torch.tensor(layout.lags, device=places.device)
        pairs = torch.tensor(layout.differences, device=places.device)
        back = places[:, None] - lags
        lagged = values[:, back] * self.exists[:, back] / self.level[:, None, None]
        late, early = (places[:, None] - pairs[:, end] for end in (0, 1))
        both = self.exists[:, late] & self.exists[:, early]
        differences = (values[:, late] - values[:, early]) * both / self.spread[:, None, None]
        missing = torch.stack(
            [~self.observed[:, places - lag] for lag in (1, layout.season)], dim=2
        )
        ratio = (self.spread / self.level).log()[:, None, None].expand(-1, len(places), 1)
        own = torch.cat([lagged, differences, missing.double(), ratio], 2)
        first = places - (layout.reach - layout.context)
        of_calendar = self.inputs[:, first]
        return torch.cat([own.clamp(-_LARGEST, _LARGEST).float(), of_calendar], 2).transpose(0, 1)

    def scored(self, places: Tensor) -> Tensor:
        """Whether there is a value at each place, and one a season before: [windows, places]."""
        return self.observed[:, places] & self.exists[:, places - self.layout.season]

    def expanded(self, paths: int) -> Windows:
        """Each window as often as there are paths, one after the other."""
        return self._each(lambda of: of.repeat_interleave(paths, 0))

    def part(self, rows: slice) -> Windows:
        """Some of the windows."""
        return self._each(lambda of: of[rows])

    def replaced(self, **parts: Any) -> Windows:
        """The same with other values, or without knowing of gaps."""
        return replace(self, **parts)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Windows:
        parts = vars(self).items()
        made: dict[str, Any] = {
            name: change(of) if isinstance(of, Tensor) else of for name, of in parts
        }
        return Windows(**made)


def cut_windows(panel: Panel, series: Tensor, starts: Tensor) -> Windows:
    """The windows of the series with these numbers whose forecasts start at these places."""
    layout = panel.layout
    first = panel.offsets[series] + starts - layout.reach
    places = first[:, None] + torch.arange(layout.reach + layout.horizon, device=starts.device)
    values, observed = panel.values[places], panel.observed[places]
    level, spread = _scales(values, observed, layout)
    inputs = panel.inputs[places[:, layout.reach - layout.context :]]
    # The value that a past covariate has at the start is known one step late, and no later one is.
    inputs[:, layout.context + 1 :, layout.past_columns] = 0.0
    return Windows(
        layout=layout,
        values=values,
        observed=observed,
        exists=panel.exists[places],
        inputs=inputs,
        level=level,
        spread=spread,
    )


def _scales(values: Tensor, observed: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """Level and spread from the values before the start, of those that were observed."""
    stop, lag = layout.reach, layout.base_lag
    past = slice(stop - layout.span, stop)
    lagged = slice(past.start - lag, stop - lag)
    there = observed[:, past]
    level = (values[:, past].abs() * there).sum(1) / there.sum(1).clamp_min(1)
    both = there & observed[:, lagged]
    moves = ((values[:, past] - values[:, lagged]).abs() * both).sum(1)
    # Without a pair a season apart, how far the values lie from their mean.
    spread = torch.where(both.any(1), moves / both.sum(1).clamp_min(1), level)
    spread = torch.maximum(spread, _LEAST_SPREAD * level)
    level = torch.maximum(level, spread)
    nothing = level == 0
    return level.masked_fill(nothing, 1.0), spread.masked_fill(nothing, 1.0)
