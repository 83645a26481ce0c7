"""An upper bound on the negative log-likelihood, by networks that have seen the targets."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesrnn.methods.base import Bounded, Network, Objective, Outcome
from bayesrnn.uncertainty.likelihood import Likelihood

#: From the carried state to the summed loss of a minibatch, and how many predictions it has.
SummedMinibatch = tuple[Callable[[Any], Objective], int]


@dataclass(frozen=True)
class BoundedLikelihood(Likelihood):
    """`nll` is the bound per prediction, and `kl` of it was paid for having seen the targets."""

    kl: float


def likelihood_bound(
    method: Bounded,
    net: nn.Module,
    minibatches: Iterable[SummedMinibatch],
    generator: torch.Generator,
    advance: Callable[[int], object] | None = None,
) -> BoundedLikelihood:
    """The bound over minibatches that follow each other, estimated with one draw for each.

    -log p(y) <= E_q[-log p(y | theta)] + KL[q(theta | y) || p(theta)] holds for each minibatch
    given those before it, whose targets are known by then.
    """
    state: Any = None
    nll = kl = 0.0
    count = 0
    for make_objective, predictions in minibatches:
        found = method.bound(net, make_objective(state), generator)
        nll, kl, count = nll + found.nll, kl + found.kl, count + predictions
        state = found.state
        if advance is not None:
            advance(predictions)
    return BoundedLikelihood((nll + kl) / count, count, kl / count)


def example_minibatches(
    inputs: Tensor, targets: Tensor, batch_size: int
) -> Iterable[SummedMinibatch]:
    """Minibatches of independent examples, each with its summed loss."""
    for start in range(0, len(targets), batch_size):
        part = slice(start, start + batch_size)
        yield _example_objective(inputs[part], targets[part]), len(targets[part])


def _example_objective(inputs: Tensor, targets: Tensor) -> Callable[[Any], Objective]:
    def objective(network: Network) -> Outcome:
        return Outcome(F.cross_entropy(network(inputs), targets, reduction="sum"), None)

    return lambda state: objective
