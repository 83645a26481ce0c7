"""Priors: densities over one weight tensor.

A prior of your own is one small class with `log_prob`. Derive it from `ScoredPrior` and give it
`score` as well, and its gradient takes the fast path; derive it from `ExactPrior` and give it
`expected_log_prob`, and its KL divergence is exact. A density that depends on sums of squared
weights alone is a `SquaresPrior`, and the compiled loops do all of its work.

A subclass of any of them may state its density anew by whichever of these methods it likes: the one
that the most derived class defines is asked (see `density_from`).

`log_prob` and `score` are given `axis`, the axis of the tensor along which the weights that leave
one unit lie (the outputs of a linear layer, the components of a word vector). A prior that treats
each weight on its own has no use for it.
"""

import functools
import math
from abc import ABC, abstractmethod
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from bayesrnn.errors import ConfigError

Grouping = Literal["weight", "row", "column", "tensor"]
#: How many weights there are in a group: the same number in all, or one for each.
Sizes = int | Tensor
DensityMethod = Literal["from_squares", "expected_log_prob", "score", "log_prob"]

_LOG_2PI = math.log(2 * math.pi)


class Prior(ABC):
    """A density p over a weight tensor."""

    #: The standard deviation of one weight, if known: what `relative` initialisation uses.
    std: float | None = None

    @abstractmethod
    def log_prob(self, weight: Tensor, axis: int) -> Tensor:
        """log p(weight), summed to one number."""


class ScoredPrior(Prior):
    """A prior that also gives its score, s(weight) = d log p(weight) / d weight."""

    @abstractmethod
    def score(self, weight: Tensor, axis: int) -> Tensor:
        """The score, of the shape of `weight`."""


class ExactPrior(Prior):
    """A prior whose expectation under a Gaussian posterior N(loc, sigma^2) has a closed form."""

    @abstractmethod
    def expected_log_prob(self, loc: Tensor, sigma: Tensor, axis: int) -> Tensor:
        """E[log p(weight)], summed to one number."""


