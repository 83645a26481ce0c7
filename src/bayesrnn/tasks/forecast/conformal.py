"""Intervals made as wide as they have to be to hold what they say on windows of the past.

Split-conformal (Vovk et al. 2005; Romano et al. 2019), with errors in units of the predicted width,
so that one number widens, or narrows, the intervals of all series.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from bayesrnn.data.series import Floats
from bayesrnn.tasks.forecast.scores import LEVELS, Forecasts, Truths

#: Errors of a step that suffice to calibrate it by itself, and of all steps to calibrate at all.
ENOUGH_BY_STEP: Final = 20
ENOUGH: Final = 10


@dataclass(frozen=True)
class Widening:
    """By level what is added to both ends, in units of the width of the interval: [horizon].

    errors: how many there were for each step, or for all where they are pooled.
    """

    shares: Mapping[int, tuple[float, ...]]
    errors: int
    pooled: bool

    def applied(self, low: Floats, high: Floats, level: int) -> tuple[Floats, Floats]:
        """The interval [..., horizon], wider or narrower; never less than nothing."""
        extra = np.array(self.shares[level])[: low.shape[-1]] * (high - low)
        middle = (low + high) / 2
        return np.minimum(low - extra, middle), np.maximum(high + extra, middle)

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


def fit_widening(
    forecasts: Forecasts, truths: Truths, levels: tuple[int, ...] = LEVELS
) -> Widening | None:
    """The widening that these windows ask for; None where there are too few values.

    The error of a value is how far it lies outside of its interval, negative inside, over the
    interval's width. The ceil((n + 1) level)-th smallest of n errors is what is added.
    """
    there = truths.there
    by_step = there.sum(0)
    if there.sum() < ENOUGH:
        return None
    pooled = bool(by_step.min() < ENOUGH_BY_STEP)
    shares = {}
    for level in levels:
        low, high = forecasts.interval(level)
        outside = np.maximum(low - truths.values, truths.values - high)
        errors = outside / np.maximum(high - low, 1e-300)
        if pooled:
            found = [_needed(errors[there], level)] * there.shape[1]
        else:
            found = [_needed(errors[of, step], level) for step, of in enumerate(there.T)]
        shares[level] = tuple(found)
    return Widening(shares, int(there.sum() if pooled else by_step.min()), pooled)


def _needed(errors: Floats, level: int) -> float:
    rank = min(math.ceil((len(errors) + 1) * level / 100), len(errors))
    return float(np.sort(errors)[rank - 1])
