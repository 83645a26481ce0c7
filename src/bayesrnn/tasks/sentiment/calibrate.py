"""The calibration of a text predictor on validation texts, and the verdict on it."""

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from bayesrnn.data.vocabulary import UNK
from bayesrnn.methods.base import Network
from bayesrnn.random import seeded
from bayesrnn.runs.task import ValidationScore
from bayesrnn.runs.verdict import (
    Verdict,
    classes_findings,
    draws_finding,
    numbers_findings,
    unfamiliar_finding,
)
from bayesrnn.tasks.sentiment.data import Labels, Numbers, Reviews
from bayesrnn.tasks.sentiment.predictions import (
    predict_labels,
    predict_numbers,
    segment_outputs,
)
from bayesrnn.tasks.sentiment.segments import Segments
from bayesrnn.tasks.sentiment.shifts import unknown_words
from bayesrnn.tasks.sentiment.trained import TrainedTextPredictor
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.metrics import INTERVALS, regression_metrics

#: Validation texts that are fitted to.
FITTED_TEXTS: Final = 2000


def review_score(run: TrainedTextPredictor, reviews: Reviews, whole: bool) -> ValidationScore:
    """How probable the labels of validation texts are, or how dense their numbers."""
    segments, target = _of_validation(run, reviews, whole), run.target

    def score(network: Network, temperatures: Sequence[float]) -> Tensor:
        return text_log_probs(segment_outputs(network, segments), segments, target, temperatures)

    all_texts = len(segments.targets) == len(reviews.valid.targets)
    return ValidationScore("text", score, all_texts)


def text_log_probs(
    outputs: Tensor, segments: Segments, target: Numbers | Labels, temperatures: Sequence[float]
) -> Tensor:
    """The log-probability of each text's label, or log-density of its number, at temperatures.

    outputs: of a network for each segment.
    """
    truths = segments.targets.cpu()

    def of_labels(temperature: float) -> Tensor:
        probabilities = segments.mean_by_text((outputs / temperature).softmax(-1))
        return probabilities.gather(1, truths[:, None])[:, 0].log()

    def of_numbers(temperature: float) -> Tensor:
        assert isinstance(target, Numbers)
        mean, log_variance = segments.mean_by_text(outputs).unbind(-1)
        deviation = (log_variance / 2).exp() * (temperature * target.sd)
        away = (truths - mean * target.sd - target.mean) / deviation
        return -(away.square() + math.log(2 * math.pi)) / 2 - deviation.log()

    of_one = of_labels if isinstance(target, Labels) else of_numbers
    return torch.stack([of_one(temperature) for temperature in temperatures])


def review_verdict(run: TrainedTextPredictor, reviews: Reviews) -> Verdict | None:
    """Draws against the mean, and how far probabilities or intervals can be believed."""
    calibration, target = run.calibrated(), run.target
    if calibration is None:
        return None
    segments = _of_validation(run, reviews)
    shifted = unknown_words(segments, run.vocabulary.index(UNK), seeded(calibration.seed))
    truths, generator = segments.targets.cpu(), seeded(calibration.seed)
    draws = Draws(run.method, run.net, calibration.best_samples, generator, calibration.scaling)
    if isinstance(target, Labels):
        labels, shifted_labels = (predict_labels(draws, each) for each in (segments, shifted))
        findings = classes_findings(labels.texts, truths, reviews.train.targets)
        doubts, score = (labels.total, shifted_labels.total), "entropy"
    else:
        numbers, shifted_numbers = (
            predict_numbers(draws, each, target).texts for each in (segments, shifted)
        )
        coverage = regression_metrics(numbers, truths).coverage[INTERVALS.index(0.9)]
        findings = numbers_findings(coverage, truths - numbers.mean, truths - target.mean)
        doubts, score = (numbers.total, shifted_numbers.total), "variance"
    unfamiliar = unfamiliar_finding(*doubts, "text of mostly unknown words", score)
    return Verdict((draws_finding(calibration), *findings, unfamiliar), len(truths), "text")


def _of_validation(run: TrainedTextPredictor, reviews: Reviews, whole: bool = False) -> Segments:
    texts = len(reviews.valid.targets)
    texts = texts if whole else min(texts, FITTED_TEXTS)
    return reviews.valid.first_texts(texts).to(run.device)
