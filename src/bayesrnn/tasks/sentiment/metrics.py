"""How well texts are rated or labelled: figures by text, from what is said of their segments."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from torch import Tensor

from bayesrnn.tasks.sentiment.data import SCALE, Labels, Numbers, three_classes
from bayesrnn.tasks.sentiment.predictions import predict_labels, predict_numbers
from bayesrnn.tasks.sentiment.segments import Segments
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.metrics import number_figures, score_probabilities


def text_figures(
    draws: Draws,
    segments: Segments,
    target: Numbers | Labels,
    data: str,
    advance: Callable[[int], object] | None = None,
) -> dict[str, Any]:
    """The figures of the averaged draws, by text; by segment where the name says so."""
    if isinstance(target, Labels):
        labels = predict_labels(draws, segments, advance)
        truths = segments.targets.cpu()
        by_segment = score_probabilities(labels.segments, truths[segments.texts.cpu()])
        return {
            **asdict(score_probabilities(labels.texts, truths)),
            "segment_error": by_segment.error,
            "segments": len(segments),
        }
    numbers = predict_numbers(draws, segments, target, advance)
    truths = segments.targets.cpu()
    of_segments = numbers.segments.mean - truths[segments.texts.cpu()]
    found = {
        **asdict(number_figures(numbers.texts, truths)),
        "segment_rmse": of_segments.square().mean().sqrt().item(),
        "segments": len(segments),
    }
    if data == SCALE:
        wrong = three_classes(numbers.texts.mean) != three_classes(truths)
        found["class_error"] = wrong.double().mean().item()
    return found


def constant_figures(
    target: Numbers | Labels, of_training: Tensor, truths: Tensor
) -> dict[str, float]:
    """What the same prediction for every text would get, the best one for the training texts.

    That is their mean, or their most frequent label (the first one of equals).
    """
    if isinstance(target, Numbers):
        return {"constant_rmse": (truths - target.mean).square().mean().sqrt().item()}
    counts = of_training.bincount(minlength=len(target.names)).tolist()
    answer = counts.index(max(counts))
    return {"constant_error": (truths != answer).double().mean().item()}
