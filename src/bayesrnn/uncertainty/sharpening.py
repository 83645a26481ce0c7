"""Sharpening of a trained network while it reads: a bound, and predictions from what was read.

Each segment has a prior of some tensors, N(m, V), and gives q of `core.shrinking`, N(m', V') with
V' = V / (1 + V h) and m' = m - V' g. Between two segments the weights go back towards the trained
ones, w, whose own prior is N(w, sigma0^2), and keep the share `carry` of what was learnt:

    m <- w + carry (m' - w),   V <- sigma0^2 + carry^2 (V' - sigma0^2).

With 0 segments have nothing to do with each other; with 1 the weights are those of the whole text,
and what was read is the posterior. The prior of a segment knows what lies before it and nothing
else, so the bounds of all segments add up to one on the whole text, for any carry, and the network
with the weights m is an ordinary prediction.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from bayesrnn.core.curvature import watched
from bayesrnn.core.functional import run_with
from bayesrnn.core.noise import draw_seed
from bayesrnn.core.shrinking import shrink
from bayesrnn.errors import TrainingDivergedError
from bayesrnn.methods.base import Network, Objective
from bayesrnn.uncertainty.bound import BoundedLikelihood, SummedMinibatch, error_of_sum
from bayesrnn.uncertainty.likelihood import Likelihood

#: A loss per prediction, in nats, from which nothing comes back.
_HOPELESS = 1e4


@dataclass(frozen=True)
class SegmentSharpening:
    """Which tensors are sharpened, and how.

    sigma0: the prior's standard deviation of tensors, by name: one number for a tensor, or one for
        each of its weights. What is not named stays as it is.
    carry: the share of what was learnt that the next segment starts from.
    layer: the linear layer below a softmax: the curvature of its parameters has a closed form.
        None if there is none.
    squares: the curvature of other tensors: their mean squared gradient, a prediction.
    """

    sigma0: Mapping[str, Tensor]
    carry: float
    layer: str | None
    squares: Mapping[str, Tensor] = field(default_factory=dict, repr=False)


class SharpenedReading(NamedTuple):
    """What a text is worth to a network that is sharpened on it, segment by segment.

    read: predictions with the mean weights that the segments before have given; an ordinary
        likelihood.
    bound: by networks that have seen the targets of the segment; an upper bound.
    """

    read: Likelihood
    bound: BoundedLikelihood


class _Belief:
    """The mean and the variance of each sharpened tensor, between two segments."""

    def __init__(self, net: nn.Module, sharpening: SegmentSharpening) -> None:
        parameters = dict(net.named_parameters())
        self.sharpening = sharpening
        self.trained = {name: parameters[name].detach() for name in sharpening.sigma0}
        self.prior = {n: s.square().expand_as(parameters[n]) for n, s in sharpening.sigma0.items()}
        self.mean, self.variance = dict(self.trained), dict(self.prior)

    def learn(self, gs: Mapping[str, Tensor], hs: Mapping[str, Tensor]) -> None:
        """Take in a segment, and go back towards the trained weights."""
        carry = self.sharpening.carry
        for name, trained in self.trained.items():
            prior = self.prior[name]
            variance = self.variance[name] / (1 + self.variance[name] * hs[name])
            mean = self.mean[name] - variance * gs[name]
            self.mean[name] = trained + carry * (mean - trained)
            self.variance[name] = prior + carry**2 * (variance - prior)


def read_sharpened(
    net: nn.Module,
    minibatches: Iterable[SummedMinibatch],
    sharpening: SegmentSharpening,
    generator: torch.Generator,
    advance: Callable[[int], object] | None = None,
) -> SharpenedReading:
    """Read minibatches that follow each other, each with its summed loss.

    The bound is estimated with one draw for each, without the first-order part of its noise. The
    recurrent state is carried on by the network with the mean weights, before they take in the
    segment, for both numbers. `net` stays as it is; it has to be one that gradients flow through.
    """
    belief, state = _Belief(net, sharpening), None
    read = cost = 0.0
    drawn: list[float] = []
    counts: list[int] = []
    for make_objective, predictions in minibatches:
        objective = make_objective(state)
        before, state, gs, hs = _look(net, objective, belief.mean, sharpening, predictions)
        if not before < _HOPELESS * predictions:
            raise TrainingDivergedError(
                f"sharpening diverged: after {sum(counts):,} predictions the loss is {before:g}; "
                "give a smaller --sharpen-weights or --sharpen-bias"
            )
        thetas, kl, slope = shrink(
            list(belief.mean.values()),
            list(gs.values()),
            list(hs.values()),
            [variance.log() for variance in belief.variance.values()],
            draw_seed(generator),
        )
        with torch.no_grad():
            after, _ = objective(_with(net, dict(zip(gs, thetas, strict=True))))
        read += before
        cost += kl.item()
        drawn.append(after.item() - slope.item() - before)
        counts.append(predictions)
        belief.learn(gs, hs)
        if advance is not None:
            advance(predictions)
    total = sum(counts)
    error = error_of_sum(drawn, counts)
    return SharpenedReading(
        Likelihood(read / total, total),
        BoundedLikelihood(
            (read + sum(drawn) + cost) / total,
            total,
            cost / total,
            None if error is None else error / total,
        ),
    )


def _look(
    net: nn.Module,
    objective: Objective,
    mean: Mapping[str, Tensor],
    sharpening: SegmentSharpening,
    predictions: int,
) -> tuple[float, Any, dict[str, Tensor], dict[str, Tensor]]:
    """Loss and state with the mean weights, the loss' gradients, and its curvature."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in mean.items()}
    closed: dict[str, Tensor] = {}
    with torch.enable_grad():
        if sharpening.layer is None:
            nll, state = objective(_with(net, leaves))
        else:
            with watched(net, sharpening.layer) as seen:
                nll, state = objective(_with(net, leaves))
            closed = seen.curvature()
        found = torch.autograd.grad(nll, list(leaves.values()), materialize_grads=True)
    hs = {n: closed[n] if n in closed else predictions * sharpening.squares[n] for n in leaves}
    gs = dict(zip(leaves, found, strict=True))
    return nll.item(), tree_map_only(Tensor, Tensor.detach, state), gs, hs


def _with(net: nn.Module, weights: Mapping[str, Tensor]) -> Network:
    return lambda *args, **kwargs: run_with(net, weights, args, kwargs)
