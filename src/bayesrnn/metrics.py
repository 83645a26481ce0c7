"""Metrics of predictions with uncertainty, under their usual names: `br.metrics`.

Each takes what `predict` returns or plain numbers (tensors, arrays, lists), and gives a float.
Probabilities are [..., classes] with labels [...], or, of yes or no, of the same shape as labels of
0 and 1. All examples count alike, whatever the axes.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesrnn.errors import ConfigError
from bayesrnn.uncertainty import metrics
from bayesrnn.uncertainty.calibration import reliability
from bayesrnn.uncertainty.crps import crps_of_normal, crps_of_samples
from bayesrnn.uncertainty.detection import Detection, detection
from bayesrnn.uncertainty.heads import Prediction
from bayesrnn.uncertainty.regression import RegressionPrediction
from bayesrnn.uncertainty.selective import risk_coverage

__all__ = [
    "accuracy",
    "aurc",
    "auroc",
    "average_precision",
    "brier",
    "calibration_error",
    "coverage",
    "crps",
    "crps_normal",
    "fpr95",
    "nll",
]


# Classes


def accuracy(probabilities: Any, labels: Any) -> float:
    """The share of right answers; an answer is the most probable class."""
    return 1 - _scores(probabilities, labels).error


def nll(prediction: Any, truths: Any) -> float:
    """Mean negative log-likelihood in nats: of labels, or of numbers by their density.

    prediction: probabilities, or what `predict` returns with `br.Regression`.
    """
    if isinstance(prediction, RegressionPrediction):
        truths = _same_shape("truths", _tensor(truths), prediction.mean)
        return -prediction.log_density(truths).double().mean().item()
    return _scores(prediction, truths).nll


def brier(probabilities: Any, labels: Any) -> float:
    """Mean squared distance between the probabilities and the label's corner (Brier 1950).

    Between 0 and 2 for classes; of yes or no it is (p - y)^2, between 0 and 1.
    """
    score = _scores(probabilities, labels).brier
    return score / 2 if _is_answer(probabilities, labels) else score


def calibration_error(
    probabilities: Any, labels: Any, bins: int = 15, equal_mass: bool = False
) -> float:
    """How far the confidence of the answers is from their share of right ones (Guo et al. 2017).

    The confidence is the probability of the answer. Answers are sorted by it into bins of equal
    width or, with `equal_mass`, of equally many; the error is the distance between mean confidence
    and share of right answers in a bin, averaged over answers.
    """
    given, labels = _classes(probabilities, labels)
    confidence, answers = given.max(-1)
    return reliability(confidence, answers == labels, bins, equal_mass).error


# Scores, the higher the surer that it is a positive


def auroc(scores: Any, labels: Any) -> float:
    """The chance that a positive (label 1) scores higher than a negative (0); a tie counts half."""
    return _detection(scores, labels).auroc.value


def average_precision(scores: Any, labels: Any) -> float:
    """sum_k (R_k - R_{k-1}) P_k over thresholds, with recall R and precision P."""
    return _detection(scores, labels).aupr.value


def fpr95(scores: Any, labels: Any) -> float:
    """The share of negatives at the highest threshold that finds at least 95% of the positives."""
    return _detection(scores, labels).fpr95.value


def aurc(uncertainty: Any, loss: Any) -> float:
    """The mean risk when the most uncertain answers are withheld (Geifman & El-Yaniv 2017).

    loss: of each answer; 0 and 1 for right and wrong, or any other number.
    """
    uncertainty, loss = _tensor(uncertainty), _tensor(loss)
    _same_shape("loss", loss, uncertainty)
    return risk_coverage(uncertainty.reshape(-1), loss.reshape(-1)).area


# Numbers


def crps(samples: Any, truths: Any) -> float:
    """The continuous ranked probability score of samples [draws, ...] for truths [...].

    E|X - y| - E|X - X'| / 2, without bias: over all pairs of different draws.
    """
    drawn, truths = _tensor(samples), _tensor(truths)
    if not drawn.dim() or drawn.shape[1:] != truths.shape:
        raise ConfigError(
            f"samples have the shape {list(drawn.shape)} and truths {list(truths.shape)}; samples "
            "have to be [draws, ...] with the shape of the truths after that"
        )
    return float(np.mean(crps_of_samples(drawn.numpy(), truths.numpy())))


def crps_normal(mean: Any, sd: Any, truths: Any) -> float:
    """The continuous ranked probability score of normal distributions; sd may be one number."""
    means, truths = _tensor(mean), _tensor(truths)
    _same_shape("truths", truths, means)
    sds = _tensor(sd)
    sds = sds.expand_as(means) if sds.numel() == 1 else _same_shape("sd", sds, means)
    if not bool((sds >= 0).all()):
        raise ConfigError("sd has numbers below 0; give standard deviations")
    return float(np.mean(crps_of_normal(means.numpy(), sds.numpy(), truths.numpy())))


def coverage(low: Any, high: Any, truths: Any) -> float:
    """The share of truths from `low` to `high`: 0.95 for calibrated intervals of 95%.

    br.metrics.coverage(*prediction.interval(0.95), y)
    """
    lows, truths = _tensor(low), _tensor(truths)
    highs = _same_shape("high", _tensor(high), lows)
    _same_shape("truths", truths, lows)
    inside: Tensor = (lows <= truths) & (truths <= highs)
    return inside.double().mean().item()


def _tensor(given: Any) -> Tensor:
    """Numbers as float64 on the CPU."""
    try:
        there = given.detach().cpu() if isinstance(given, Tensor) else given
        found = torch.as_tensor(there, dtype=torch.double)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"a {type(given).__name__} is given, not numbers: {error}") from None
    if not found.numel():
        raise ConfigError("there are no numbers; give at least one example")
    if bool(found.isnan().any()):
        raise ConfigError(
            f"{int(found.isnan().sum()):,} of {found.numel():,} numbers are NaN; leave their "
            "examples out"
        )
    return found


def _same_shape(name: str, given: Tensor, other: Tensor) -> Tensor:
    if given.shape != other.shape:
        raise ConfigError(
            f"{name} has the shape {list(given.shape)} where {list(other.shape)} is needed; an "
            "axis too many would count each number with every other"
        )
    return given.to(other)


def _probabilities(given: Any) -> Tensor:
    return _tensor(given.mean if isinstance(given, Prediction) else given)


def _is_answer(probabilities: Any, labels: Any) -> bool:
    """Whether the probabilities are of yes, [...] as the labels."""
    return _probabilities(probabilities).shape == _tensor(labels).shape


def _classes(probabilities: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Probabilities [examples, classes] and labels [examples]."""
    given, wanted = _probabilities(probabilities), _tensor(labels)
    if not torch.equal(wanted, wanted.trunc()):
        raise ConfigError(
            "labels come second and are whole numbers, the classes; these have fractions, as "
            "probabilities have, which come first"
        )
    wanted = wanted.long()
    if given.shape == wanted.shape:
        given = torch.stack([1 - given, given], -1)
    if given.shape[:-1] != wanted.shape:
        raise ConfigError(
            f"probabilities have the shape {list(given.shape)} and labels {list(wanted.shape)}; "
            "they have to be [..., classes] and [...], or the same for yes or no"
        )
    return given.reshape(-1, given.shape[-1]), wanted.reshape(-1)


def _scores(probabilities: Any, labels: Any) -> metrics.Classification:
    return metrics.score_probabilities(*_classes(probabilities, labels))


def _detection(scores: Any, labels: Any) -> Detection:
    given, wanted = _tensor(scores), _tensor(labels)
    _same_shape("labels", wanted, given)
    given, wanted = given.reshape(-1), wanted.reshape(-1)
    positive = wanted == 1
    if not bool((positive | (wanted == 0)).all()) or len(set(positive.tolist())) < 2:
        raise ConfigError("labels have to be 0 for negatives and 1 for positives, some of each")
    nothing = torch.Generator()  # without resamples nothing is drawn
    return detection(given[~positive], given[positive], nothing, bootstrap=0)
