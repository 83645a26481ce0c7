"""An upper bound on the negative log-likelihood, by networks that have seen the targets."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesrnn.methods.base import Bounded, Network, Objective, Outcome
from bayesrnn.uncertainty.likelihood import Likelihood

#: A function from the carried state to the summed loss of a minibatch; its predictions.
SummedMinibatch = tuple[Callable[[Any], Objective], int]


@dataclass(frozen=True)
class BoundedLikelihood(Likelihood):
    """`nll` is the bound per prediction, and `kl` of it was paid for having seen the targets.

    standard_error: of `nll`, for the draws behind it; None where one minibatch is all there is.
    """

    kl: float
    standard_error: float | None


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

    The standard error is from how much the part that was drawn differs between minibatches. They
    differ anyway, so it is an overestimate rather than an underestimate.
    """
    state: Any = None
    nll = kl = 0.0
    drawn, counts = [], []
    for make_objective, predictions in minibatches:
        found = method.bound(net, make_objective(state), generator)
        nll, kl = nll + found.nll, kl + found.kl
        drawn.append(found.drawn)
        counts.append(predictions)
        state = found.state
        if advance is not None:
            advance(predictions)
    total = sum(counts)
    error = error_of_sum(drawn, counts)
    return BoundedLikelihood(
        (nll + kl) / total, total, kl / total, None if error is None else error / total
    )


def error_of_sum(values: Sequence[float], sizes: Sequence[int]) -> float | None:
    """The standard error of a sum of independent values whose means are as their sizes."""
    if len(values) < 2:
        return None
    mean = sum(values) / sum(sizes)
    squares = sum((v - mean * size) ** 2 for v, size in zip(values, sizes, strict=True))
    return math.sqrt(squares * len(values) / (len(values) - 1))


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
