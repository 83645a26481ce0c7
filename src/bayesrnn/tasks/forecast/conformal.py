"""Intervals made as wide as they have to be to hold what they say on windows of the past.

Split-conformal (Vovk et al. 2005; Romano et al. 2019), with errors in units of the predicted width,
so that one number widens, or narrows, the intervals of all series. What it promises is of windows
that could change places, and weeks of one season cannot with those of another: each forecast is
calibrated on the windows just before it, which go along with it (Xu and Xie 2021), at a level that
is higher as long as intervals hold too little, and lower where too much (Gibbs and Candes 2021).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bayesrnn.data.series import Floats
from bayesrnn.tasks.forecast.scores import LEVELS, Forecasts, Truths

#: Errors of a step that suffice to calibrate it by itself, and of all steps to calibrate at all.
ENOUGH_BY_STEP: Final = 20
ENOUGH: Final = 10
#: How far a window that holds everything, or nothing, moves the level of the next one.
_RATE: Final = 0.2

#: By level both ends, [..., horizon].
Intervals = dict[int, tuple[Floats, Floats]]


@dataclass(frozen=True)
class Widening:
    """By level what is added to both ends, in units of the width of the interval: [horizon].

    errors: how many there were for each step, or for all where they are pooled.
    """

    shares: Mapping[int, tuple[float, ...]]
    errors: int
    pooled: bool

    def applied(self, intervals: Intervals, median: Floats) -> Intervals:
        """The intervals, wider or narrower; each has the median, and those of smaller levels."""
        low = high = median
        made = {}
        for level in sorted(intervals):
            first, last = intervals[level]
            extra = np.array(self.shares[level])[: median.shape[-1]] * (last - first)
            low, high = np.minimum(first - extra, low), np.maximum(last + extra, high)
            made[level] = (low, high)
        return made

    def reaching(self, horizon: int) -> Widening:
        """For as many steps; those that no window had are widened as the last one was."""
        shares = {
            level: (*of[:horizon], *(of[-1],) * (horizon - len(of)))
            for level, of in self.shares.items()
        }
        return Widening(shares, self.errors, self.pooled)

    def as_json(self) -> dict[str, Any]:
        """The values for a JSON file."""
        shares = {str(level): list(of) for level, of in self.shares.items()}
        return {"shares": shares, "errors": self.errors, "pooled": self.pooled}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Widening:
        """What `as_json` gave."""
        shares = {int(level): tuple(map(float, of)) for level, of in values["shares"].items()}
        return cls(shares, int(values["errors"]), bool(values["pooled"]))


#: By level how far each value lies outside of its interval, negative inside, over the interval's
#: width: [windows, horizon], NaN where there is no value.
Errors = Mapping[int, Floats]


def errors_of(forecasts: Forecasts, truths: Truths, levels: tuple[int, ...] = LEVELS) -> Errors:
    """The errors of forecasts."""
    found = {}
    for level in levels:
        low, high = forecasts.interval(level)
        outside = np.maximum(low - truths.values, truths.values - high)
        found[level] = outside / np.maximum(high - low, 1e-300)
    return found


def widening_of(errors: Errors, asked: Mapping[int, float] | None = None) -> Widening | None:
    """The widening that these errors ask for; None where there are too few.

    The ceil((n + 1) level)-th smallest of n errors is what is added. asked: by level, the share
    that is to be held in its place.
    """
    there = ~np.isnan(next(iter(errors.values())))
    by_step = there.sum(0)
    if there.sum() < ENOUGH:
        return None
    pooled = bool(by_step.min() < ENOUGH_BY_STEP)
    shares = {}
    for level, of_level in errors.items():
        share = level / 100 if asked is None else asked[level]
        if pooled:
            found = [_needed(of_level[there], share)] * there.shape[1]
        else:
            found = [_needed(of_level[of, step], share) for step, of in enumerate(there.T)]
        shares[level] = tuple(found)
    return Widening(shares, int(there.sum() if pooled else by_step.min()), pooled)


@dataclass(frozen=True)
class Calibration:
    """How forecasts of past windows went, none of which the network was trained on.

    back: of each window its number, counted from 1 for the last one of its series. errors: theirs.
    count: how many windows one after the other calibrate a forecast.
    """

    back: NDArray[np.int64]
    errors: Errors
    count: int

    def and_later(self, back: NDArray[np.int64], errors: Errors) -> Calibration:
        """With those of the windows, whose numbers are given, that are later than all of these."""
        later = back < self.back.min()
        return Calibration(
            np.concatenate([self.back, back[later]]),
            {
                level: np.concatenate([of, errors[level][later]])
                for level, of in self.errors.items()
            },
            self.count,
        )

    def before(self, back: int) -> Widening | None:
        """What the last windows before the one with this number ask for; 0: before the future.

        Where fewer are known before it, the earliest ones.
        """
        return self._course[min(self._course, key=lambda of: (of > back, abs(of - back)))]

    @cached_property
    def _course(self) -> dict[int, Widening | None]:
        """The widening of each window with enough of them before it, and of the future, 0."""
        numbers = np.unique(self.back)[::-1]
        asked = {level: level / 100 for level in self.errors}
        found: dict[int, Widening | None] = {}
        for place in range(min(self.count, len(numbers)), len(numbers) + 1):
            past = np.isin(self.back, numbers[max(place - self.count, 0) : place])
            widening = widening_of({level: of[past] for level, of in self.errors.items()}, asked)
            number = int(numbers[place]) if place < len(numbers) else 0
            found[number] = widening
            if widening is None or not number:
                continue
            for level, of in self.errors.items():
                errors = of[self.back == number]
                there = ~np.isnan(errors)
                if there.any():
                    held = (errors <= np.array(widening.shares[level]))[there].mean()
                    asked[level] += _RATE * (level / 100 - float(held))
        return found


def _needed(errors: Floats, share: float) -> float:
    # Not quite a whole number may be what rounding has made of one.
    rank = math.ceil((len(errors) + 1) * share - 1e-9)
    return float(np.sort(errors)[min(max(rank, 1), len(errors)) - 1])
