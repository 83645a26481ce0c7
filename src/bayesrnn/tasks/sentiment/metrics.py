"""Metrics of predicted ratings or labels, by text and by segment."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from torch import Tensor

from bayesrnn.tasks.sentiment.data import SCALE, Labels, Numbers, three_classes
from bayesrnn.tasks.sentiment.predictions import predict_labels, predict_numbers
from bayesrnn.tasks.sentiment.segments import Segments
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.metrics import (
    Classification,
    RegressionMetrics,
    regression_metrics,
    score_probabilities,
)


@dataclass(frozen=True, kw_only=True)
class RatingMetrics(RegressionMetrics):
    """Metrics of predicted numbers, by text; by segment where the name says so.

    class_error: of Pang & Lee's reviews, the share in another of their three classes.
    """

    segment_rmse: float
    segments: int
    class_error: float | None = None


@dataclass(frozen=True, kw_only=True)
class LabelMetrics(Classification):
    """Metrics of predicted labels, by text; by segment where the name says so."""

    segment_error: float
    segments: int


def text_metrics(
    draws: Draws,
    segments: Segments,
    target: Numbers | Labels,
    data: str,
    advance: Callable[[int], object] | None = None,
) -> RatingMetrics | LabelMetrics:
    """The metrics of the averaged draws."""
    truths = segments.targets.cpu()
    by_segment = truths[segments.texts.cpu()]
    if isinstance(target, Labels):
        labels = predict_labels(draws, segments, advance)
        return LabelMetrics(
            **asdict(score_probabilities(labels.texts, truths)),
            segment_error=score_probabilities(labels.segments, by_segment).error,
            segments=len(segments),
        )
    numbers = predict_numbers(draws, segments, target, advance)
    class_error = None
    if data == SCALE:
        wrong = three_classes(numbers.texts.mean) != three_classes(truths)
        class_error = wrong.double().mean().item()
    return RatingMetrics(
        **asdict(regression_metrics(numbers.texts, truths)),
        segment_rmse=(numbers.segments.mean - by_segment).square().mean().sqrt().item(),
        segments=len(segments),
        class_error=class_error,
    )


def constant_error(target: Numbers | Labels, of_training: Tensor, truths: Tensor) -> float:
    """The error of the same prediction for every text, the best one for the training texts.

    That is their mean, of which the root of the mean squared error is given; or their most
    frequent label (the first one of equals), of which the share of wrong ones.
    """
    if isinstance(target, Numbers):
        return (truths - target.mean).square().mean().sqrt().item()
    counts = of_training.bincount(minlength=len(target.names)).tolist()
    return (truths != counts.index(max(counts))).double().mean().item()
