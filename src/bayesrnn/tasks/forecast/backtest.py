"""Forecasts of windows whose values are known, beside those of no model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from bayesrnn.data.series import Floats
from bayesrnn.tasks.forecast.conformal import Widening, fit_widening
from bayesrnn.tasks.forecast.data import ForecastData
from bayesrnn.tasks.forecast.paths import Paths, draw_paths
from bayesrnn.tasks.forecast.scores import (
    LEVELS,
    PathForecasts,
    Scores,
    Truths,
    naive_scales,
    score,
    seasonal_naive,
)
from bayesrnn.tasks.forecast.slices import Places
from bayesrnn.uncertainty.draws import Draws

Advance = Callable[[int], object]

#: Windows that intervals are calibrated on, at most.
CALIBRATED_WINDOWS: Final = 400


@dataclass(frozen=True)
class Known:
    """Windows of series, what lies before each, and what came."""

    places: Places
    pasts: list[Floats]
    truths: Truths

    def __len__(self) -> int:
        return len(self.pasts)


def known_windows(data: ForecastData, places: Places) -> Known:
    """The pasts and the truths of windows; scales are those of the season."""
    horizon, season = data.layout.horizon, data.layout.season
    pasts, values = [], []
    for number, start in zip(places.series.tolist(), places.starts.tolist(), strict=True):
        target = data.series.series[number].target
        pasts.append(target[:start])
        came = target[start : start + horizon]
        values.append(np.pad(came, (0, horizon - len(came)), constant_values=np.nan))
    made = np.array(values).reshape(len(pasts), horizon)
    return Known(places, pasts, Truths(made, naive_scales(pasts, season)))


def paths_of(
    data: ForecastData,
    places: Places,
    draws: Draws,
    paths: int,
    generator: torch.Generator,
    advance: Advance = lambda number: None,
) -> Paths:
    """Paths of all draws from the start of each window."""
    return draw_paths(
        draws, data.windows(places), data.layout.likelihood, paths, generator, advance
    )


@dataclass(frozen=True)
class Backtest:
    """The scores of a network, raw and calibrated, and of forecasts without one."""

    network: Scores
    calibrated: Scores | None
    widening: Widening | None
    seasonal: Scores
    last: Scores
    epistemic_share: float


@dataclass(frozen=True)
class Tested:
    """Forecasts of windows whose values are known.

    bounds: calibrated intervals by level, if there are any. shares: epistemic ones.
    """

    known: Known
    forecasts: PathForecasts
    bounds: dict[int, tuple[Floats, Floats]] | None
    shares: Floats


def backtest(
    data: ForecastData,
    known: Known,
    draws: Draws,
    paths: int,
    generator: torch.Generator,
    widening: Widening | None = None,
    advance: Advance = lambda number: None,
) -> Backtest:
    """Rolling origins without training anew: each window is forecast from what lies before it.

    paths: of each draw.
    """
    tested = known_forecasts(data, known, draws, paths, generator, widening, advance)
    return scored([tested], data.layout.season, widening)


def known_forecasts(
    data: ForecastData,
    known: Known,
    draws: Draws,
    paths: int,
    generator: torch.Generator,
    widening: Widening | None = None,
    advance: Advance = lambda number: None,
) -> Tested:
    """The forecasts of a backtest, before they are scored."""
    made = paths_of(data, known.places, draws, paths, generator, advance)
    forecasts = PathForecasts(made.all.cpu().numpy())
    bounds = None
    if widening is not None:
        bounds = {n: widened(widening, *forecasts.interval(n), n, data) for n in LEVELS}
    return Tested(known, forecasts, bounds, made.epistemic_share.cpu().numpy())


def scored(parts: Sequence[Tested], season: int, widening: Widening | None = None) -> Backtest:
    """The scores of all windows together; calibrated where those of every part are."""
    forecasts = PathForecasts(np.concatenate([part.forecasts.paths for part in parts]))
    known = _together([part.known for part in parts])
    horizon = known.truths.values.shape[1]
    all_bounds = [part.bounds for part in parts if part.bounds is not None]
    calibrated = None
    if len(all_bounds) == len(parts):
        bounds = {
            level: (
                np.concatenate([bounds[level][0] for bounds in all_bounds]),
                np.concatenate([bounds[level][1] for bounds in all_bounds]),
            )
            for level in LEVELS
        }
        calibrated = score(forecasts, known.truths, bounds)
    return Backtest(
        network=score(forecasts, known.truths),
        calibrated=calibrated,
        widening=widening,
        seasonal=naive_scores(known, horizon, season),
        last=naive_scores(known, horizon, 1),
        epistemic_share=float(np.concatenate([part.shares for part in parts]).mean()),
    )


def _together(parts: Sequence[Known]) -> Known:
    places = Places(*(torch.cat(of) for of in zip(*(part.places for part in parts), strict=True)))
    values, scales = (
        np.concatenate([getattr(part.truths, name) for part in parts])
        for name in ("values", "scales")
    )
    return Known(places, [past for part in parts for past in part.pasts], Truths(values, scales))


def widened(
    widening: Widening, low: Floats, high: Floats, level: int, data: ForecastData
) -> tuple[Floats, Floats]:
    """The calibrated interval, which holds nothing below 0 where the series cannot be there."""
    low, high = widening.applied(low, high, level)
    return (np.maximum(low, 0.0), high) if data.layout.non_negative else (low, high)


def naive_scores(known: Known, horizon: int, season: int) -> Scores:
    """The scores of seasonal naive; of the last value with a season of 1."""
    return score(seasonal_naive(known.pasts, horizon, season), known.truths)


def calibration_of(
    data: ForecastData,
    draws: Draws,
    paths: int,
    generator: torch.Generator,
    advance: Advance = lambda number: None,
    levels: Iterable[int] = (),
) -> Widening | None:
    """What the calibration windows ask for, at further `levels` too; None: they are too few."""
    places = data.slices.of("calibration").spread(CALIBRATED_WINDOWS)
    if not len(places.series):
        return None
    known = known_windows(data, places)
    made = paths_of(data, places, draws, paths, generator, advance)
    wanted = tuple(dict.fromkeys((*LEVELS, *levels)))
    return fit_widening(PathForecasts(made.all.cpu().numpy()), known.truths, wanted)