class SquaresPrior(ScoredPrior):
    """A prior whose density over a group of weights depends on the sum of their squares alone.

    expected: whether `from_squares` may be given expected squares, sum(loc^2 + sigma^2): it then
        gives E[log p], and the KL divergence is exact. Else it is given those of a draw.
    """

    expected: ClassVar[bool] = False

    @abstractmethod
    def group_axes(self, dims: int, axis: int) -> tuple[int, ...]:
        """The axes of a tensor of `dims` axes along which the weights of one group lie."""

    @abstractmethod
    def from_squares(self, squares: Tensor, size: Sizes) -> tuple[Tensor, Tensor]:
        """log p of all groups together, and 2 d log p / d squares of each, i.e. score / weight.

        squares: the sum of the squares of each group of `size` weights.
        size: one number for all groups; where weights were dropped, a tensor like `squares`.
        """

    def log_prob(self, weight: Tensor, axis: int) -> Tensor:
        """log p(weight), summed to one number."""
        return self._from(weight.square(), axis)[0]

    def score(self, weight: Tensor, axis: int) -> Tensor:
        """The score, of the shape of `weight`."""
        return weight * self._from(weight.square(), axis)[1]

    def _from(self, squares: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        """`from_squares` of the squares of single weights."""
        axes, total = self.group_axes(squares.dim(), axis), squares.numel()
        if axes:
            squares = squares.sum(axes, keepdim=True)
        return self.from_squares(squares, total // max(squares.numel(), 1))


@functools.cache
def density_from(prior: type[Prior]) -> DensityMethod:
    """The method that states the density of a prior.

    It is the one that the most derived class defines; of several that one class defines, the
    fastest.
    """

    def depth(name: str) -> int:
        """How far up a method was written; a subclass may name its parent's as its own."""
        function = getattr(prior, name, None)
        if function is None or getattr(function, "__isabstractmethod__", False):
            return len(prior.__mro__)
        written = (n for n, cls in enumerate(prior.__mro__) if vars(cls).get(name) is function)
        return max(written)

    order: tuple[DensityMethod, ...] = ("from_squares", "expected_log_prob", "score", "log_prob")
    return min(order, key=depth)


class _ByGroup(SquaresPrior):
    """A prior under which the weights of a group, chosen by `per`, share something.

    - "weight": each weight is a group of its own;
    - "row": all weights that leave one unit (a column of a matrix [out, in]; one word's vector);
    - "column": all weights that enter one unit;
    - "tensor": the whole tensor.
    """

    per: Grouping

    def group_axes(self, dims: int, axis: int) -> tuple[int, ...]:
        """The axes along which the weights of one group lie."""
        every = tuple(range(dims))
        others = tuple(place for place in every if place != axis)
        return {"weight": (), "row": (axis,), "column": others, "tensor": every}[self.per]


class Gaussian(SquaresPrior, ExactPrior):
    """N(0, sigma^2) for each weight; the KL divergence to it is exact."""

    expected: ClassVar[bool] = True

    def __init__(self, sigma: float = 1.0) -> None:
        _require_positive("sigma", sigma)
        self.sigma = self.std = sigma

    def __repr__(self) -> str:
        return f"Gaussian(sigma={self.sigma:g})"

    def expected_log_prob(self, loc: Tensor, sigma: Tensor, axis: int) -> Tensor:
        """E[log p(weight)], summed to one number."""
        return self._from(loc.square() + sigma.square(), axis)[0]

    def group_axes(self, dims: int, axis: int) -> tuple[int, ...]:
        """All: the sum over the tensor is all that is needed."""
        return tuple(range(dims))

    def from_squares(self, squares: Tensor, size: Sizes) -> tuple[Tensor, Tensor]:
        """log p, or E[log p], from the sum of (expected) squares; and score / weight."""
        constant = size * (_LOG_2PI / 2 + math.log(self.sigma))
        log_prob = -squares / (2 * self.sigma**2) - constant
        return log_prob.sum(), torch.full_like(squares, -(self.sigma**-2))


class FittedGaussian(_ByGroup, ExactPrior):
    """N(0, s^2) with a scale s for each group of weights, chosen by `per`, that fits itself.

    The scale has a prior, s^2 ~ InvGamma(a, b), and is integrated out: a group of n weights w is a
    multivariate Student-t,

        log p(w) = lgamma(a + n/2) - lgamma(a) + a log b - n/2 log(2 pi)
                   - (a + n/2) log(b + |w|^2 / 2)

    Its expectation under the posterior is bounded by putting E|w|^2 = sum(loc^2 + sigma^2) in place
    of |w|^2 (Jensen's inequality), so what is charged is never below the KL divergence. The pull
    towards 0 is that of a Gaussian with 1 / s^2 = (n + 2a) / (E|w|^2 + 2b): nothing is to be
    chosen, learnt or saved. A group without use shrinks, means and widths together, until s^2 is
    about b / (a + n/2); with per="weight" that is automatic relevance determination.

    a, b: of the inverse gamma distribution; b is the square of about the smallest scale.
    std: what initial standard deviations that are `relative` are relative to.
    """

    expected: ClassVar[bool] = True

    def __init__(
        self, per: Grouping = "tensor", a: float = 1.0, b: float = 1e-4, std: float = 0.2
    ) -> None:
        _require_grouping(per)
        for name, value in {"a": a, "b": b}.items():
            if not 0 < value < math.inf:
                raise ConfigError(
                    f"{name} of the inverse gamma prior is {value:g}; it has to be above 0"
                )
        _require_positive("std", std)
        self.per, self.a, self.b, self.std = per, a, b, std

    def __repr__(self) -> str:
        return f"FittedGaussian(per={self.per!r}, a={self.a:g}, b={self.b:g})"

    def expected_log_prob(self, loc: Tensor, sigma: Tensor, axis: int) -> Tensor:
        """A lower bound of E[log p(weight)], summed to one number."""
        return self._from(loc.square() + sigma.square(), axis)[0]

    def from_squares(self, squares: Tensor, size: Sizes) -> tuple[Tensor, Tensor]:
        """log p, or a bound of E[log p], from the sum of (expected) squares; and score / weight."""
        shape = self.a + size / 2
        constant = _lgamma(shape) - math.lgamma(self.a) + self.a * math.log(self.b)
        rate = squares / 2 + self.b
        log_prob = constant - size * _LOG_2PI / 2 - shape * rate.log()
        return log_prob.sum(dtype=torch.double), -shape / rate


class ScaleMixture(_ByGroup):
    """pi N(0, sigma1^2) + (1 - pi) N(0, sigma2^2): a wide slab and a narrow spike.

    `per` says which weights share one choice of component: with "weight" each chooses for itself
    (equation 18 of Fortunato et al.); with "row", all that leave one unit choose together (the
    authors' released code); "column" is all that enter one unit, "tensor" all at once.

    With the squared length q of a group of n weights, the odds of the slab are
    r / (1 - r) = pi / (1 - pi) * (sigma2 / sigma1)^n * exp(q (sigma2^-2 - sigma1^-2) / 2), and the
    score is -weight * (r / sigma1^2 + (1 - r) / sigma2^2).
    """

    def __init__(
        self,
        pi: float = 0.25,
        sigma1: float = math.exp(-1),
        sigma2: float = math.exp(-7),
        per: Grouping = "row",
    ) -> None:
        if not 0 < pi < 1:
            raise ConfigError(f"the mixture weight pi is {pi:g}; it has to lie between 0 and 1")
        _require_positive("sigma1", sigma1)
        _require_positive("sigma2", sigma2)
        _require_grouping(per)
        self.pi, self.sigma1, self.sigma2, self.per = pi, sigma1, sigma2, per
        self.std: float = math.sqrt(pi * sigma1**2 + (1 - pi) * sigma2**2)

    def __repr__(self) -> str:
        return (
            f"ScaleMixture(pi={self.pi:g}, sigma1={self.sigma1:.4g}, "
            f"sigma2={self.sigma2:.4g}, per={self.per!r})"
        )

    def from_squares(self, squares: Tensor, size: Sizes) -> tuple[Tensor, Tensor]:
        """log p from the squared lengths of groups of `size` weights, and score / weight."""
        wide, narrow = self.sigma1**-2, self.sigma2**-2
        slab = math.log(self.pi) - size * math.log(self.sigma1) - squares * (wide / 2)
        spike = math.log1p(-self.pi) - size * math.log(self.sigma2) - squares * (narrow / 2)
        log_prob = torch.logaddexp(slab, spike) - size * _LOG_2PI / 2
        # 1 - r is written as a sigmoid of its own: narrow is so large that the rounding of a
        # difference from one would be felt.
        narrow_share = torch.sigmoid(spike - slab)
        return log_prob.sum(), narrow_share * (wide - narrow) - wide


def _lgamma(value: float | Tensor) -> float | Tensor:
    return torch.lgamma(value) if isinstance(value, Tensor) else math.lgamma(value)


def _require_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{name} is {value:g}; a standard deviation has to be above 0")


def _require_grouping(per: str) -> None:
    if per not in get_args(Grouping):
        choices = ", ".join(f'"{choice}"' for choice in get_args(Grouping))
        raise ConfigError(f"per is {per!r}; it has to be one of {choices}")
