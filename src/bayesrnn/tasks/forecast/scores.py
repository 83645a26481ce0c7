"""How good forecasts of windows are, and the forecasts of no model beside them.

Definitions, over the windows w and steps h whose truth y is known:

    MASE   mean over windows of mean |y - median| / scale, with scale the mean |y_t - y_(t-m)| of
           the window's past (m: the season)
    WQL    mean over the quantiles q = 0.1, ..., 0.9 of 2 sum of pinball losses / sum |y|
    CRPS   mean of E|X - y| - E|X - X'| / 2 in units of the scale, X the forecast
    sMAPE  mean of 200 |y - median| / (|y| + |median|)
    MSIS   mean of (width + 2 / 0.05 * miss) / scale of the 95% interval
    ND     sum |y - median| / sum |y|
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bayesrnn.data.series import Floats
from bayesrnn.uncertainty.crps import crps_of_normal, crps_of_samples

#: The shares of probability of the intervals that are scored.
LEVELS: Final = (80, 95)
_QUANTILES: Final = tuple(tenth / 10 for tenth in range(1, 10))
_MSIS_LEVEL: Final = 95


class Forecasts(ABC):
    """The distribution of each value of several windows."""

    @abstractmethod
    def quantile(self, share: float) -> Floats:
        """[windows, horizon]."""

    @abstractmethod
    def crps(self, truths: Floats) -> Floats:
        """E|X - y| - E|X - X'| / 2: [windows, horizon]."""

    @abstractmethod
    def rows(self, rows: slice) -> Forecasts:
        """Those of some windows."""

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """The central interval that has this many percent of the probability."""
        tail = (1 - level / 100) / 2
        return self.quantile(tail), self.quantile(1 - tail)


@dataclass(frozen=True)
class PathForecasts(Forecasts):
    """Given by paths [windows, paths, horizon]."""

    paths: Floats

    def rows(self, rows: slice) -> PathForecasts:
        """Their paths."""
        return PathForecasts(self.paths[rows])

    def quantile(self, share: float) -> Floats:
        """Of the paths, as numpy interpolates."""
        found: Floats = np.asarray(np.quantile(self.paths, share, axis=1), dtype=np.float64)
        return found

    def crps(self, truths: Floats) -> Floats:
        """Without bias, however few the paths."""
        return crps_of_samples(np.moveaxis(self.paths, 1, 0), truths)


@dataclass(frozen=True)
class GaussianForecasts(Forecasts):
    """Given by mean and standard deviation, [windows, horizon] each."""

    mean: Floats
    sd: Floats

    def rows(self, rows: slice) -> GaussianForecasts:
        """Their means and standard deviations."""
        return GaussianForecasts(self.mean[rows], self.sd[rows])

    def quantile(self, share: float) -> Floats:
        """mean + z sd."""
        z: float = NormalDist().inv_cdf(share)
        return self.mean + z * self.sd

    def crps(self, truths: Floats) -> Floats:
        """Exact."""
        return crps_of_normal(self.mean, self.sd, truths)


@dataclass(frozen=True)
class Truths:
    """What came: values [windows, horizon], NaN where there is none; the scale of each window."""

    values: Floats
    scales: Floats

    @property
    def there(self) -> NDArray[np.bool_]:
        """Where there is a value."""
        return ~np.isnan(self.values)


@dataclass(frozen=True)
class Cells:
    """What is said of each value of each window, [windows, horizon]; NaN where there is no value,
    and where a window has no scale.

    error, msis, crps: in units of the scale. pinball: 2 x the mean loss over the quantiles, whose
    sum over that of `size`, which is |y|, is the WQL. held, width: by level, whether the interval
    has the value, and how wide it is, in units of the scale.
    """

    error: Floats
    pinball: Floats
    size: Floats
    msis: Floats
    crps: Floats
    held: Mapping[int, Floats]
    width: Mapping[int, Floats]

    def by_window(self) -> dict[str, Floats]:
        """What runs are compared by: the means of each window, and sums where a metric is one over
        another."""
        return {
            "mase": known_mean(self.error, 1),
            "msis": known_mean(self.msis, 1),
            "pinball": np.nansum(self.pinball, 1),
            "size": np.nansum(self.size, 1),
            "held_80": np.nansum(self.held[80], 1),
            "values": (~np.isnan(self.size)).sum(1).astype(np.float64),
        }


@dataclass(frozen=True)
class Scores:
    """The metrics, see above; by level the share of values in the interval and its mean width in
    units of the scale. `by_window` is that of `Cells`."""

    mase: float
    wql: float
    crps: float
    smape: float
    msis: float
    nd: float
    coverage: Mapping[str, float]
    width: Mapping[str, float]
    mase_by_step: tuple[float, ...]
    coverage_by_step: Mapping[str, tuple[float, ...]]
    windows: int
    values: int
    by_window: Mapping[str, Floats] = field(repr=False, compare=False)

    @property
    def mase_by_window(self) -> Floats:
        """NaN where a window has no value or no scale."""
        return self.by_window["mase"]

    def as_json(self) -> dict[str, object]:
        """Numbers by name, without those of single windows."""
        found = {name: value for name, value in vars(self).items() if name != "by_window"}
        return {name: without_nan(value) for name, value in found.items()}


