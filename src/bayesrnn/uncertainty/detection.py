"""Detection of shifted data by a score: AUROC, AUPR and FPR95 with bootstrap intervals."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesrnn.errors import ConfigError
from bayesrnn.uncertainty.bootstrap import Interval, counts, intervals, resampled
from bayesrnn.uncertainty.checks import per_example

# Numbers in a slice of resamples that is worked on at a time: small enough for the cache.
SLICE = 2**15


@dataclass(frozen=True)
class Detection:
    """How well a score detects `shifted` (the positives: higher scores expected) among `regular`.

    auroc: chance that a shifted window scores higher than a regular one; a tie counts half.
    aupr: average precision, sum_k (R_k - R_{k-1}) P_k over thresholds with recall R, precision P.
        Guessing gives the share of shifted windows.
    fpr95: share of regular windows taken for shifted at the highest threshold that finds at least
        95% of the shifted ones; less is better.
    windows: number of scores, regular and shifted together.
    """

    auroc: Interval
    aupr: Interval
    fpr95: Interval
    windows: int


def window_means(values: Tensor, window: int) -> Tensor:
    """Means of `values` [words] over windows side by side, in float64; a rest is dropped."""
    whole = len(values) // window * window
    return values[:whole].detach().cpu().double().view(-1, window).mean(1)


def require_window(words: int, window: int, name: str = "the text") -> None:
    """Refuse a window that is longer than a text of `words` words."""
    if window > words:
        raise ConfigError(
            f"--window is {window}, but {name} has only {words} words to foresee; give a smaller "
            "window, or more text"
        )


def detection(
    regular: Tensor,
    shifted: Tensor,
    generator: torch.Generator,
    bootstrap: int = 1000,
    level: float = 0.95,
) -> Detection:
    """The metrics of the scores of `regular` and `shifted` windows, each [windows].

    Intervals are percentiles at `level` over `bootstrap` resamples, in which regular and shifted
    windows are drawn anew, each from their own. The words of a window stay together, since
    neighbouring words are not independent. Without resamples, low and high are the value.
    """
    (regular,) = per_example(infinite=True, regular=regular)
    (shifted,) = per_example(infinite=True, shifted=shifted)
    # Sorted once: thresholds are the distinct scores, the highest first, and a sample is how many
    # windows there are at each.
    scores, place = torch.unique(torch.cat([regular, shifted]), return_inverse=True)
    thresholds = len(scores)
    ranks = (thresholds - 1 - place).tensor_split([len(regular)])

    def metrics(*drawn: Tensor) -> Tensor:
        found = (of.expand_as(p).gather(1, p) for of, p in zip(ranks, drawn, strict=True))
        return _metrics(*(counts(one, thresholds) for one in found))

    sizes = (len(regular), len(shifted))
    value = metrics(*(torch.arange(size)[None] for size in sizes))[0]
    at_once = max(1, SLICE // thresholds)
    drawn = resampled(metrics, sizes, generator, bootstrap, at_once)
    auroc, aupr, fpr95 = intervals(value, drawn, level)
    return Detection(auroc, aupr, fpr95, sum(sizes))


def auroc_error(auroc: float, regular: int, shifted: int) -> float:
    """The standard error of an AUROC from so many regular and shifted scores.

    Hanley & McNeil (1982): with the chances Q1 = A / (2 - A) that two shifted scores are higher
    than a regular one, and Q2 = 2 A^2 / (1 + A) that one is higher than two regular ones, which are
    those of exponential distributions. Unlike the bootstrap it takes no time.
    """
    square = auroc**2
    two_shifted, two_regular = auroc / (2 - auroc), 2 * square / (1 + auroc)
    variance = (
        auroc * (1 - auroc)
        + (shifted - 1) * (two_shifted - square)
        + (regular - 1) * (two_regular - square)
    ) / (regular * shifted)
    return math.sqrt(max(0.0, variance))


def _metrics(regular: Tensor, shifted: Tensor) -> Tensor:
    """AUROC, AUPR and FPR95 [samples, 3] from counts [samples, thresholds], the highest first."""
    false, true = regular.cumsum(1), shifted.cumsum(1)  # at or above each threshold
    negatives, positives = int(false[0, -1]), int(true[0, -1])
    needed = -(-95 * positives // 100)  # rounded up; in whole numbers, since 0.95 is not a float
    place = torch.searchsorted(true, torch.full_like(true[:, :1], needed))
    fpr95 = false.gather(1, place)[:, 0].double() / negatives
    alarms, hits = (true + false).double(), true.double()
    regular, shifted = regular.double(), shifted.double()
    auroc = torch.linalg.vecdot(regular, hits - shifted / 2) / (negatives * positives)
    # Above the first window, where there are no alarms, no shifted one counts either.
    aupr = torch.linalg.vecdot(shifted, hits / alarms.clamp_(min=1)) / positives
    return torch.stack([auroc, aupr, fpr95], 1)
