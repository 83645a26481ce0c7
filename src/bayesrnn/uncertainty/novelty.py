"""How unlike the windows of the past a window of a series is, without any network.

A network that has never seen a situation need not doubt itself there: the share of its uncertainty
that is about the model does not show a shift by itself. This score looks at the data alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bayesrnn.errors import ConfigError

Floats = NDArray[np.float64]

#: What a window is described by.
FEATURES: Final = ("level", "scale", "trend", "seasonal difference")


def window_features(values: Floats, horizon: int, season: int) -> Floats:
    """The features of the windows [..., time] whose last `horizon` values are looked at.

    With w the last values, and b what came a season before each:

        level                mean of w
        scale                mean |w_t - w_(t-1)|
        trend                mean of the second half of w less that of the first
        seasonal difference  mean of w - b

    Missing values are NaN and left out; a feature that cannot be computed is NaN. `values` needs
    a season more than the window has, or the last feature is NaN. [..., features].
    """
    if not 1 <= horizon <= values.shape[-1]:
        raise ConfigError(
            f"a window of {horizon} values cannot be looked at in {values.shape[-1]} values"
        )
    window = values[..., -horizon:]
    before = np.full_like(window, np.nan)
    reach = min(horizon, max(values.shape[-1] - season, 0))
    if season >= 1 and reach:
        end = values.shape[-1] - season
        before[..., horizon - reach :] = values[..., end - reach : end]
    half = horizon // 2
    return np.stack(
        [
            _mean(window),
            _mean(np.abs(np.diff(window))),
            _mean(window[..., horizon - half :]) - _mean(window[..., :half]),
            _mean(window - before),
        ],
        axis=-1,
    )


@dataclass(frozen=True)
class Novelty:
    """What the features of the past windows were, to rank others among them: [windows, features].

    The rank of a feature is two-sided: 1 - 2 min(share of windows at or below it, share at or above
    it), at least 0, so 0 is the median; outside of all it is 1 plus the distance from them in units
    of their range. A window's score is the largest of its ranks, and its novelty the share of past
    windows whose own score, each among the others, is smaller. So of windows like those of the
    past, one in twenty has a novelty above 0.95.
    """

    features: Floats

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or len(self.features) < 2:
            raise ConfigError(
                f"novelty needs the features of at least two windows, [windows, features], not "
                f"{list(self.features.shape)}"
            )

    def ranks(self, features: Floats) -> Floats:
        """The two-sided rank of each feature; 0 where it, or all of the past's, is NaN."""
        return np.stack(
            [_ranks(past, new) for past, new in zip(self.features.T, features.T, strict=True)], -1
        )

    def scores(self, features: Floats) -> Floats:
        """The largest rank of each window: [windows]."""
        return np.asarray(self.ranks(features).max(-1), dtype=np.float64)

    def novelty(self, features: Floats) -> Floats:
        """The share of past windows that are less unusual: [windows]."""
        own = np.sort(self._own_scores())
        below: Floats = np.searchsorted(own, self.scores(features), side="left") / len(own)
        return below

    def words(self, features: Floats, unit: str) -> list[str]:
        """By what each window stands out, such as "the level is beyond 51 of 52 weeks"."""
        ranks = self.ranks(features)
        found = list[str]()
        for row, values in zip(ranks, features, strict=True):
            at = int(row.argmax())
            past = self.features[:, at]
            past = past[~np.isnan(past)]
            beyond = max(int((past < values[at]).sum()), int((past > values[at]).sum()))
            name = FEATURES[at] if at < len(FEATURES) else f"feature {at}"
            found.append(f"the {name} is beyond that of {beyond:,} of {len(past):,} {unit}")
        return found

    def _own_scores(self) -> Floats:
        """The score of each past window among the others."""
        ranks = np.stack([_ranks(past, past, own=True) for past in self.features.T], -1)
        return np.asarray(ranks.max(-1), dtype=np.float64)


def _ranks(past: Floats, new: Floats, own: bool = False) -> Floats:
    """Two-sided ranks among `past`; `own` says that each of `new` is one of them, not to count."""
    ordered = np.sort(past[~np.isnan(past)])
    count = len(ordered) - int(own)
    if count < 1:
        return np.zeros(len(new))
    at_or_below = np.searchsorted(ordered, new, side="right") - int(own)
    at_or_above = len(ordered) - np.searchsorted(ordered, new, side="left") - int(own)
    rank = np.maximum(1 - 2 * np.minimum(at_or_below, at_or_above) / count, 0.0)
    # Of the past's own, the extreme ones lie outside of all but themselves.
    highest = np.where(own & (new == ordered[-1]), ordered[-1 - int(own)], ordered[-1])
    lowest = np.where(own & (new == ordered[0]), ordered[int(own)], ordered[0])
    beyond = np.maximum(np.maximum(new - highest, lowest - new), 0.0)
    reach = ordered[-1] - ordered[0]
    return np.where(np.isnan(new), 0.0, rank + beyond / (reach if reach > 0 else 1.0))


def _mean(values: Floats) -> Floats:
    """The mean over time of what is there; NaN where nothing is."""
    there = ~np.isnan(values)
    count = there.sum(-1)
    total = np.where(there, values, 0.0).sum(-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
