"""Where the posterior's standard deviations start."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesrnn.core.priors import Prior
from bayesrnn.errors import ConfigError


@dataclass(frozen=True)
class Scale:
    """Standard deviations drawn uniformly from [low, high].

    With `relative`, low and high count in standard deviations of the prior.
    """

    low: float
    high: float
    relative: bool

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high:
            raise ConfigError(
                f"initial standard deviations between {self.low:g} and {self.high:g} cannot be; "
                "they need 0 < low <= high"
            )

    def draw(self, like: Tensor, prior: Prior, generator: torch.Generator | None) -> Tensor:
        """Initial standard deviations for a weight tensor under `prior`."""
        unit = 1.0
        if self.relative:
            if prior.std is None:
                raise ConfigError(
                    f"sigma_init is relative to the prior, but {prior!r} does not give its "
                    "standard deviation: add a property std to it, or use "
                    "sigma_init=bayesrnn.absolute(low, high)"
                )
            unit = prior.std
        uniform = torch.empty_like(like, requires_grad=False)
        uniform.uniform_(self.low * unit, self.high * unit, generator=generator)
        return uniform


def absolute(low: float, high: float | None = None) -> Scale:
    """Standard deviations of `low`, or uniformly between `low` and `high`."""
    return Scale(low, low if high is None else high, relative=False)


def relative(low: float, high: float | None = None) -> Scale:
    """The same, in standard deviations of the prior."""
    return Scale(low, low if high is None else high, relative=True)
