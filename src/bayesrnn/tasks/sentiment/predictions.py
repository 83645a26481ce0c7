"""Predictions for segments, and from them for whole texts.

A text's number is the mean over its segments of the predicted means. Its distribution is the
mixture over draws of normal distributions around that draw's mean over the segments, with the
noise that the network learnt for a segment. The noise is not divided by the number of segments:
their errors are far from independent. A text's label
probabilities are the mean over its segments, too.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from bayesrnn.methods.base import Network, Objective, Outcome
from bayesrnn.runs.held_out import Chunk
from bayesrnn.tasks.sentiment.data import Labels, Numbers
from bayesrnn.tasks.sentiment.segments import SegmentBatch, Segments
from bayesrnn.uncertainty.average import RunningMoments, entropy
from bayesrnn.uncertainty.bound import SummedMinibatch
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.regression import AverageNumbers, Regression, RegressionPrediction

#: Segments in a minibatch.
_BATCH = 256

#: Called with the number of segments that a network has processed.
Advance = Callable[[int], object]


class PredictedNumbers(NamedTuple):
    """Predicted distributions in the user's unit, float64: of each text and of each segment."""

    texts: RegressionPrediction
    segments: RegressionPrediction


class PredictedLabels(NamedTuple):
    """Averaged label probabilities, float64 [texts or segments, labels].

    aleatoric: [texts], the mean entropy of single draws, in nats.
    """

    texts: Tensor
    segments: Tensor
    aleatoric: Tensor

    @property
    def total(self) -> Tensor:
        """The entropy of the averaged probabilities of each text, in nats."""
        return entropy(self.texts)

    @property
    def information(self) -> Tensor:
        """The mutual information between the label and the weights: total - aleatoric."""
        return (self.total - self.aleatoric).clamp_min(0)


def segment_nll(
    outputs: Tensor, targets: Tensor, target: Numbers | Labels, reduction: str = "mean"
) -> Tensor:
    """The negative log-likelihood of a network's outputs for segments, in nats.

    Of numbers it is that of the standardised ones, which differs from that in the user's unit by
    the logarithm of their standard deviation.
    """
    if isinstance(target, Labels):
        return F.cross_entropy(outputs, targets, reduction=reduction)
    mean, log_variance = outputs.unbind(-1)
    return F.gaussian_nll_loss(
        mean, wanted(targets, target), log_variance.exp(), full=True, reduction=reduction
    )


def wanted(targets: Tensor, target: Numbers | Labels) -> Tensor:
    """What a network learns: the numbers of labels, or standardised numbers."""
    return targets if isinstance(target, Labels) else target.standardised(targets)


@torch.no_grad()
def segment_outputs(network: Network, segments: Segments, advance: Advance | None = None) -> Tensor:
    """The outputs of a network for each segment, float64 [segments, outputs], on the CPU."""
    found = torch.empty(0)
    for chosen in segments.by_length(_BATCH):
        batch = segments.batch(chosen)
        outputs = network(batch.words, batch.lengths).cpu().double()
        if not found.numel():
            found = outputs.new_empty(len(segments), outputs.shape[1])
        found[chosen.cpu()] = outputs
        if advance is not None:
            advance(len(chosen))
    return found


def predict_numbers(
    draws: Draws, segments: Segments, target: Numbers, advance: Advance | None = None
) -> PredictedNumbers:
    """The predicted distributions of the texts' numbers."""
    head = Regression(log_variance=True)
    texts, parts = AverageNumbers(head), AverageNumbers(head)
    for network in draws.networks():
        outputs = segment_outputs(network, segments, advance)
        mean = outputs[:, 0] * target.sd + target.mean
        log_variance = outputs[:, 1] + 2 * math.log(target.sd)
        parts.add(torch.cat([mean, log_variance]))
        texts.add(torch.cat([segments.mean_by_text(mean), segments.mean_by_text(log_variance)]))
    return PredictedNumbers(texts.prediction(), parts.prediction())


def predict_labels(
    draws: Draws, segments: Segments, advance: Advance | None = None
) -> PredictedLabels:
    """The averaged label probabilities of the texts."""
    texts, parts, entropies = RunningMoments(), RunningMoments(), RunningMoments()
    for network in draws.networks():
        probabilities = segment_outputs(network, segments, advance).softmax(-1)
        of_texts = segments.mean_by_text(probabilities)
        parts.add(probabilities)
        texts.add(of_texts)
        entropies.add(entropy(of_texts))
    return PredictedLabels(texts.mean, parts.mean, entropies.mean)


def segment_minibatches(
    segments: Segments, target: Numbers | Labels, batch_size: int
) -> Iterable[SummedMinibatch]:
    """Minibatches of segments, each with its summed loss."""
    for chosen in segments.by_length(batch_size):
        yield _summed(segments.batch(chosen), target), len(chosen)


def segment_chunks(segments: Segments, target: Numbers | Labels, most: int) -> list[Chunk]:
    """The predictions for the first `most` segments, some at a time."""
    numbers = torch.arange(min(len(segments), most), device=segments.lengths.device)
    return [_chunk(segments.batch(chosen), target) for chosen in torch.split(numbers, _BATCH)]


def _chunk(batch: SegmentBatch, target: Numbers | Labels) -> Chunk:
    def outputs(network: Network, state: Any) -> tuple[Tensor, Any]:
        return network(batch.words, batch.lengths), state

    return Chunk(outputs, wanted(batch.targets, target))


def _summed(batch: SegmentBatch, target: Numbers | Labels) -> Callable[[Any], Objective]:
    def objective(network: Network) -> Outcome:
        outputs = network(batch.words, batch.lengths)
        return Outcome(segment_nll(outputs, batch.targets, target, "sum"), None)

    return lambda state: objective
