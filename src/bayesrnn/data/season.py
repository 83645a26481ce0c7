"""The season of series: the one of those usual for their frequency that repeats best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from bayesrnn.data.series import SECONDS, Floats, Frequency, Places, Series

#: Seasons that are looked for where there are no dates.
_WITHOUT_DATES: Final = (4, 7, 12, 24, 48, 52, 168)
#: How much less the error of a season without dates has to be than that of the steps within it.
_CLEARLY: Final = 0.8
#: The share of each series, its beginning, that the season is chosen by.
TRAINING_SHARE: Final = 0.8
_LONGEST: Final = 20_000


def usual_seasons(frequency: Frequency | None) -> tuple[int, ...]:
    """The values after which series of a frequency usually repeat, the shortest first."""
    if frequency is None:
        return _WITHOUT_DATES
    whole = {"week": 52, "month": 12, "quarter": 4}.get(frequency.unit)
    if whole is not None:
        return (whole // frequency.step,) if whole % frequency.step == 0 < whole // 2 else ()
    if frequency.unit == "business-day":
        return (len(frequency.open_phases),) if frequency.step == 1 else ()
    if not frequency.phases:
        return ()
    opened = frequency.open_phases
    a_day, seasons = SECONDS["day"] // frequency.seconds, {len(opened)}
    if a_day > 1 and SECONDS["day"] % frequency.seconds == 0:
        days = np.bincount(opened // a_day)
        seasons.add(int(days.max()) if len(set(days[days > 0])) == 1 else 1)
    for cycle, least in ((SECONDS["hour"], 6), (SECONDS["minute"], 6)):
        values, rest = divmod(cycle, frequency.seconds)
        if rest == 0 and values >= least and not frequency.closed:
            seasons.add(values)
    return tuple(sorted(season for season in seasons if 1 < season <= _LONGEST))


def seasonal_errors(
    series: Sequence[Series], seasons: Sequence[int], share: float = TRAINING_SHARE
) -> Floats:
    """How far values are from those one season before: mean over series of MAE / mean |y|.

    Of each series the first `share` counts, the same values for every season, but for seasons that
    are longer than half of all series, which have infinity.
    """
    lengths = np.array([int(len(one.target) * share) for one in series])
    fitting = [season for season in seasons if (lengths >= 2 * season).any()]
    errors = np.full(len(seasons), np.inf)
    if not fitting:
        return errors
    kept: Places = np.flatnonzero(lengths >= 2 * max(fitting))
    values = np.concatenate([series[at].target[: lengths[at]] for at in kept.tolist()])
    starts = np.r_[0, np.cumsum(lengths[kept])[:-1]]
    age = np.arange(len(values)) - np.repeat(starts, lengths[kept])
    counted = np.flatnonzero(age >= max(fitting))
    owner: Places = np.repeat(np.arange(len(kept)), lengths[kept])[counted]
    size = _means(np.abs(values[counted]), owner, len(kept))
    for place, season in enumerate(seasons):
        if season in fitting:
            apart = _means(np.abs(values[counted] - values[counted - season]), owner, len(kept))
            ratio = apart[size > 0] / size[size > 0]
            errors[place] = np.nanmean(ratio) if np.isfinite(ratio).any() else np.inf
    return errors


def best_season(
    series: Sequence[Series], frequency: Frequency | None, share: float = TRAINING_SHARE
) -> tuple[int, Floats]:
    """The candidate with the least error, and the errors of `usual_seasons`.

    1 if there is no candidate that fits. Without dates a season has to show itself: values have to
    be much closer to those one season before than, on average, to those up to a season before.
    """
    seasons = usual_seasons(frequency)
    errors = seasonal_errors(series, seasons, share)
    if not len(seasons) or not np.isfinite(errors).any():
        return 1, errors
    best = seasons[int(np.argmin(errors))]
    if frequency is None:
        within = np.unique(np.linspace(1, best, 9)[:-1].astype(int)).tolist()
        apart = seasonal_errors(series, (*within, best), share)
        best = best if apart[-1] < _CLEARLY * apart[:-1].mean() else 1
    return best, errors


def _means(values: Floats, owner: Places, count: int) -> Floats:
    """The mean of the values of each owner, NaN left out; NaN where there is none."""
    there = ~np.isnan(values)
    total = np.bincount(owner[there], weights=values[there], minlength=count)
    number = np.bincount(owner[there], minlength=count)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)
