"""What a forecaster says of the next value: a distribution around its base, and draws from it.

The parameters are in units of the window's scale, so that one network serves all series. A
temperature multiplies the standard deviation of a distribution of numbers; of counts it
multiplies the dispersion's square root.
"""

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

#: Degrees of freedom are above this, so that the variance exists and is not huge.
LEAST_NU: Final = 2.5
_SMALLEST = 1e-4
#: A value drawn lies at most so many units from its base: a path must not run away.
_FURTHEST = 50.0
_NODES, _WEIGHTS = map(torch.from_numpy, np.polynomial.legendre.leggauss(64))


class Head(ABC):
    """A distribution of the next value, given parameters [..., outputs], its base and its unit."""

    outputs: ClassVar[int]

    @abstractmethod
    def parameters(self, raw: Tensor) -> Tensor:
        """The parameters that a network's last layer means; the second one is the width."""

    def tempered(self, parameters: Tensor, temperature: float) -> Tensor:
        """The same at a temperature."""
        first, width, *rest = parameters.unbind(-1)
        return torch.stack([first, width * self.factor(temperature), *rest], -1)

    def factor(self, temperature: float) -> float:
        """What a temperature multiplies the width by."""
        return temperature

    @abstractmethod
    def log_prob(self, parameters: Tensor, y: Tensor, base: Tensor, unit: Tensor) -> Tensor:
        """The log-density of (y - base) / unit; of counts, the log-probability of y."""

    @abstractmethod
    def mean(self, parameters: Tensor, base: Tensor, unit: Tensor) -> Tensor:
        """The mean of y."""

    @abstractmethod
    def sample(
        self, parameters: Tensor, base: Tensor, unit: Tensor, generator: torch.Generator
    ) -> Tensor:
        """A value of y, in float64."""

    @abstractmethod
    def tails(self, parameters: Tensor, y: Tensor, base: Tensor, unit: Tensor) -> Tensor:
        """The probabilities of a value up to y, and of one from y on: [2, ...], in float64."""


class Gaussian(Head):
    """y = base + unit * (mu + sigma * eps), eps ~ N(0, 1)."""

    outputs: ClassVar[int] = 2

    def parameters(self, raw: Tensor) -> Tensor:
        """mu, sigma."""
        mu, sigma = raw.unbind(-1)
        return torch.stack([mu, _positive(sigma)], -1)

    def log_prob(self, parameters: Tensor, y: Tensor, base: Tensor, unit: Tensor) -> Tensor:
        """-(z^2 + log 2 pi) / 2 - log sigma, z = ((y - base) / unit - mu) / sigma."""
        mu, sigma = parameters.unbind(-1)
        z = (_scaled(y, base, unit) - mu) / sigma
        return -(z.square() + math.log(2 * math.pi)) / 2 - sigma.log()

    def mean(self, parameters: Tensor, base: Tensor, unit: Tensor) -> Tensor:
        """base + unit * mu."""
        return base + unit * parameters[..., 0].double()

    def sample(
        self, parameters: Tensor, base: Tensor, unit: Tensor, generator: torch.Generator
    ) -> Tensor:
        """By a standard normal."""
        mu, sigma = parameters.double().unbind(-1)
        noise = _normal(mu, generator)
        return base + unit * (mu + sigma * noise).clamp(-_FURTHEST, _FURTHEST)

    def tails(self, parameters: Tensor, y: Tensor, base: Tensor, unit: Tensor) -> Tensor:
        """Phi(z) and Phi(-z)."""
        mu, sigma = parameters.double().unbind(-1)
        z = ((y - base) / unit - mu) / sigma
        return torch.stack([torch.special.ndtr(z), torch.special.ndtr(-z)])


