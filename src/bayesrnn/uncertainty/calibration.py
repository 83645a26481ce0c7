"""Calibration: whether answers are right as often as their confidence says."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from bayesrnn.errors import ConfigError
from bayesrnn.uncertainty.checks import per_example

# Probabilities that were averaged or normalised in float32 end up this much above 1.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Reliability:
    """Answers sorted into bins by their confidence; bins without answers are left out.

    confidence: mean confidence of each bin, rising.
    accuracy: share of right answers of each bin.
    count: answers of each bin.
    """

    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]
    count: tuple[int, ...]

    @property
    def error(self) -> float:
        """Expected calibration error: |confidence - accuracy|, averaged over answers."""
        bins = zip(self.confidence, self.accuracy, self.count, strict=True)
        return sum(n * abs(sure - right) for sure, right, n in bins) / sum(self.count)


def reliability(
    confidence: Tensor, correct: Tensor, bins: int = 15, equal_mass: bool = False
) -> Reliability:
    """Sort answers into bins by their confidence (Guo et al. 2017).

    `confidence` [answers] is between 0 and 1, `correct` [answers] says which ones were right. The
    bins have equal width: i is (i / bins, (i + 1) / bins], and 0 belongs to the first. Or, with
    `equal_mass`, they have equal numbers of answers, give or take one (Nguyen & O'Connor 2015).
    """
    if bins < 1:
        raise ConfigError(f"bins is {bins}; it has to be 1 or more")
    confidence, correct = per_example(confidence=confidence, correct=correct)
    low, high = confidence.min().item(), confidence.max().item()
    if low < 0 or high > 1 + ROUNDING:
        raise ConfigError(
            f"confidence goes from {low:g} to {high:g}; give probabilities, between 0 and 1"
        )
    confidence, order = confidence.clamp(max=1).sort()
    correct = correct[order]
    if equal_mass:
        # An edge may cut through answers of equal confidence. Which of them are below it is up to
        # the sorting, so each counts as right as all of them are on average.
        correct = mean_over_ties(confidence, correct)
        bounds = [place * len(correct) // bins for place in range(bins + 1)]
    else:
        edges = torch.arange(1, bins, dtype=torch.double) / bins
        inner = torch.searchsorted(confidence, edges, right=True)
        bounds = [0, *inner.tolist(), len(correct)]
    parts = [slice(low, high) for low, high in pairwise(bounds) if low < high]
    return Reliability(
        confidence=tuple(_mean_of_sorted(confidence[part]) for part in parts),
        accuracy=tuple(correct[part].mean().item() for part in parts),
        count=tuple(part.stop - part.start for part in parts),
    )


def mean_over_ties(keys: Tensor, values: Tensor) -> Tensor:
    """Each value replaced by the mean of the values with the same key; both are [n]."""
    _, group, size = torch.unique(keys, return_inverse=True, return_counts=True)
    sums = torch.zeros(len(size), dtype=values.dtype).index_add(0, group, values)
    means: Tensor = sums / size
    return means[group]


def _mean_of_sorted(values: Tensor) -> float:
    """Their mean; rounding does not take it below the first or above the last of them."""
    return values.mean().clamp(values[0], values[-1]).item()
