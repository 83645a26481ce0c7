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
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bayesrnn.core.kernel import reference
from bayesrnn.core.kernel.compiled import kernel_for
from bayesrnn.core.kernel.reference import Number, Squares, Sums, softplus, wide
from bayesrnn.core.noise import Noise
from bayesrnn.core.priors import (
    ExactPrior,
    Prior,
    ScoredPrior,
    Sizes,
    SquaresPrior,
    density_from,
)
from bayesrnn.errors import ConfigError

T = TypeVar("T")

_LOG_2PI = math.log(2 * math.pi)


#: The rho of a weight that was dropped: softplus of it is 0 beside any floor, and its logarithm is
#: still a number.
DROPPED_RHO = -60.0


class PriorTerm(NamedTuple):
    """The prior of one weight tensor, and the axis along which the weights of a unit lie.

    dropped: how many of its weights are 0 for good (see `Bayesian.drop`) and cost nothing.
    sizes: how many weights each group of a `SquaresPrior` has left; None where none was dropped.
    """

    prior: Prior
    axis: int
    dropped: int = 0
    sizes: Tensor | None = None

    def without(self, dropped: Tensor) -> "PriorTerm":
        """The same prior of a tensor without the weights where the mask `dropped` is true."""
        prior, axes = self.prior, tuple(range(dropped.dim()))
        if density_from(type(prior)) == "from_squares":
            assert isinstance(prior, SquaresPrior)
            axes = prior.group_axes(dropped.dim(), self.axis)
        sizes = (~dropped).sum(axes, keepdim=True) if axes else ~dropped
        return self._replace(dropped=int(dropped.sum()), sizes=sizes)

    def sizes_for(self, squares: Tensor, weights: int) -> Sizes:
        """The size of each group whose `squares` are given, of a tensor with so many weights."""
        return weights // squares.numel() if self.sizes is None else self.sizes.to(squares)


class BackwardStats:
    """Quantities computed for free on the way.

    factors: of each tensor, score / weight of its prior, from the draw; None in code that was
        compiled by torch.compile.
    squares: the squared lengths of the gradients by all loc and by all rho; None before the
        backward pass, where autograd adds to those gradients (priors without a closed form), and in
        code that was compiled by torch.compile.
    """

    factors: Sequence[Tensor] | None = None
    squares: Squares | None = None


class Factor(NamedTuple):
    """The posterior of one weight tensor, N(loc, sigma^2), beside its prior.

    kl: KL[q || p] in nats; as in a draw it is exact, or from one draw of the weights.
    """

    loc: Tensor
    sigma: Tensor
    term: PriorTerm
    kl: float


@torch.no_grad()
def factors(
    locs: Sequence[Tensor],
    rhos: Sequence[Tensor],
    terms: Sequence[PriorTerm],
    noise: Noise,
    floor: float,
) -> list[Factor]:
    """What `draw` draws and charges all at once, tensor by tensor."""
    found = []
    for place, (loc, rho, term) in enumerate(zip(locs, rhos, terms, strict=True)):
        one = slice(place, place + 1)
        own = Noise(noise.seed, noise.tensors[one], noise.squares[one], noise.sign)
        _, kl, _ = draw([loc], [rho], [term], own, floor)
        found.append(Factor(loc.detach(), softplus(rho.detach()) + floor, term, kl.item()))
    return found


def draw(
    locs: Sequence[Tensor],
    rhos: Sequence[Tensor],
    terms: Sequence[PriorTerm],
    noise: Noise,
    floor: float,
    pull: bool = True,
) -> tuple[tuple[Tensor, ...], Tensor, BackwardStats]:
    """Draw all weight tensors and their KL divergence from the prior.

    Priors that give no score are charged through autograd; the gradients are the same.

    pull: whether the KL divergence has a gradient by the means; `Bayesian.pull` is for where it has
        none.
    """
    stats = BackwardStats()
    *weights, kl = _Draw.apply(  # type: ignore[no-untyped-call]
        terms, noise.sign, floor, stats, pull, noise.squares, *locs, *rhos, *noise.tensors
    )
    for weight, loc, rho, term in zip(weights, locs, rhos, terms, strict=True):
        prior, axis = term.prior, term.axis
        method = density_from(type(prior))
        if method == "expected_log_prob":
            assert isinstance(prior, ExactPrior)
            kl = kl - prior.expected_log_prob(wide(loc), softplus(wide(rho)) + floor, axis)
        elif method == "log_prob":
            kl = kl - prior.log_prob(wide(weight), axis)
    return tuple(weights), kl, stats


def require_pull(terms: Mapping[str, PriorTerm]) -> None:
    """Refuse priors that cannot pull by themselves: by expected squares alone."""
    for name, term in terms.items():
        if density_from(type(term.prior)) != "from_squares" or not _is_exact(term.prior):
            raise ConfigError(
                f"the prior of {name}, {term.prior}, cannot pull the means by a step of its "
                "own; use Gaussian or FittedGaussian, or leave the pull to the KL's gradient"
            )


