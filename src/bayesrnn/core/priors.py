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
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bayesrnn.errors import ConfigError

Grouping = Literal["weight", "row", "tensor"]
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
    def from_squares(self, squares: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """log p of all groups together, and 2 d log p / d squares of each, i.e. score / weight.

        squares: the sum of the squares of each group of `size` weights.
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

    def from_squares(self, squares: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """log p, or E[log p], from the sum of (expected) squares; and score / weight."""
        constant = size * (_LOG_2PI / 2 + math.log(self.sigma))
        log_prob = -squares / (2 * self.sigma**2) - constant
        return log_prob.sum(), torch.full_like(squares, -(self.sigma**-2))


class ScaleMixture(SquaresPrior):
    """pi N(0, sigma1^2) + (1 - pi) N(0, sigma2^2): a wide slab and a narrow spike.

    `per` says which weights share one choice of component:

    - "weight": each weight chooses for itself (equation 18 of Fortunato et al.);
    - "row": all weights that leave one unit choose together (the authors' released code);
    - "tensor": the whole tensor chooses at once.

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
        if per not in ("weight", "row", "tensor"):
            raise ConfigError(f'per is {per!r}; it has to be "weight", "row" or "tensor"')
        self.pi, self.sigma1, self.sigma2, self.per = pi, sigma1, sigma2, per
        self.std = math.sqrt(pi * sigma1**2 + (1 - pi) * sigma2**2)

    def __repr__(self) -> str:
        return (
            f"ScaleMixture(pi={self.pi:g}, sigma1={self.sigma1:.4g}, "
            f"sigma2={self.sigma2:.4g}, per={self.per!r})"
        )

    def group_axes(self, dims: int, axis: int) -> tuple[int, ...]:
        """The axes along which the weights of one group lie."""
        return {"weight": (), "row": (axis,), "tensor": tuple(range(dims))}[self.per]

    def from_squares(self, squares: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """log p from the squared lengths of groups of `size` weights, and score / weight."""
        wide, narrow = self.sigma1**-2, self.sigma2**-2
        slab = math.log(self.pi) - size * math.log(self.sigma1) - squares * (wide / 2)
        spike = math.log1p(-self.pi) - size * math.log(self.sigma2) - squares * (narrow / 2)
        log_prob = torch.logaddexp(slab, spike) - size * _LOG_2PI / 2
        # 1 - r is written as a sigmoid of its own: narrow is so large that the rounding of a
        # difference from one would be felt.
        narrow_share = torch.sigmoid(spike - slab)
        return log_prob.sum(), narrow_share * (wide - narrow) - wide


def _require_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{name} is {value:g}; a standard deviation has to be above 0")
