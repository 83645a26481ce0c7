"""How well a run predicts data that it did not train on, and how sure of it it is."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bayesrnn.methods.base import Network
from bayesrnn.uncertainty.average import AverageProbabilities, entropy
from bayesrnn.uncertainty.draws import Draws

_LOG_2PI = math.log(2 * math.pi)


class Chunk(NamedTuple):
    """Some predictions that a network makes at once.

    outputs: from a network and the state that it has carried, gives its outputs [predictions, k],
        and the state after: k logits, or mean and log variance of a number.
    targets: [predictions], int64 of classes, floating point of numbers.
    """

    outputs: Callable[[Network, Any], tuple[Tensor, Any]]
    targets: Tensor


@dataclass(frozen=True)
class HeldOut:
    """Predictions to score, in order, and the targets of the training set.

    given: whether the outputs [predictions, 1] of numbers are the log-densities at the targets
        themselves, where the distribution is not a normal one.
    """

    chunks: Sequence[Chunk]
    train_targets: Tensor
    given: bool = False

    def base_nll(self) -> float:
        """The nats a target costs without a network: the best constant prediction's.

        Of classes it is the entropy of their frequencies in the training set; of numbers that of
        a normal distribution as wide as theirs.
        """
        targets = self.train_targets
        if targets.is_floating_point():
            # Numbers that are all alike cost next to nothing.
            least = torch.finfo(torch.double).tiny
            variance = max(targets.double().var(correction=0).item(), least)
            return (math.log(variance) + 1 + _LOG_2PI) / 2
        shares = torch.bincount(targets.flatten()).double() / targets.numel()
        return entropy(shares).item()


@dataclass(frozen=True)
class PredictionScore:
    """The mean over `predictions` of the negative log-likelihood and of the entropy, in nats.

    entropy: what the network expects its own nll to be; None for numbers, where a mixture of
        normal distributions has no closed form.
    """

    nll: float
    entropy: float | None
    predictions: int

    @property
    def overconfidence(self) -> float | None:
        """nll - entropy: above 0, the network is surer than it may be; below 0, less sure."""
        return None if self.entropy is None else self.nll - self.entropy


@torch.no_grad()
def score(
    draws: Draws, held_out: HeldOut, advance: Callable[[int], object] | None = None
) -> PredictionScore:
    """The score of predictions averaged over all draws; of the mean network, if there are none.

    Each draw carries a state of its own from chunk to chunk, so that one chunk of predictions is in
    memory at a time.
    """
    states: dict[int, Any] = {}
    nll = own = 0.0
    predictions, is_class = 0, True
    for chunk in held_out.chunks:
        is_class = not chunk.targets.is_floating_point()
        average = _AverageClasses() if is_class else _AverageDensity(held_out.given)
        for number, network in enumerate(draws.networks()):
            outputs, states[number] = chunk.outputs(network, states.get(number))
            average.add(outputs, chunk.targets)
            if advance is not None:
                advance(len(chunk.targets))
        nll -= average.log_probs(chunk.targets).sum(dtype=torch.double).item()
        own += average.entropy()
        predictions += len(chunk.targets)
    return PredictionScore(nll / predictions, own / predictions if is_class else None, predictions)


class _AverageClasses:
    """The mean of class probabilities."""

    def __init__(self) -> None:
        self._average = AverageProbabilities()

    def add(self, logits: Tensor, targets: Tensor) -> None:
        del targets
        self._average.add(logits)

    def log_probs(self, targets: Tensor) -> Tensor:
        probs = self._average.mean.gather(-1, targets.to(self._average.mean.device)[:, None])
        return probs.clamp_min(torch.finfo(probs.dtype).tiny).log()

    def entropy(self) -> float:
        return self._average.total().sum(dtype=torch.double).item()


class _AverageDensity:
    """The mean of the densities of normal distributions at the targets, or of given ones."""

    def __init__(self, given: bool) -> None:
        self._given = given
        self._densities: list[Tensor] = []

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        if self._given:
            self._densities.append(outputs.double()[:, 0])
            return
        mean, log_variance = outputs.double().unbind(-1)
        squares = (targets - mean).square() / log_variance.exp()
        self._densities.append(-(log_variance + squares + _LOG_2PI) / 2)

    def log_probs(self, targets: Tensor) -> Tensor:
        del targets
        return torch.stack(self._densities).logsumexp(0) - math.log(len(self._densities))

    def entropy(self) -> float:
        return math.nan
