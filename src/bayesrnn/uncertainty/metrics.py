"""Metrics of predicted numbers and of predicted classes, calibration included."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.methods.base import Method, Network
from bayesrnn.uncertainty.calibration import reliability
from bayesrnn.uncertainty.draws import Draws, networks_to_read
from bayesrnn.uncertainty.regression import RegressionPrediction
from bayesrnn.uncertainty.scaling import UNSCALED, Scaling

#: The shares of probability of the central intervals whose coverage is measured.
INTERVALS: Final = (0.5, 0.8, 0.9, 0.95)

_WIDTH_OF = 0.9


@dataclass(frozen=True)
class RegressionMetrics:
    """Metrics over `examples` predicted numbers, in their own unit.

    rmse: root of the mean squared error of the predicted mean.
    mae: its mean absolute error.
    nll: mean negative logarithm of the predicted density at the truth.
    coverage: the share of truths inside each of the central `INTERVALS`. If the prediction is
        calibrated, it is the probability of the interval.
    width: the mean width of the 90% interval; of calibrated ones, the narrower is the better.
    """

    rmse: float
    mae: float
    nll: float
    coverage: tuple[float, ...]
    width: float
    examples: int


def regression_metrics(prediction: RegressionPrediction, truths: Tensor) -> RegressionMetrics:
    """The metrics of predicted distributions for `truths`, both [examples]."""
    if truths.dim() != 1 or prediction.mean.shape != truths.shape:
        raise ConfigError(
            f"predictions have the shape {list(prediction.mean.shape)} and truths "
            f"{list(truths.shape)}; both have to be [examples]"
        )
    if not len(truths):
        raise CorpusError("there are no numbers to compare with; give at least one")
    errors = prediction.mean - truths
    coverage = []
    for share in INTERVALS:
        low, high = prediction.interval(share)
        coverage.append(((low <= truths) & (truths <= high)).double().mean().item())
    low, high = prediction.interval(_WIDTH_OF)
    return RegressionMetrics(
        rmse=errors.square().mean().sqrt().item(),
        mae=errors.abs().mean().item(),
        nll=-prediction.log_density(truths).mean().item(),
        coverage=tuple(coverage),
        width=(high - low).mean().item(),
        examples=len(truths),
    )


@dataclass(frozen=True)
class Classification:
    """Metrics over `examples` answers; for all four, less is better.

    error: share of wrong answers.
    nll: mean negative log-likelihood of the label, in nats.
    ece: expected calibration error, see `calibration_error`.
    brier: mean squared distance between the probabilities and the label's corner, between 0 and 2
        (Brier 1950).
    """

    error: float
    nll: float
    ece: float
    brier: float
    examples: int


def classification(
    method: Method[Any],
    net: nn.Module,
    images: Tensor,
    labels: Tensor,
    samples: int = 0,
    generator: torch.Generator | None = None,
    advance: Callable[[int], object] | None = None,
    scaling: Scaling = UNSCALED,
) -> Classification:
    """The metrics of the mean network (`samples` = 0) or of probabilities averaged over draws.

    The nll is -log (1/S) sum_s p_s(label), summed in log space: it stays finite where p_s itself
    is too small for a float. Memory does not grow with the number of draws.
    """
    generator = generator or torch.Generator().manual_seed(0)
    draws = Draws(method, net, samples, generator, scaling)
    total = torch.tensor(-math.inf, dtype=torch.double)
    for network in draws.networks():
        total = torch.logaddexp(total, class_log_probabilities(network, images, advance=advance))
    log_probs = total - math.log(networks_to_read(method, net, samples))
    return score_log_probabilities(log_probs, labels)


def score_log_probabilities(log_probs: Tensor, labels: Tensor) -> Classification:
    """The metrics of probabilities whose logarithms are given, float64 [examples, classes]."""
    return _scores(log_probs.exp(), log_probs, labels)


def score_probabilities(probabilities: Tensor, labels: Tensor) -> Classification:
    """The metrics of given probabilities [examples, classes]."""
    probabilities = probabilities.detach().cpu().double()
    return _scores(probabilities, probabilities.log(), labels)


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    """How far the confidence of the answers is from their share of right ones (Guo et al. 2017).

    An answer is the most probable class, its confidence that probability. Answers are sorted into
    `bins` bins of equal width by confidence, (0, 1/bins] the first. The error is the distance
    between mean confidence and share of right answers in a bin, averaged over answers.
    """
    labels = _checked(probabilities, labels)
    confidence, answers = probabilities.detach().cpu().double().max(-1)
    if confidence.isnan().any():  # like the other metrics of a network that has diverged
        return math.nan
    return reliability(confidence, answers == labels, bins).error


@torch.no_grad()
def class_log_probabilities(
    network: Network,
    images: Tensor,
    batch: int = 1000,
    advance: Callable[[int], object] | None = None,
) -> Tensor:
    """The log-softmax of the network's logits, float64 [examples, classes], `batch` at a time.

    `advance` is called with the number of images done, for a progress bar.
    """
    parts = []
    for start in range(0, max(len(images), 1), batch):
        part = images[start : start + batch]
        parts.append(network(part).cpu().double().log_softmax(-1))
        if advance is not None:
            advance(len(part))
    return torch.cat(parts)


def _scores(probabilities: Tensor, log_probs: Tensor, labels: Tensor) -> Classification:
    labels = _checked(probabilities, labels)
    corners = F.one_hot(labels, probabilities.shape[1])
    return Classification(
        error=(probabilities.argmax(-1) != labels).double().mean().item(),
        nll=-log_probs.gather(1, labels[:, None]).mean().item(),
        ece=calibration_error(probabilities, labels),
        brier=(probabilities - corners).square().sum(-1).mean().item(),
        examples=len(labels),
    )


def _checked(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The labels, when they fit the probabilities."""
    if probabilities.dim() != 2 or labels.shape != probabilities.shape[:1]:
        raise ConfigError(
            f"probabilities have the shape {list(probabilities.shape)} and labels "
            f"{list(labels.shape)}; they have to be [examples, classes] and [examples]"
        )
    if not len(labels):
        raise CorpusError("there are no examples to evaluate; give at least one")
    low, high = labels.min().item(), labels.max().item()
    if low < 0 or high >= probabilities.shape[1]:
        raise CorpusError(
            f"the labels go from {low} to {high}, but the network knows the classes 0 to "
            f"{probabilities.shape[1] - 1}; give labels that it was trained on"
        )
    return labels.cpu()
