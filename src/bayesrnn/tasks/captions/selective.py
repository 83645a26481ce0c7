"""Whether the captions that a network is sure of are the good ones, and the images known ones."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesrnn.uncertainty.detection import Detection, Interval, require_bootstrap
from bayesrnn.uncertainty.selective import risk_coverage


@dataclass(frozen=True)
class CaptionDoubts:
    """How well the confidence of captions tells good ones from bad ones.

    coverage: share of captions kept, rising in tenths to 1; the least confident are withheld.
    score: mean score of those that are kept.
    area: mean of that score over every number of kept captions, not only those listed; more is
        better. A random order gives `random`, the mean score; the order of the scores `oracle`.
    gain: (area - random) / (oracle - random): 0 for a random order, 1 for the best one (the
        prediction rejection ratio of Malinin & Gales 2021); 0 where all scores are equal.
    correlation: of the ranks of confidence and score (`rank_correlation`).
    """

    coverage: tuple[float, ...]
    score: tuple[float, ...]
    area: Interval
    random: float
    oracle: float
    gain: Interval
    correlation: Interval


@dataclass(frozen=True)
class UnknownImages:
    """Images of another kind than those that were learnt from, beside regular ones.

    confidence: mean over their captions, in nats a word.
    information: mean over their captions of the mutual information between word and weights, in
        nats a word; None where there is none: fewer than two different draws.
    by_confidence: how well they are told from regular ones by low confidence.
    by_information: the same by high information.
    """

    confidence: float
    information: float | None
    by_confidence: Detection
    by_information: Detection | None


@dataclass(frozen=True)
class CaptionLevel:
    """All figures of one way of prediction: the mean network (`samples` 0), or so many draws.

    confidence, information: means over the captions of the regular images, as in `UnknownImages`.
    doubts: with the CIDEr of each caption, times 100, as its score.
    unknown: None where there were no other images.
    """

    samples: int
    confidence: float
    information: float | None
    doubts: CaptionDoubts
    unknown: UnknownImages | None


@dataclass(frozen=True)
class CaptionUncertainty:
    """What one captioner knows of its own doubts.

    images: how many regular images were captioned, of the split `split` of `data`.
    unknown: how many images of `unknown_data`, which is another data set.
    levels: one for each number of draws, rising.
    """

    name: str
    path: str
    method: str
    data: str
    settings: str
    split: str
    images: int
    unknown_data: str
    unknown: int
    step: int
    seed: int
    beam: int
    bootstrap: int
    levels: tuple[CaptionLevel, ...]


def caption_doubts(
    confidence: Tensor,
    scores: Tensor,
    generator: torch.Generator,
    bootstrap: int = 1000,
    level: float = 0.95,
) -> CaptionDoubts:
    """What the `confidence` [images] of captions says about their `scores` [images].

    Intervals are percentiles at `level` over `bootstrap` resamples of the images (Efron 1979);
    without resamples, low and high are the value. The scores themselves stay as they are.
    """
    require_bootstrap(bootstrap, level)
    curve = risk_coverage(-confidence, scores, points=10)
    sure, good = confidence.detach().cpu().double(), scores.detach().cpu().double()

    def figures(chosen: Tensor) -> tuple[float, float, float]:
        return _figures(sure[chosen], good[chosen])

    area, gain, correlation = _with_intervals(figures, len(good), generator, bootstrap, level)
    return CaptionDoubts(
        coverage=curve.coverage,
        score=curve.risk,
        area=area,
        random=good.mean().item(),
        oracle=_oracle(good),
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


def _figures(confidence: Tensor, scores: Tensor) -> tuple[float, float, float]:
    """Area, gain and correlation."""
    area, random = _area(-confidence, scores), scores.mean().item()
    most = _oracle(scores) - random
    gain = (area - random) / most if scores.min() < scores.max() else 0.0
    return area, gain, rank_correlation(confidence, scores)


def _oracle(scores: Tensor) -> float:
    """The area where the captions are kept in the order of their scores."""
    return _area(-scores, scores)


def _area(doubt: Tensor, scores: Tensor) -> float:
    return risk_coverage(doubt, scores, points=1).area  # the area is that of the whole curve


def _with_intervals(
    figures: Callable[[Tensor], tuple[float, ...]],
    images: int,
    generator: torch.Generator,
    bootstrap: int,
    level: float,
) -> list[Interval]:
    """Figures of chosen images, with their percentiles over resamples of all of them."""
    values = figures(torch.arange(images))
    if not bootstrap:
        return [Interval(value, value, value) for value in values]
    drawn = torch.randint(images, (bootstrap, images), generator=generator)
    found = torch.tensor([figures(chosen) for chosen in drawn], dtype=torch.double)
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.double)
    low, high = found.quantile(tails, 0).tolist()
    return [Interval(*figure) for figure in zip(values, low, high, strict=True)]
