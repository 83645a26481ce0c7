"""Values that look broken rather than unusual: stuck, missing, or in another unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Equal values, or missing ones, in a row that are suspicious if the past had none.
_RUN: Final = 4
#: How much longer than the longest of the past a run has to be.
_LONGER: Final = 2.0
#: Factors of a wrong unit or a lost decimal point, and how near a ratio has to be to one, as log10.
_FACTORS: Final = (10.0, 1000.0, 0.1, 0.001)
_NEAR: Final = 0.12
#: How far beyond anything in the past a value has to be to be taken for one in another unit.
_BEYOND: Final = 2.0


@dataclass(frozen=True)
class Broken:
    """A run of values, from place `first` on, that looks broken, and how: `kind` is "constant",
    "gap" or "factor"; `factor` is by what the values would have to be divided."""

    first: int
    count: int
    kind: str
    factor: float = 1.0

    @property
    def words(self) -> str:
        """What is wrong."""
        if self.kind == "factor":
            times = (
                f"{self.factor:,.0f} times" if self.factor > 1 else f"1/{1 / self.factor:,.0f} of"
            )
            return f"about {times} what was expected: another unit?"
        return f"{self.count:,} values {'in a row are equal' * (self.kind == 'constant')}" + (
            "in a row are missing" * (self.kind == "gap")
        )


def broken_runs(values: Floats, past: Floats, expected: Floats | None = None) -> tuple[Broken, ...]:
    """What looks broken in new `values` [time], given all that came before them.

    A run of equal values, or of missing ones, is broken if it has at least 4 and is more than twice
    as long as the longest of the past. A value is in another unit if it is about 10, 1,000, 1/10
    or 1/1,000 of what was `expected`, and far outside of what there ever was. Runs are in the order
    of their first place.
    """
    equal = np.r_[False, values[1:] == values[:-1]]
    found = [
        *_runs(_joined(equal), "constant", _longest(_joined(np.r_[False, past[1:] == past[:-1]]))),
        *_runs(np.isnan(values), "gap", _longest(np.isnan(past))),
    ]
    if expected is not None:
        found += _factors(values, past, expected)
    return tuple(sorted(found, key=lambda run: (run.first, run.kind)))


def broken_mask(runs: tuple[Broken, ...], length: int) -> NDArray[np.bool_]:
    """Which of so many values lie in one of the runs."""
    mask = np.zeros(length, dtype=bool)
    for run in runs:
        mask[run.first : run.first + run.count] = True
    return mask


def _joined(equal: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which values are in a run, given which equal the one before them."""
    joined: NDArray[np.bool_] = equal | np.r_[equal[1:], False]
    return joined


def _lengths(inside: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First places and lengths of the runs of True."""
    edges = np.diff(np.r_[False, inside, False].astype(np.int64))
    firsts = np.flatnonzero(edges == 1)
    return firsts, np.flatnonzero(edges == -1) - firsts


def _longest(inside: NDArray[np.bool_]) -> int:
    return int(_lengths(inside)[1].max(initial=0))


def _runs(inside: NDArray[np.bool_], kind: str, longest: int) -> list[Broken]:
    least = max(_RUN, int(_LONGER * longest) + 1)
    pairs = zip(*_lengths(inside), strict=True)
    return [Broken(int(first), int(count), kind) for first, count in pairs if count >= least]


def _factors(values: Floats, past: Floats, expected: Floats) -> list[Broken]:
    sizes = np.abs(past[~np.isnan(past)])
    sizes = sizes[sizes > 0]
    if not len(sizes):
        return []
    same_sign = (values * expected > 0) & np.isfinite(values) & np.isfinite(expected)
    ratio = np.log10(np.where(same_sign, values / np.where(same_sign, expected, 1), 1))
    found = list[Broken]()
    for factor in _FACTORS:
        outside = (
            np.abs(values) > _BEYOND * sizes.max()
            if factor > 1
            else np.abs(values) < sizes.min() / _BEYOND
        )
        near = same_sign & outside & (np.abs(ratio - np.log10(factor)) < _NEAR)
        pairs = zip(*_lengths(near), strict=True)
        found += [Broken(int(first), int(count), "factor", factor) for first, count in pairs]
    return found