class _Draw(torch.autograd.Function):
    """All weight tensors and the KL divergence, as one step with closed-form gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        terms: Sequence[PriorTerm],
        sign: int,
        floor: float,
        stats: BackwardStats,
        pull: bool,
        noise_squares: Tensor,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        locs, rhos, noise = split(tensors, 3)
        loops = kernel_for(tensors) or reference
        weights, scores = [], []
        kl: Number = 0.0
        least = math.log(math.log1p(math.exp(DROPPED_RHO)) + floor)
        for loc, rho, eps, eps_squares, term in zip(
            locs, rhos, noise, _numbers(noise_squares), terms, strict=True
        ):
            prior = term.prior
            group, expected = _grouping(prior, loc.dim(), term.axis)
            weight, sums, squares = loops.draw(loc, rho, eps, sign, floor, group or (), expected)
            if group is not None and squares is None:
                squares = wide(weight).square()
                if expected:
                    squares = wide(loc).square() + (softplus(wide(rho)) + floor).square()
                squares = squares.sum(group, keepdim=True) if group else squares
            log_prob, score = _closed_form(term, wide(weight), sums, squares)
            # The expectation of eps^2 is 1; the estimate from a draw has what was drawn.
            surprise = weight.numel() if _is_exact(prior) else eps_squares
            entropy = sums.log_sigma + (surprise + weight.numel() * _LOG_2PI) / 2
            entropy = entropy - term.dropped * (least + (1 + _LOG_2PI) / 2)
            kl = kl - (entropy + log_prob)
            weights.append(weight)
            scores.append(score)
        ctx.save_for_backward(*tensors, *weights, *(score.factor for score in scores))
        ctx.bases = [score.base for score in scores]
        ctx.sign, ctx.floor, ctx.pull = sign, floor, pull
        ctx.stats = None
        closed = all(_has_closed_form(term.prior) for term in terms)
        if closed and not torch.compiler.is_compiling():
            ctx.stats = stats
            stats.factors = [score.factor for score in scores]
        dtype = reference.wide_type(loc)
        if not isinstance(kl, Tensor):
            kl = torch.tensor(kl, dtype=dtype, device=loc.device)
        return *weights, kl.to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *by_weights, by_kl = gradients
        locs, rhos, noise, weights, factors = split(ctx.saved_tensors, 5)
        loops = kernel_for([*locs, *rhos, *noise]) or reference
        by_locs, by_rhos, squares = [], [], []
        for by_weight, loc, rho, eps, weight, factor, base in zip(
            by_weights, locs, rhos, noise, weights, factors, ctx.bases, strict=True
        ):
            by_loc, by_rho, length = loops.gradient(
                by_weight,
                rho,
                eps,
                ctx.sign,
                ctx.floor,
                by_kl,
                factor,
                {"loc": loc, "weight": weight, None: None}[base],
                exact=base == "loc",
            )
            if not ctx.pull:
                by_loc, length = by_weight, length._replace(by_loc=loops.sum_of_squares(by_weight))
            by_locs.append(by_loc)
            by_rhos.append(by_rho)
            squares.append(length)
        if ctx.stats is not None:
            ctx.stats.squares = Squares(*map(sum, zip(*squares, strict=True)))
        return *(None,) * 6, *by_locs, *by_rhos, *(None,) * len(noise)


class _Score(NamedTuple):
    """The score of a prior on a draw: factor times the weight, times the loc, or alone.

    Times the loc, it is the derivative of an exact expectation.
    """

    factor: Tensor
    base: Literal["weight", "loc"] | None = None


def _closed_form(
    term: PriorTerm, weight: Tensor, sums: Sums, squares: Tensor | None
) -> tuple[Number, _Score]:
    """log p of a draw, or its expectation, and the score for the backward pass."""
    prior, axis = term.prior, term.axis
    if not _has_closed_form(prior):
        return 0.0, _Score(weight.new_zeros([1] * weight.dim()))  # autograd will charge it
    if density_from(type(prior)) == "score":
        assert isinstance(prior, ScoredPrior)
        return _number(prior.log_prob(weight, axis)), _Score(prior.score(weight, axis))
    assert isinstance(prior, SquaresPrior)
    if squares is None:  # of the whole tensor, from its sums in double precision
        squares = torch.as_tensor(sums.loc2 + sums.sigma2, dtype=torch.double)
        squares = squares.to(weight.device).view([1] * weight.dim())
    log_prob, factor = prior.from_squares(squares, term.sizes_for(squares, weight.numel()))
    base: Literal["weight", "loc"] = "loc" if prior.expected else "weight"
    return _number(log_prob), _Score(factor.to(weight.dtype), base)


def _grouping(prior: Prior, dims: int, axis: int) -> tuple[tuple[int, ...] | None, bool]:
    """The axes over which squares have to be summed, and whether it is their expectation.

    None where they are not needed, or known from the sums over the tensor.
    """
    if density_from(type(prior)) != "from_squares":
        return None, False
    assert isinstance(prior, SquaresPrior)
    group = prior.group_axes(dims, axis)
    return (None if prior.expected and len(group) == dims else group), prior.expected


def _has_closed_form(prior: Prior) -> bool:
    return density_from(type(prior)) in ("from_squares", "score")


def _is_exact(prior: Prior) -> bool:
    """Whether the expectation of the prior's log-density is charged, not its value at the draw."""
    method = density_from(type(prior))
    if method == "from_squares":
        assert isinstance(prior, SquaresPrior)
        return prior.expected
    return method == "expected_log_prob"


def _number(value: Tensor) -> Number:
    """A tensor's number; while torch.compile looks on, it is unknown, and the tensor has to do."""
    return value.double() if torch.compiler.is_compiling() else value.item()


def _numbers(values: Tensor) -> Sequence[Number]:
    if torch.compiler.is_compiling():
        return values.unbind()
    numbers: list[float] = values.tolist()
    return numbers


def split(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Items in so many parts of equal length."""
    count = len(items) // parts
    return [items[start : start + count] for start in range(0, parts * count, count)]
