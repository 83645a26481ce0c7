"""The mean-field Gaussian posterior: the draw, its KL divergence, and the gradients of both.

A draw is theta = loc + sigma * eps with sigma = softplus(rho) + floor. With g = d loss / d theta,
w = d loss / d KL and s the prior's score, the gradients have closed forms (Blundell et al. 2015):

    d loss / d loc   = g - w s(theta)
    d loss / d sigma = eps (g - w s(theta)) - w / sigma

and, where the expectation E of the prior's log-density has a closed form,

    d loss / d loc   = g - w dE/dloc
    d loss / d sigma = eps g - w dE/dsigma - w / sigma

so no graph over the weights is kept: drawing and its gradient each walk once through the tensors.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bayesrnn.core.kernel import reference as arithmetic
from bayesrnn.core.kernel.compiled import kernel_for
from bayesrnn.core.kernel.reference import Sums, softplus
from bayesrnn.core.noise import Noise
from bayesrnn.core.priors import ExactPrior, Gaussian, Prior, ScaleMixture, ScoredPrior

_LOG_2PI = math.log(2 * math.pi)


class Charge(NamedTuple):
    """How one weight tensor is charged: by which prior, and where its units' weights lie."""

    prior: Prior
    axis: int


class Score(NamedTuple):
    """The score of a prior on a draw: factor times the weight, times the loc, or alone.

    Times the loc, it is the derivative of an exact expectation.
    """

    factor: Tensor
    base: Literal["weight", "loc"] | None = None


class Ledger:
    """What the way back through a draw found out on its way.

    squared_gradient: the squared length of the gradient by all loc and rho; None before the way
        back, and where autograd adds to that gradient (priors without a closed form).
    """

    squared_gradient: float | None = None


def draw(
    locs: Sequence[Tensor],
    rhos: Sequence[Tensor],
    charges: Sequence[Charge],
    noise: Noise,
    floor: float,
) -> tuple[tuple[Tensor, ...], Tensor, Ledger]:
    """Draw all weight tensors and their KL divergence from the prior.

    Priors that give no score are charged through autograd; the gradients are the same.
    """
    ledger = Ledger()
    *weights, kl = _Draw.apply(  # type: ignore[no-untyped-call]
        charges, noise, floor, ledger, *locs, *rhos
    )
    for weight, loc, rho, (prior, axis) in zip(weights, locs, rhos, charges, strict=True):
        if _has_closed_form(prior):
            continue
        if isinstance(prior, ExactPrior):
            kl = kl - prior.expected_log_prob(loc, softplus(rho) + floor, axis)
        else:
            kl = kl - prior.log_prob(weight, axis)
    return tuple(weights), kl, ledger


class _Draw(torch.autograd.Function):
    """All weight tensors and the KL divergence, as one step with closed-form gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        charges: Sequence[Charge],
        noise: Noise,
        floor: float,
        ledger: Ledger,
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        count = len(charges)
        locs, rhos = parameters[:count], parameters[count:]
        loops = kernel_for([*parameters, *noise.tensors]) or arithmetic
        weights, scores = [], []
        kl = 0.0
        for loc, rho, eps, eps_squares, (prior, axis) in zip(
            locs, rhos, noise.tensors, noise.squares, charges, strict=True
        ):
            group = prior.group_axes(loc, axis) if isinstance(prior, ScaleMixture) else ()
            weight, sums, squares = loops.draw(loc, rho, eps, noise.sign, floor, group or None)
            log_prob, score = _charged(prior, axis, weight, loc, sums, squares)
            # The expectation of eps^2 is 1; the estimate from a draw has what was drawn.
            surprise = weight.numel() if isinstance(prior, ExactPrior) else eps_squares
            kl -= sums.log_sigma + (surprise + weight.numel() * _LOG_2PI) / 2 + log_prob
            weights.append(weight)
            scores.append(score)
        ctx.save_for_backward(*parameters, *noise.tensors, *weights)
        ctx.scores, ctx.sign, ctx.floor = scores, noise.sign, floor
        closed = all(_has_closed_form(prior) for prior, _ in charges)
        ctx.ledger = ledger if closed else None
        return *weights, locs[0].new_tensor(kl)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *by_weights, by_kl = gradients
        kl_weight = by_kl.item()
        count = len(by_weights)
        locs, rhos, noise, weights = (
            ctx.saved_tensors[start : start + count] for start in range(0, 4 * count, count)
        )
        loops = kernel_for([*locs, *rhos, *noise]) or arithmetic
        found = [
            loops.gradient(
                *(by_weight, rho, eps, ctx.sign, ctx.floor, kl_weight, score.factor),
                *({"loc": loc, "weight": weight}.get(score.base), score.base == "loc"),
            )
            for by_weight, loc, rho, eps, weight, score in zip(
                by_weights, locs, rhos, noise, weights, ctx.scores, strict=True
            )
        ]
        by_locs, by_rhos, squares = zip(*found, strict=True)
        if ctx.ledger is not None:
            ctx.ledger.squared_gradient = sum(squares)
        return None, None, None, None, *by_locs, *by_rhos


def _has_closed_form(prior: Prior) -> bool:
    if isinstance(prior, ExactPrior):
        return isinstance(prior, Gaussian)
    return isinstance(prior, ScoredPrior)


def _charged(
    prior: Prior, axis: int, weight: Tensor, loc: Tensor, sums: Sums, squares: Tensor | None
) -> tuple[float, Score]:
    """log p of a draw, or its expectation, and the score for the way back."""
    if not _has_closed_form(prior):
        return 0.0, Score(_scalar(0.0, loc))  # autograd will charge it
    if isinstance(prior, Gaussian):
        squares = torch.tensor(sums.loc2 + sums.sigma2, dtype=torch.double)
        expected = prior.from_squares(squares, loc.numel())
        return expected.item(), Score(_scalar(-(prior.sigma**-2), loc), "loc")
    if isinstance(prior, ScaleMixture):
        if squares is None:
            squares = weight.square()
        log_prob, factor = prior.from_squares(squares, weight.numel() // squares.numel())
        return log_prob.item(), Score(factor, "weight")
    assert isinstance(prior, ScoredPrior)
    return prior.log_prob(weight, axis).item(), Score(prior.score(weight, axis))


def _scalar(value: float, like: Tensor) -> Tensor:
    return like.new_full([1] * like.dim(), value)
