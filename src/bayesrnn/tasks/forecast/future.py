"""The future of series: what comes after their last values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from bayesrnn.data.series import Floats, SeriesSet
from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.random import seeded
from bayesrnn.tasks.forecast.conformal import Widening
from bayesrnn.tasks.forecast.data import require_suits
from bayesrnn.tasks.forecast.layout import Layout
from bayesrnn.tasks.forecast.panel import make_panel
from bayesrnn.tasks.forecast.paths import draw_paths
from bayesrnn.tasks.forecast.scores import (
    Forecasts,
    GaussianForecasts,
    PathForecasts,
    seasonal_naive,
)
from bayesrnn.tasks.forecast.unlike import last_novelty
from bayesrnn.tasks.forecast.windows import cut_windows
from bayesrnn.uncertainty.draws import Draws

#: The central share of probability that is taken for the range of what the model does not know.
_IGNORANCE_Z = 1.2815515655446004  # 80%


@dataclass(frozen=True)
class Future:
    """Forecasts of several series from their last values on.

    widening: how intervals are calibrated; None: they are as the forecasts have them.
    paths: [series, paths, horizon]; None where forecasts are given by a formula.
    epistemic_share, ignorance: the share of the variance that is about the model, and the standard
        deviation of that part, [series, horizon]; None where there is one network.
    """

    series: SeriesSet
    horizon: int
    season: int
    forecasts: Forecasts
    non_negative: bool
    widening: Widening | None = None
    paths: Floats | None = None
    epistemic_share: Floats | None = None
    ignorance: Floats | None = None

    @cached_property
    def novelty(self) -> list[tuple[float, str]]:
        """Of each series, how unlike its past its last values are, and by what."""
        return [last_novelty(one.target, self.horizon, self.season) for one in self.series.series]

    def labels(self, number: int) -> list[str]:
        """The dates, or numbers, of the forecasts of a series."""
        one = self.series.series[number]
        return self.series.labels(one, len(one.target), self.horizon)

    def only(self, number: int) -> Future:
        """The forecasts of one series."""
        rows = slice(number, number + 1)
        parts: dict[str, Any] = {
            name: None if (of := getattr(self, name)) is None else of[rows]
            for name in ("paths", "epistemic_share", "ignorance")
        }
        series = replace(self.series, series=self.series.series[rows])
        return replace(self, series=series, forecasts=self.forecasts.rows(rows), **parts)

    @property
    def median(self) -> Floats:
        """[series, horizon]."""
        return self.forecasts.quantile(0.5)

    @property
    def mean(self) -> Floats:
        """[series, horizon]."""
        if self.paths is None:
            return self.median
        mean: Floats = self.paths.mean(1)
        return mean

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """The central interval of so many percent, calibrated where that can be."""
        low, high = self.forecasts.interval(level)
        if self.widening is not None and level in self.widening.shares:
            levels = [of for of in self.widening.shares if of <= level]
            intervals = {of: self.forecasts.interval(of) for of in levels}
            low, high = self.widening.applied(intervals, self.median)[int(level)]
        return (np.maximum(low, 0.0), high) if self.non_negative else (low, high)

    def ignorance_band(self) -> tuple[Floats, Floats] | None:
        """Where the median would move within if the weights were known, with 80%."""
        if self.ignorance is None:
            return None
        reach = _IGNORANCE_Z * self.ignorance
        return self.median - reach, self.median + reach

    def totals(self, number: int, by: str, levels: Sequence[int]) -> list[dict[str, object]]:
        """Sums over whole days or weeks, with the intervals that the paths give."""
        if self.paths is None or self.series.frequency is None:
            raise ConfigError("--sum needs dates and paths; leave it out for these forecasts")
        one = self.series.series[number]
        stamps = self.series.frequency.stamps(one.start, len(one.target), self.horizon)
        days = stamps.astype("datetime64[D]")
        # Weeks begin on Mondays; 1970-01-01 was a Thursday.
        groups = days - (days.astype(np.int64) + 3) % 7 if by == "week" else days
        found: list[dict[str, object]] = []
        for group in np.unique(groups):
            sums = self.paths[number][:, groups == group].sum(1)
            row: dict[str, object] = {
                by: str(group),
                "values": int((groups == group).sum()),
                "median": float(np.median(sums)),
            }
            for level in levels:
                tail = (1 - level / 100) / 2
                row[f"lo-{level}"], row[f"hi-{level}"] = map(
                    float, np.quantile(sums, [tail, 1 - tail])
                )
            found.append(row)
        return found


def forecast_future(
    series: SeriesSet,
    layout: Layout,
    draws: Draws,
    horizon: int,
    paths: int,
    seed: int,
    widening: Widening | None = None,
    advance: Callable[[int], object] = lambda number: None,
    device: torch.device | None = None,
) -> Future:
    """`paths` paths of every draw, from the last value of each series on."""
    require_suits(series, layout)
    layout = replace(layout, horizon=horizon)
    _require_known(series, layout)
    panel = make_panel(series, layout)
    panel = panel if device is None else panel.to(device)
    windows = cut_windows(panel, torch.arange(len(panel), device=device), panel.lengths)
    found = draw_paths(draws, windows, layout.likelihood, paths, seeded(seed), advance)
    several = found.values.shape[1] > 1
    made = found.all.cpu().numpy()
    return Future(
        series=series,
        horizon=horizon,
        season=layout.season,
        forecasts=PathForecasts(made),
        non_negative=layout.non_negative,
        widening=None if widening is None else widening.reaching(horizon),
        paths=made,
        epistemic_share=found.epistemic_share.cpu().numpy() if several else None,
        ignorance=found.ignorance.sqrt().cpu().numpy() if several else None,
    )


def naive_future(series: SeriesSet, horizon: int, season: int) -> Future:
    """Seasonal naive in the same form."""
    pasts = [one.target for one in series.series]
    made: GaussianForecasts = seasonal_naive(pasts, horizon, season)
    non_negative = all(not (past < 0).any() for past in pasts)
    return Future(series, horizon, season, made, non_negative)


def _require_known(series: SeriesSet, layout: Layout) -> None:
    for one in series.series:
        for name in layout.known:
            values = one.known.get(name, np.zeros(0))
            wanted = len(one.target) + layout.horizon
            missing = [
                place
                for place in range(len(one.target), wanted)
                if place >= len(values) or np.isnan(values[place])
            ]
            if missing:
                rows = ", ".join(series.labels(one, missing[0], min(3, len(missing))))
                more = " ..." if len(missing) > 3 else ""
                raise CorpusError(
                    f"{name} is known ahead, but {one.name} lacks {len(missing)} of its next "
                    f"{layout.horizon} values: {rows}{more}; give them with --future FILE, or a "
                    "smaller --horizon"
                )