class StudentT(Head):
    """y = base + unit * (mu + sigma * t), t of a Student-t with nu degrees of freedom."""

    outputs: ClassVar[int] = 3

    def parameters(self, raw: Tensor) -> Tensor:
        """mu, sigma and nu = 2.5 + softplus."""
        mu, sigma, nu = raw.unbind(-1)
        nu = LEAST_NU + F.softplus(nu + 2.0)
        return torch.stack([mu, _positive(sigma), nu], -1)

    def log_prob(self, parameters: Tensor, y: Tensor, base: Tensor, unit: Tensor) -> Tensor:
        """With Z = log Gamma(nu/2) - log Gamma((nu+1)/2) + log(pi nu) / 2 + log sigma, it is

        -Z - (nu + 1) / 2 * log(1 + z^2 / nu).
        """
        mu, sigma, nu = parameters.unbind(-1)
        z = (_scaled(y, base, unit) - mu) / sigma
        norm = torch.lgamma(nu / 2) - torch.lgamma((nu + 1) / 2) + (math.pi * nu).log() / 2
        return -norm - sigma.log() - (nu + 1) / 2 * torch.log1p(z.square() / nu)

    def mean(self, parameters: Tensor, base: Tensor, unit: Tensor) -> Tensor:
        """base + unit * mu."""
        return base + unit * parameters[..., 0].double()

    def sample(
        self, parameters: Tensor, base: Tensor, unit: Tensor, generator: torch.Generator
    ) -> Tensor:
        """A normal over the root of a chi-square / nu, which is a gamma(nu / 2) / (nu / 2)."""
        mu, sigma, nu = parameters.double().unbind(-1)
        gamma = _gamma(nu / 2, generator).clamp_min(1e-30)
        t = _normal(mu, generator) * (nu / 2 / gamma).sqrt()
        return base + unit * (mu + sigma * t).clamp(-_FURTHEST, _FURTHEST)

    def tails(self, parameters: Tensor, y: Tensor, base: Tensor, unit: Tensor) -> Tensor:
        """With t = sqrt(nu) tan u the density is proportional to cos(u)^(nu - 1).

        The integral from atan(|t| / sqrt nu) to pi / 2 is by Gauss-Legendre quadrature.
        """
        mu, sigma, nu = parameters.double().unbind(-1)
        z = ((y - base) / unit - mu) / sigma
        start = torch.atan(z.abs() / nu.sqrt())[..., None]
        length = (math.pi / 2 - start) / 2
        u = start + length * (_NODES.to(z.device) + 1)
        density = (nu[..., None] - 1) * u.cos().clamp_min(1e-300).log()
        integral = (length * _WEIGHTS.to(z.device) * density.exp()).sum(-1)
        norm = torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2) - math.log(math.pi) / 2
        beyond = (norm.exp() * integral).clamp(0.0, 0.5)
        above = torch.where(z > 0, beyond, 1 - beyond)
        return torch.stack([1 - above, above])


class NegativeBinomial(Head):
    """Counts y with mean mu * unit and variance mean + alpha * mean^2; the base is not used."""

    outputs: ClassVar[int] = 2

    def parameters(self, raw: Tensor) -> Tensor:
        """mu, near 1 at first, and alpha."""
        mu, alpha = raw.unbind(-1)
        return torch.stack([_positive(mu + 0.5), _positive(alpha)], -1)

    def factor(self, temperature: float) -> float:
        """Its square, since alpha is a variance."""
        return temperature**2

    def log_prob(self, parameters: Tensor, y: Tensor, base: Tensor, unit: Tensor) -> Tensor:
        """With r = 1 / alpha and p = r / (r + mean), it is log C(y + r - 1, y) p^r (1 - p)^y."""
        del base
        mean, r = self._mean_and_r(parameters, unit)
        y = y.double()
        ways = torch.lgamma(y + r) - torch.lgamma(r) - torch.lgamma(y + 1)
        found = ways - r * torch.log1p(mean / r) + y * (mean.log() - (r + mean).log())
        return found.to(parameters.dtype)

    def mean(self, parameters: Tensor, base: Tensor, unit: Tensor) -> Tensor:
        """unit * mu."""
        del base
        return unit * parameters[..., 0].double()

    def sample(
        self, parameters: Tensor, base: Tensor, unit: Tensor, generator: torch.Generator
    ) -> Tensor:
        """A Poisson whose rate is a gamma with mean `mean` and shape r."""
        del base
        mean, r = self._mean_and_r(parameters, unit)
        return _poisson(_gamma(r, generator) / r * mean, generator)

    def tails(self, parameters: Tensor, y: Tensor, base: Tensor, unit: Tensor) -> Tensor:
        """Sums of the probabilities of 0, ..., y; y itself is in both tails."""
        most = int(y.max().clamp_min(0).item())
        counts = torch.arange(most + 1, dtype=torch.double, device=y.device)
        counts = counts.view(-1, *(1,) * y.dim())
        found = self.log_prob(parameters.double(), counts, base, unit).exp()
        up_to = (found * (counts <= y)).sum(0).clamp(max=1.0)
        below = (found * (counts < y)).sum(0).clamp(max=1.0)
        return torch.stack([up_to, 1 - below])

    @staticmethod
    def _mean_and_r(parameters: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
        mu, alpha = parameters.double().unbind(-1)
        return unit * mu, 1 / alpha


HEADS: Final[dict[str, Head]] = {
    "student-t": StudentT(),
    "gaussian": Gaussian(),
    "negative-binomial": NegativeBinomial(),
}


def _positive(raw: Tensor) -> Tensor:
    return F.softplus(raw) + _SMALLEST


def _scaled(y: Tensor, base: Tensor, unit: Tensor) -> Tensor:
    """In float32 only now: a difference of large numbers is small."""
    return ((y - base) / unit).float()


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.randn(
        like.shape, dtype=torch.double, device=generator.device, generator=generator
    )
    return drawn.to(like.device)


def _gamma(shape: Tensor, generator: torch.Generator) -> Tensor:
    # A generator draws on its own device alone.
    return torch._standard_gamma(shape.to(generator.device), generator).to(shape.device)


def _poisson(rate: Tensor, generator: torch.Generator) -> Tensor:
    return torch.poisson(rate.to(generator.device), generator).to(rate.device)
