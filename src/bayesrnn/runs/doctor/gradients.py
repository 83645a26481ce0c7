"""Minibatches of the training set at trained weights: their loss, and how noisy gradients are."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.methods.base import Method, Network
from bayesrnn.training.optimisation import problem_kl_scale
from bayesrnn.training.problem import Minibatches, Problem

#: Minibatches that gradients and losses are taken from.
MINIBATCHES = 16


@dataclass(frozen=True)
class GradientNoise:
    """The gradient of a minibatch as a mean, common to all, and what differs between them.

    signal: the norm of the mean gradient.
    noise: the root mean square norm of a minibatch's difference from it.

    Both are estimated without bias in their squares, so `signal` is 0 where chance may be all.
    """

    signal: float
    noise: float

    @property
    def minibatches(self) -> float:
        """How many minibatches have to be averaged for a signal as large as the noise."""
        return (self.noise / self.signal) ** 2 if self.signal else math.inf


@dataclass(frozen=True)
class TrainingLoss:
    """The loss of a prediction of the training set in nats: of the mean weights, and of draws."""

    mean: float
    draws: float
    predictions: int


class NoiseEstimate:
    """Running sums over gradients of the same parameters."""

    def __init__(self) -> None:
        self.count = 0
        self._sums: list[Tensor] = []
        self._squares = 0.0

    def add(self, gradients: list[Tensor]) -> None:
        """Add the gradients of one more minibatch."""
        if not self.count:
            self._sums = [torch.zeros_like(gradient) for gradient in gradients]
        self.count += 1
        torch._foreach_add_(self._sums, gradients)
        self._squares += _squared(gradients)

    def found(self) -> GradientNoise | None:
        """The noise; None of fewer than two minibatches, or where there were no gradients.

        With K gradients of mean m, E|m|^2 = signal^2 + noise^2 / K and the mean of their squared
        norms is signal^2 + noise^2.
        """
        if self.count < 2 or not self._sums:
            return None
        of_mean, mean_of = _squared(self._sums) / self.count**2, self._squares / self.count
        noise = (mean_of - of_mean) * self.count / (self.count - 1)
        return GradientNoise(math.sqrt(max(mean_of - noise, 0.0)), math.sqrt(max(noise, 0.0)))


def gradient_noise(
    method: Method[Any], net: nn.Module, problem: Problem, advance: Callable[[], object]
) -> dict[str, GradientNoise]:
    """The noise by kind of parameter: "mu" and "rho" of a posterior, or "weights".

    Nothing is learnt. Recurrent states are carried from one minibatch to the next, as in training.
    """
    batches = problem.minibatches(0)
    estimates: dict[str, NoiseEstimate] = {}
    state: Any = None
    for number in range(min(MINIBATCHES, len(batches))):
        scale = problem_kl_scale("uniform", number, batches)
        loss = method.loss(net, problem.objective(batches[number], state), scale)
        loss.total.backward()  # type: ignore[no-untyped-call]
        for kind, gradients in _gradients(net).items():
            estimates.setdefault(kind, NoiseEstimate()).add(gradients)
        net.zero_grad()
        state = tree_map_only(Tensor, Tensor.detach, loss.state)
        advance()
    found = {kind: estimate.found() for kind, estimate in estimates.items()}
    return {kind: noise for kind, noise in found.items() if noise is not None}


@torch.no_grad()
def training_loss(
    method: Method[Any], net: nn.Module, problem: Problem, seed: int, advance: Callable[[], object]
) -> TrainingLoss:
    """The loss on the first minibatches of an epoch, a draw for each."""
    batches = problem.minibatches(0)
    count = min(MINIBATCHES, len(batches))
    states: dict[str, Any] = {}
    sums = {"mean": 0.0, "draws": 0.0}
    for number in range(count):
        networks: Mapping[str, Network] = {
            "mean": method.mean(net),
            "draws": method.draw(net, seed + number),
        }
        for kind, network in networks.items():
            objective = problem.objective(batches[number], states.get(kind))
            nll, states[kind] = objective(network)
            sums[kind] += nll.item()
        advance()
    lengths = sum(map(batches.length, range(count)))
    total = round(lengths * batches.sequences)
    return TrainingLoss(sums["mean"] / lengths, sums["draws"] / lengths, total)


def predictions_of(batches: Minibatches) -> float:
    """How many different predictions an epoch has."""
    made = sum(map(batches.length, range(len(batches)))) * batches.sequences
    return made / getattr(batches, "passes", 1.0)


def _gradients(net: nn.Module) -> dict[str, list[Tensor]]:
    """The gradients that there are, by kind; those of sharpening's steps are left out."""
    posteriors = [module for module in net.modules() if isinstance(module, Bayesian)]
    if not posteriors:
        kinds = {"weights": list(net.parameters())}
    else:
        locs = [one.module.get_parameter(name) for one in posteriors for name in one.names]
        kinds = {"mu": locs, "rho": [rho for one in posteriors for rho in one.rho.parameters()]}
    found = {kind: [p.grad for p in of if p.grad is not None] for kind, of in kinds.items()}
    return {kind: gradients for kind, gradients in found.items() if gradients}


def _squared(tensors: list[Tensor]) -> float:
    return sum(tensor.double().square().sum().item() for tensor in tensors)