def without_nan(value: Any) -> Any:
    """The value for a JSON file, which knows no NaN: None in its place."""
    if isinstance(value, Mapping):
        return {name: without_nan(of) for name, of in value.items()}
    if isinstance(value, tuple | list):
        return tuple(without_nan(of) for of in value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def cells_of(
    forecasts: Forecasts,
    truths: Truths,
    intervals: Mapping[int, tuple[Floats, Floats]] | None = None,
) -> Cells:
    """What is said of each value; `intervals` by level are used in place of the forecasts' own."""
    y, there = np.nan_to_num(truths.values), truths.there
    scales = np.where(truths.scales > 0, truths.scales, np.nan)[:, None]
    bounds = intervals or {level: forecasts.interval(level) for level in LEVELS}

    def known(values: Floats | NDArray[np.bool_]) -> Floats:
        return np.where(there, values, np.nan)

    low, high = bounds[_MSIS_LEVEL]
    missed = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    losses = [_pinball(y, forecasts.quantile(q), q) for q in _QUANTILES]
    return Cells(
        error=known(np.abs(y - forecasts.quantile(0.5)) / scales),
        pinball=known(2 * np.mean(losses, axis=0)),
        size=known(np.abs(y)),
        msis=known((high - low + 2 / (1 - _MSIS_LEVEL / 100) * missed) / scales),
        crps=known(forecasts.crps(y) / scales),
        held={n: known((y >= low) & (y <= high)) for n, (low, high) in bounds.items()},
        width={n: known((high - low) / scales) for n, (low, high) in bounds.items()},
    )


def score(
    forecasts: Forecasts,
    truths: Truths,
    intervals: Mapping[int, tuple[Floats, Floats]] | None = None,
) -> Scores:
    """The metrics of forecasts; `intervals` by level are used in place of their own."""
    y, there = np.nan_to_num(truths.values), truths.there
    cells = cells_of(forecasts, truths, intervals)
    median = forecasts.quantile(0.5)
    # Without a value other than 0 there is nothing that errors could be a share of.
    size = float(np.abs(y).sum()) or math.nan
    error = np.abs(y - median)
    sizes = np.abs(y) + np.abs(median)
    by_window = cells.by_window()
    return Scores(
        mase=_mean_of(by_window["mase"]),
        wql=float(by_window["pinball"].sum()) / size,
        crps=_mean_of(cells.crps),
        smape=_mean_of((200 * error / np.maximum(sizes, 1e-300))[there]),
        msis=_mean_of(cells.msis),
        nd=float(error[there].sum()) / size,
        coverage={str(level): _mean_of(of) for level, of in cells.held.items()},
        width={str(level): _mean_of(of) for level, of in cells.width.items()},
        mase_by_step=tuple(known_mean(cells.error, 0).tolist()),
        coverage_by_step={
            str(level): tuple(known_mean(of, 0).tolist()) for level, of in cells.held.items()
        },
        windows=len(y),
        values=int(there.sum()),
        by_window=by_window,
    )


def seasonal_naive(pasts: Sequence[Floats], horizon: int, season: int) -> GaussianForecasts:
    """The value a season before, with the RMS of seasonal differences, times the root of the
    number of seasons ahead, for a standard deviation.

    pasts: of each window what lies before it; NaN where there is no value.
    """
    steps = np.arange(horizon)
    means, sds = [], []
    for past in pasts:
        known = _last_season(past, season)
        means.append(known[steps % season])
        moves = past[season:] - past[:-season]
        moves = moves[~np.isnan(moves)]
        rms = math.sqrt(float(np.square(moves).mean())) if len(moves) else float(np.nanstd(past))
        sds.append(rms * np.sqrt(steps // season + 1))
    return GaussianForecasts(np.array(means), np.array(sds))


def naive_scales(pasts: Sequence[Floats], season: int) -> Floats:
    """The mean absolute seasonal difference of each past; 0 where there is none."""
    return np.array([_mean_move(past, season) for past in pasts])


def _last_season(past: Floats, season: int) -> Floats:
    """The last season; a missing value is that of the season before it, and so on."""
    known = np.full(season, np.nan)
    for back in range(1, len(past) // season + 1):
        stop = len(past) - (back - 1) * season
        known = np.where(np.isnan(known), past[stop - season : stop], known)
        if not np.isnan(known).any():
            break
    fallback = past[~np.isnan(past)]
    return np.where(np.isnan(known), fallback[-1] if len(fallback) else 0.0, known)


def _mean_move(past: Floats, season: int) -> float:
    moves = np.abs(past[season:] - past[:-season])
    moves = moves[~np.isnan(moves)]
    return float(moves.mean()) if len(moves) else 0.0


def _pinball(y: Floats, forecast: Floats, share: float) -> Floats:
    found: Floats = np.maximum(share * (y - forecast), (share - 1) * (y - forecast))
    return found


def known_mean(values: Floats, axis: int) -> Floats:
    """The mean of what is not NaN; NaN where nothing is."""
    there = ~np.isnan(values)
    counts = there.sum(axis)
    sums = np.where(there, values, 0.0).sum(axis)
    found: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return found


def _mean_of(values: Floats) -> float:
    return float(known_mean(values.reshape(-1), 0))
