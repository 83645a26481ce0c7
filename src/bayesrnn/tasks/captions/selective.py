"""Whether the captions that a network is sure of are the good ones."""

import torch
from torch import Tensor

from bayesrnn.tasks.captions.uncertainty_results import SelectiveCaptions
from bayesrnn.uncertainty.bootstrap import intervals, resampled
from bayesrnn.uncertainty.checks import per_example
from bayesrnn.uncertainty.selective import risk_coverage

# Resamples that are worked through at once.
_AT_ONCE = 1000


def selective_captions(
    confidence: Tensor,
    scores: Tensor,
    generator: torch.Generator,
    bootstrap: int = 1000,
    level: float = 0.95,
) -> SelectiveCaptions:
    """What the `confidence` [images] of captions says about their `scores` [images].

    Intervals are percentiles at `level` over `bootstrap` resamples of the images; without
    resamples, low and high are the value. The scores themselves stay as they are.
    """
    confidence, scores = per_example(confidence=confidence, scores=scores)
    curve = risk_coverage(-confidence, scores, points=10)

    def metrics(places: Tensor) -> Tensor:
        found = [_metrics(confidence[chosen], scores[chosen]) for chosen in places]
        return torch.tensor(found, dtype=torch.double)

    images = len(scores)
    values = metrics(torch.arange(images)[None])[0]
    drawn = resampled(metrics, [images], generator, bootstrap, _AT_ONCE)
    area, gain, correlation = intervals(values, drawn, level)
    return SelectiveCaptions(
        coverage=curve.coverage,
        score=curve.risk,
        area=area,
        random=scores.mean().item(),
        oracle=_area(-scores, scores),
        gain=gain,
        correlation=correlation,
    )


def rank_correlation(first: Tensor, second: Tensor) -> float:
    """Spearman's (1904): the correlation of the ranks of two scores [n], from -1 to 1.

    Equal values share the mean of their ranks. 0 where all values of one score are equal.
    """
    apart, other = (ranks - ranks.mean() for ranks in map(average_ranks, (first, second)))
    norm = (apart.square().sum() * other.square().sum()).sqrt()
    return (apart @ other / norm).clamp(-1, 1).item() if norm else 0.0


def average_ranks(values: Tensor) -> Tensor:
    """The ranks of `values` [n] from 1 on, float64; equal values share the mean of theirs."""
    _, group, size = torch.unique(values, return_inverse=True, return_counts=True)
    last = size.cumsum(0).double()
    ranks: Tensor = (last - (size - 1) / 2)[group]
    return ranks


def _metrics(confidence: Tensor, scores: Tensor) -> tuple[float, float, float]:
    """Area, gain and correlation."""
    area, random = _area(-confidence, scores), scores.mean().item()
    most = _area(-scores, scores) - random  # of the best order
    gain = (area - random) / most if scores.min() < scores.max() else 0.0
    return area, gain, rank_correlation(confidence, scores)


def _area(doubt: Tensor, scores: Tensor) -> float:
    return risk_coverage(doubt, scores, points=1).area  # the area is that of the whole curve
