"""Priors: densities over one weight tensor.

A prior of your own is one small class with `log_prob`. Derive it from `ScoredPrior` and give it
`score` as well, and its gradient takes the fast path; derive it from `ExactPrior` and give it
`expected_log_prob`, and its KL divergence is exact.

`log_prob` and `score` are given `axis`, the axis of the tensor along which the weights that leave
one unit lie (the outputs of a linear layer, the components of a word vector). A prior that treats
each weight on its own has no use for it.
"""

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from bayesrnn.errors import ConfigError

Grouping = Literal["weight", "row", "tensor"]

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


class Gaussian(ExactPrior):
    """N(0, sigma^2) for each weight; the KL divergence to it is exact."""

    def __init__(self, sigma: float = 1.0) -> None:
        _require_positive("sigma", sigma)
        self.sigma = self.std = sigma

    def __repr__(self) -> str:
        return f"Gaussian(sigma={self.sigma:g})"

    def log_prob(self, weight: Tensor, axis: int) -> Tensor:
        """log p(weight), summed to one number."""
        return self.from_squares(weight.square().sum(), weight.numel())

    def expected_log_prob(self, loc: Tensor, sigma: Tensor, axis: int) -> Tensor:
        """E[log p(weight)], summed to one number."""
        return self.from_squares((loc.square() + sigma.square()).sum(), loc.numel())

    def from_squares(self, squares: Tensor, size: int) -> Tensor:
        """log p of `size` weights, from the sum (or expected sum) of their squares."""
        constant = size * (_LOG_2PI / 2 + math.log(self.sigma))
        return -squares / (2 * self.sigma**2) - constant


class ScaleMixture(ScoredPrior):
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

    def log_prob(self, weight: Tensor, axis: int) -> Tensor:
        """log p(weight), summed to one number."""
        return self.from_squares(*self._squares(weight, axis))[0]

    def score(self, weight: Tensor, axis: int) -> Tensor:
        """The score, of the shape of `weight`."""
        return weight * self.from_squares(*self._squares(weight, axis))[1]

    def group_axes(self, weight: Tensor, axis: int) -> tuple[int, ...]:
        """The axes along which the weights of one group lie."""
        every = tuple(range(weight.dim()))
        return {"weight": (), "row": (axis,), "tensor": every}[self.per]

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

    def _squares(self, weight: Tensor, axis: int) -> tuple[Tensor, int]:
        axes = self.group_axes(weight, axis)
        squares = weight.square()
        if axes:
            squares = squares.sum(axes, keepdim=True)
        return squares, weight.numel() // max(squares.numel(), 1)


def _require_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{name} is {value:g}; a standard deviation has to be above 0")
