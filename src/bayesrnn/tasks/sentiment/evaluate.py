"""How well a run predicts ratings or labels, calibration and coverage included."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

from torch import Tensor

from bayesrnn.methods.base import Bounded
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.runs.evaluation import (
    Evaluation,
    EvaluationSettings,
    Inference,
    Row,
    about,
    asked_row,
    inference_rows,
    kl_text,
)
from bayesrnn.tasks.sentiment.data import SCALE_DATA, Labels, Numbers, three_classes
from bayesrnn.tasks.sentiment.predictions import (
    predict_labels,
    predict_numbers,
    segment_minibatches,
)
from bayesrnn.tasks.sentiment.segments import Segments
from bayesrnn.tasks.sentiment.trained import TrainedTextPredictor
from bayesrnn.uncertainty.bound import likelihood_bound
from bayesrnn.uncertainty.draws import Draws, networks_to_read
from bayesrnn.uncertainty.metrics import (
    INTERVALS,
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


@dataclass(frozen=True, kw_only=True)
class RatingRow(RatingMetrics, Row):
    """Predicted numbers."""


@dataclass(frozen=True, kw_only=True)
class LabelRow(LabelMetrics, Row):
    """Predicted labels."""


@dataclass(frozen=True, kw_only=True)
class SegmentBoundRow(Row):
    """The bound: of segments, not texts, since it is on a minibatch as it was trained on."""

    nll: float
    kl: float
    segments: int
    standard_error: float | None = None


SentimentRow = RatingRow | LabelRow | SegmentBoundRow


@dataclass(frozen=True, kw_only=True)
class SentimentEvaluation(Evaluation):
    """The rows, and the error of the same prediction for every text."""

    data: str
    constant_rmse: float | None
    constant_error: float | None


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
    if data == SCALE_DATA:
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


def evaluate_sentiment(
    run: TrainedTextPredictor, settings: EvaluationSettings
) -> SentimentEvaluation:
    """The rows of a run on a split of its own data."""
    reviews = run.reviews()
    segments = getattr(reviews, settings.split).to(run.device)
    target, config = run.target, run.config
    rating = isinstance(target, Numbers)

    def averaged(inference: Inference) -> SentimentRow:
        generator = seeded(settings.seed)
        draws = Draws(run.method, run.net, inference.samples, generator, inference.scales)
        networks = networks_to_read(run.method, run.net, inference.samples)
        with progress_bar(networks * len(segments), " segments", "evaluating") as bar:
            found = text_metrics(draws, segments, target, config.data, bar.update)
        row_type = RatingRow if isinstance(found, RatingMetrics) else LabelRow
        return row_type(**inference._asdict(), **asdict(found))

    def bounded(inference: Inference, method: Bounded) -> SentimentRow:
        minibatches = segment_minibatches(segments, target, config.batch_size)
        with progress_bar(len(segments), " segments", "bounding") as bar:
            found = likelihood_bound(
                method, run.net, minibatches, seeded(settings.seed), bar.update
            )
        log_unit = math.log(target.sd) if isinstance(target, Numbers) else 0.0
        return SegmentBoundRow(
            **inference._asdict(),
            nll=found.nll + log_unit,
            kl=found.kl,
            standard_error=found.standard_error,
            segments=found.tokens,
        )

    rows = inference_rows(run, settings, averaged, bounded)
    constant = constant_error(target, reviews.train.targets, segments.targets.cpu())
    return SentimentEvaluation(
        **about(run, settings),
        data=config.data,
        constant_rmse=constant if rating else None,
        constant_error=None if rating else constant,
        rows=tuple(rows),
        asked=asked_row(rows, settings.samples),
    )


def row_text(row: SentimentRow) -> str:
    """A row of numbers or of labels, or the bound on their likelihood, as text."""
    if isinstance(row, SegmentBoundRow):
        paid = kl_text(row.kl, row.standard_error)
        return f"nll <= {row.nll:.4f} a segment{paid} ({row.segments:,} segments)"
    counted = f"({row.examples:,} texts, {row.segments:,} segments)"
    if isinstance(row, LabelRow):
        return (
            f"error {row.error:.2%} (by segment {row.segment_error:.2%}), nll {row.nll:.4f}, "
            f"calibration error {row.ece:.2%}, Brier score {row.brier:.4f} {counted}"
        )
    classes = "" if row.class_error is None else f", error in 3 classes {row.class_error:.2%}"
    pairs = zip(INTERVALS, row.coverage, strict=True)
    held = ", ".join(f"{share:.0%}: {found:.1%}" for share, found in pairs)
    return (
        f"rmse {row.rmse:.4f} (by segment {row.segment_rmse:.4f}), mean absolute error "
        f"{row.mae:.4f}{classes}, nll {row.nll:.4f} {counted}\n"
        f"intervals hold {held}; mean width of the 90% interval {row.width:.4f}"
    )


def evaluation_notes(found: SentimentEvaluation) -> list[str]:
    """What has to be said below the rows."""
    if found.constant_rmse is not None:
        constant = f"the mean of the training texts for every text: rmse {found.constant_rmse:.4f}"
    else:
        constant = (
            "the most frequent label of the training texts for every text: error "
            f"{found.constant_error:.2%}"
        )
    return [
        "a text's prediction is the mean over its segments; metrics are by text unless they say "
        "segment",
        f"for comparison, {constant}",
    ]
