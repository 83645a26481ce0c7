"""Forecasts of windows whose values are known, beside those of no model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from bayesrnn.data.series import Floats, SeriesSet
from bayesrnn.tasks.forecast.conformal import Calibration, Intervals, Widening, errors_of
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

    series: SeriesSet
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
    return Known(data.series, places, pasts, Truths(made, naive_scales(pasts, season)))


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
class Tested:
    """Forecasts of windows whose values are known.

    bounds: calibrated intervals by level, if there are any. calibration: with these windows.
    shares: epistemic ones.
    """

    known: Known
    forecasts: PathForecasts
    bounds: Intervals | None
    calibration: Calibration | None
    shares: Floats


@dataclass(frozen=True)
class Backtest:
    """The scores of a network, raw and calibrated, and of forecasts without one.

    widening: what the last windows ask for of intervals of the future. windows: themselves; where
        networks were trained anew, those of the last one.
    """

    network: Scores
    calibrated: Scores | None
    widening: Widening | None
    seasonal: Scores
    last: Scores
    epistemic_share: float
    windows: Tested


def backtest(
    data: ForecastData,
    known: Known,
    draws: Draws,
    paths: int,
    generator: torch.Generator,
    calibration: Calibration | None = None,
    advance: Advance = lambda number: None,
) -> Backtest:
    """Rolling origins without training anew: each window is forecast from what lies before it.

    paths: of each draw.
    """
    tested = known_forecasts(data, known, draws, paths, generator, calibration, advance)
    return scored([tested], data.layout.season)


def known_forecasts(
    data: ForecastData,
    known: Known,
    draws: Draws,
    paths: int,
    generator: torch.Generator,
    calibration: Calibration | None = None,
    advance: Advance = lambda number: None,
) -> Tested:
    """The forecasts of a backtest, before they are scored."""
    made = paths_of(data, known.places, draws, paths, generator, advance)
    forecasts = PathForecasts(made.all.cpu().numpy())
    bounds = None
    if calibration is not None:
        back = data.slices.back(known.places).numpy()
        errors = errors_of(forecasts, known.truths, tuple(calibration.errors))
        calibration = calibration.and_later(back, errors)
        bounds = calibrated_bounds(calibration, forecasts, back, data)
    return Tested(known, forecasts, bounds, calibration, made.epistemic_share.cpu().numpy())


def scored(parts: Sequence[Tested], season: int) -> Backtest:
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
        widening=None if (last := parts[-1].calibration) is None else last.before(0),
        seasonal=naive_scores(known, horizon, season),
        last=naive_scores(known, horizon, 1),
        epistemic_share=float(np.concatenate([part.shares for part in parts]).mean()),
        windows=parts[-1],
    )


def _together(parts: Sequence[Known]) -> Known:
    places = Places(*(torch.cat(of) for of in zip(*(part.places for part in parts), strict=True)))
    values, scales = (
        np.concatenate([getattr(part.truths, name) for part in parts])
        for name in ("values", "scales")
    )
    pasts = [past for part in parts for past in part.pasts]
    return Known(parts[-1].series, places, pasts, Truths(values, scales))


def calibrated_bounds(
    calibration: Calibration, forecasts: PathForecasts, back: NDArray[np.int64], data: ForecastData
) -> Intervals | None:
    """The intervals of windows, each calibrated by those before it; None where these are too few.

    They hold nothing below 0 where the series cannot be there. back: the windows' numbers.
    """
    raw, median = {level: forecasts.interval(level) for level in LEVELS}, forecasts.quantile(0.5)
    bounds = {level: (np.empty_like(median), np.empty_like(median)) for level in LEVELS}
    for number in np.unique(back):
        widening = calibration.before(int(number))
        if widening is None:
            return None
        rows = back == number
        of_rows = {level: (low[rows], high[rows]) for level, (low, high) in raw.items()}
        for level, (low, high) in widening.applied(of_rows, median[rows]).items():
            bounds[level][0][rows] = np.maximum(low, 0.0) if data.layout.non_negative else low
            bounds[level][1][rows] = high
    return bounds


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
    windows: Places | None = None,
) -> Calibration | None:
    """How the calibration windows went, at further `levels` too; None: there are none.

    windows: test windows that are to be calibrated, if they are not all: as many windows lie just
    before the first of them, and calibrate in place of the calibration windows.
    """
    places = calibrating(data, windows)
    if not len(places.series):
        return None
    known = known_windows(data, places)
    made = paths_of(data, places, draws, paths, generator, advance)
    wanted = tuple(dict.fromkeys((*LEVELS, *levels)))
    errors = errors_of(PathForecasts(made.all.cpu().numpy()), known.truths, wanted)
    count = data.slices.windows["calibration"]
    return Calibration(data.slices.back(places).numpy(), errors, count)


def calibrating(data: ForecastData, windows: Places | None = None) -> Places:
    """The windows that `calibration_of` forecasts."""
    after = data.slices.windows["test"]
    if windows is not None and len(windows.series):
        after = min(after, int(data.slices.back(windows).max()))
    count = data.slices.windows["calibration"]
    return data.slices.before(after, count).spread(CALIBRATED_WINDOWS)
