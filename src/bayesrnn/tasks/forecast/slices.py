"""The parts of series in time: train, valid, calibration and test, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from bayesrnn.errors import CorpusError

#: Parts that windows of `evaluate` can be of, in the order of time.
PARTS: Final = ("valid", "calibration", "test")
#: Of the values of a series, the share that a part takes at most where the user does not say, and
#: the fewest and the most windows that it then has.
_SHARES: Final = {"valid": 0.04, "calibration": 0.06, "test": 0.06}
_FEWEST: Final = {"valid": 2, "calibration": 4, "test": 4}
_MOST: Final = {"valid": 12, "calibration": 20, "test": 20}
#: What all of them take together at most.
_ALL_SHARES: Final = 0.4


class Places(NamedTuple):
    """Where forecasts start: the numbers of series, and places in them, int64 [windows]."""

    series: Tensor
    starts: Tensor

    def spread(self, most: int) -> Places:
        """At most so many of them, evenly over all."""
        count = len(self.series)
        if count <= most:
            return self
        kept = torch.linspace(0, count - 1, most).round().long()
        return Places(self.series[kept], self.starts[kept])


@dataclass(frozen=True)
class Slices:
    """How many windows of `horizon` values each part has at the end of every series.

    lengths: int64 [series]. fewest: the values that there have to be before a forecast.
    """

    lengths: Tensor
    horizon: int
    fewest: int
    windows: dict[str, int]

    @property
    def train_stops(self) -> Tensor:
        """Where the training part of each series ends."""
        return (self.lengths - sum(self.windows.values()) * self.horizon).clamp_min(0)

    def train(self) -> Places:
        """All places in the training part where a forecast can start that ends in it."""
        lasts = self.train_stops - self.horizon
        counts = (lasts - self.fewest + 1).clamp_min(0)
        series = torch.repeat_interleave(torch.arange(len(counts)), counts)
        before = counts.cumsum(0) - counts
        starts = torch.arange(len(series)) - before[series] + self.fewest
        if not len(series):
            raise CorpusError(
                f"no series is long enough: {int(self.lengths.max()):,} values, of which training "
                f"needs at least {self.fewest + self.horizon:,} before the validation, calibration "
                f"and test windows, {sum(self.windows.values())} of {self.horizon} values; give a "
                "smaller --horizon, or fewer --validation-windows, --calibration-windows and "
                "--test-windows"
            )
        return Places(series, starts)

    def of(self, part: str) -> Places:
        """The windows of a part, in the order of series and time; they do not overlap.

        Where a series is too short for a window it has none.
        """
        after = sum(self.windows[later] for later in PARTS[PARTS.index(part) + 1 :])
        return self.before(after, self.windows[part])

    def before(self, after: int, count: int) -> Places:
        """`count` windows of each series, with `after` more behind them."""
        number = torch.arange(count)
        firsts = self.lengths - (after + count) * self.horizon
        starts = firsts[:, None] + number * self.horizon
        series = torch.arange(len(self.lengths))[:, None].expand_as(starts)
        enough = starts >= self.fewest
        return Places(series[enough], starts[enough])

    def back(self, places: Places) -> Tensor:
        """The numbers of windows, counted from 1 for the last one of each series."""
        return (self.lengths[places.series] - places.starts) // self.horizon


def make_slices(lengths: Tensor, horizon: int, fewest: int, given: dict[str, int | None]) -> Slices:
    """The slices; what the user has not said depends on how long series typically are."""
    typical = int(lengths.median())
    windows = {
        part: min(max(int(_SHARES[part] * typical / horizon), _FEWEST[part]), _MOST[part])
        for part in PARTS
    }
    most = min(_ALL_SHARES * typical, typical - fewest - horizon)
    own = [part for part in PARTS if given[part] is None]
    windows.update({part: count for part, count in given.items() if count is not None})
    while sum(windows.values()) * horizon > most:
        # One of each has to stay; calibration alone can be done without.
        able = [part for part in own if windows[part] > (part != "calibration")]
        if not able:
            break
        largest = max(able, key=lambda part: windows[part] + (part == "calibration") / 2)
        windows[largest] -= 1
    return Slices(lengths, horizon, fewest, windows)
