"""Numbers predicted with uncertainty: a mixture of normal distributions, one for each draw."""

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from bayesrnn.errors import ConfigError
from bayesrnn.uncertainty.average import RunningMoments
from bayesrnn.uncertainty.plot import plot_numbers

#: Components kept for quantiles. Up to twice as many draws are kept exactly.
_COMPONENTS = 64


@dataclass(frozen=True)
class Regression:
    """How the output of a network is taken as a number with noise around it.

    noise: the standard deviation of the data around the network's output, where it is known (such
        as the root of the validation error). With 0, only what the draws disagree on is uncertain.
    log_variance: the network gives the noise itself: the first half of its last axis holds means,
        the second half logarithms of variances (Kendall & Gal 2017).
    """

    noise: float = 0.0
    log_variance: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.noise < math.inf:
            raise ConfigError(f"noise is {self.noise:g}; it has to be 0 or more")
        if self.noise and self.log_variance:
            raise ConfigError(
                "give noise or log_variance, not both: the noise is known or the network gives it"
            )

    def average(self) -> "AverageNumbers":
        """The mixture of what draws predict, without any draw in it yet."""
        return AverageNumbers(self)

    def read(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of one draw's prediction."""
        output = output.float() if output.dtype in (torch.half, torch.bfloat16) else output
        if not self.log_variance:
            return output, torch.full_like(output, self.noise**2)
        if output.dim() == 0 or output.shape[-1] % 2:
            raise ConfigError(
                f"the network's output has the shape {list(output.shape)}; with log_variance its "
                "last axis has to hold as many logarithms of variances as means"
            )
        mean, log_variance = output.chunk(2, dim=-1)
        return mean, log_variance.exp()


@dataclass  # not frozen, as `Prediction`
class RegressionPrediction:
    """Numbers predicted by draws, with their uncertainty as variances.

    total = aleatoric + epistemic: the mean variance within draws, which is the noise of the data
    itself, and the variance of the means between draws, which more data could reduce.
    """

    mean: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    _mixture: "_Mixture" = field(repr=False)

    @property
    def total(self) -> Tensor:
        """The variance of the prediction."""
        return self.aleatoric + self.epistemic

    def quantile(self, level: float) -> Tensor:
        """The number that the truth is below with probability `level`: 0.5 gives the median.

        It is that of the mixture of all draws, which is not a normal distribution. It is exact for
        up to 128 draws, and for more right to about 0.01 in probability where draws come in no
        particular order.
        """
        if not 0 < level < 1:
            raise ConfigError(f"level is {level:g}; it has to be between 0 and 1")
        return self._mixture.quantile(level)

    def log_density(self, value: Tensor) -> Tensor:
        """The logarithm of the mixture's density at `value`: as exact as `quantile`."""
        return self._mixture.log_density(value)

    def interval(self, share: float = 0.95) -> tuple[Tensor, Tensor]:
        """The bounds between which the truth lies with probability `share`, tails equal."""
        if not 0 < share < 1:
            raise ConfigError(f"share is {share:g}; it has to be between 0 and 1")
        return self.quantile((1 - share) / 2), self.quantile((1 + share) / 2)

    def plot(self, x: Any = None, y: Any = None, *, share: float = 0.95, ax: Any = None) -> Any:
        """Draw mean and interval, and the epistemic part inside; gives the matplotlib axes.

        x: where each prediction stands, else in order; y: the truths, as points.
        """
        return plot_numbers(self, x, y, share, ax)


class AverageNumbers:
    """The mixture of the draws that were added, and its moments."""

    def __init__(self, head: Regression) -> None:
        self._head = head
        self._means = RunningMoments()
        self._variances = RunningMoments()
        self._mixture = _Mixture()

    def add(self, output: Tensor) -> None:
        """Add the output of one more network."""
        mean, variance = self._head.read(output.detach())
        self._means.add(mean)
        self._variances.add(variance)
        self._mixture.add(mean, variance)

    def prediction(self) -> RegressionPrediction:
        """The prediction of the draws so far."""
        means, variances = self._means, self._variances
        return RegressionPrediction(means.mean, variances.mean, means.variance(), self._mixture)


class _Mixture:
    """A mixture of normal distributions for every predicted number, of bounded size.

    When it is full, neighbours (in the order of their means) are merged in pairs into normal
    distributions with the same mean and variance, so that memory does not grow with the draws.
    """

    def __init__(self) -> None:
        self._weights: list[Tensor] = []
        self._means: list[Tensor] = []
        self._variances: list[Tensor] = []

    def add(self, mean: Tensor, variance: Tensor) -> None:
        if len(self._means) == 2 * _COMPONENTS:
            self._merge()
        self._weights.append(torch.ones_like(mean))
        self._means.append(mean.clone())  # it may be a buffer that the network uses again
        self._variances.append(variance)

    def quantile(self, level: float) -> Tensor:
        weights, means, variances = self._stacked()
        deviations = variances.sqrt()
        at_level = means + deviations * NormalDist().inv_cdf(level)
        # The quantile of a mixture lies between those of its components.
        low: Tensor = at_level.amin(0)
        high: Tensor = at_level.amax(0)
        steps = (deviations * math.sqrt(2)).clamp_min(torch.finfo(means.dtype).tiny)
        # Compare the smaller tail, 1/2 erfc, which has digits where a probability near 1 has none.
        upper = level > 0.5
        wanted = 2 * (1 - level if upper else level) * weights.sum(0)
        for _ in range(60):  # as many halvings as a float64 has use for
            middle = (low + high) / 2
            inwards = middle - means if upper else means - middle
            tail = (weights * torch.erfc(inwards / steps)).sum(0)
            below = tail > wanted if upper else tail < wanted
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return high

    def log_density(self, value: Tensor) -> Tensor:
        weights, means, variances = self._stacked()
        away = value - means
        # Without noise all probability is in one point: infinitely dense there, and zero elsewhere.
        squares = torch.where(away == 0, 0.0, away.square() / variances)
        costs = squares + (2 * math.pi * variances).log()
        logs = weights.log() - torch.where(squares.isinf(), squares, costs) / 2
        return logs.logsumexp(0) - weights.sum(0).log()

    def _stacked(self) -> tuple[Tensor, Tensor, Tensor]:
        return torch.stack(self._weights), torch.stack(self._means), torch.stack(self._variances)

    def _merge(self) -> None:
        weights, means, variances = self._stacked()
        order = means.argsort(0)
        weights, means, variances = (t.gather(0, order) for t in (weights, means, variances))
        weight = weights[::2] + weights[1::2]
        share = weights[::2] / weight
        mean = torch.lerp(means[1::2], means[::2], share)
        within = torch.lerp(variances[1::2], variances[::2], share)
        between = share * (1 - share) * (means[::2] - means[1::2]).square()
        self._weights, self._means = list(weight), list(mean)
        self._variances = list(within + between)
