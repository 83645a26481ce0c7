"""Weights: one value for each named parameter of a network."""

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from bayesrnn.core.kernel.reference import Squares
from bayesrnn.core.noise import Noise
from bayesrnn.core.posterior import BackwardStats
from bayesrnn.errors import ConfigError


class Weights(Mapping[str, Tensor]):
    """A mapping from parameter name to tensor, with what it cost to draw it.

    Pass it to the network that made it: `net(x, weights=weights)`. With the summed negative
    log-likelihood `nll` of a minibatch its loss is, for a draw, sharpened or not,

        nll + weights.minibatch_kl + weights.kl / number_of_minibatches
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        kl: Tensor | None = None,
        noise: Noise | None = None,
        stats: BackwardStats | None = None,
        minibatch_kl: Tensor | None = None,
        noise_slope: Tensor | None = None,
    ) -> None:
        self._tensors = dict(tensors)
        self._kl = kl
        self._noise = noise
        self._stats = stats
        self._minibatch_kl = minibatch_kl
        self._noise_slope = noise_slope

    @property
    def kl(self) -> Tensor:
        """KL[q || p] between posterior and prior, one number for all weights together.

        Exact where the prior has a closed form, otherwise estimated from this very draw:
        log q(weights) - log p(weights).
        """
        if self._kl is None:
            raise ConfigError("these weights are the posterior mean, not a draw: they have no KL")
        return self._kl

    @property
    def minibatch_kl(self) -> Tensor:
        """What sharpening cost, KL[q(theta | phi) || p(theta | phi)]; zero for an ordinary draw.

        It is charged in full for each minibatch, and is exact; `kl` is charged once per epoch.
        """
        if self._minibatch_kl is not None:
            return self._minibatch_kl
        if self._kl is None:
            raise ConfigError(
                "these weights are the posterior mean, neither drawn nor sharpened: they have no KL"
            )
        return self._kl.new_zeros(())

    @property
    def is_sharpened(self) -> bool:
        """Whether these weights are the result of `Bayesian.sharpen`."""
        return self._minibatch_kl is not None

    def sharpened(
        self,
        tensors: Mapping[str, Tensor],
        minibatch_kl: Tensor,
        noise_slope: Tensor | None = None,
    ) -> "Weights":
        """Sharpened `tensors` in place of these; what drawing these has cost stays."""
        return Weights(tensors, self._kl, self._noise, self._stats, minibatch_kl, noise_slope)

    @property
    def noise_slope(self) -> Tensor:
        """What the noise of sharpening adds to the loss to first order, where that is known.

        Its mean is 0 whatever the gradient was, so that an estimate of the bound from one draw may
        leave it out: it is most of the variance.
        """
        if self._noise_slope is None:
            raise ConfigError("the slope of the noise is known of the shrinking form alone")
        return self._noise_slope

    @property
    def noise(self) -> Noise:
        """The standard normal noise behind the draw."""
        if self._noise is None:
            raise ConfigError(
                "these weights are the posterior mean, not a draw: no noise is in them"
            )
        return self._noise

    @property
    def prior_factors(self) -> Sequence[Tensor]:
        """Score / weight of each tensor's prior at the draw: minus its precision, by group."""
        factors = None if self._stats is None else self._stats.factors
        if factors is None:
            raise ConfigError("these weights are no draw, or one that torch.compile compiled")
        return factors

    @property
    def squared_gradients(self) -> Squares | None:
        """The squared lengths of the gradients by all means and by all rhos, after `backward`.

        Sharpening's own parameters, eta, are not in it.

        None where they are not known. It saves going through all gradients again to clip them, if
        nothing else was added to them.
        """
        return None if self._stats is None else self._stats.squares

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"Weights({', '.join(self._tensors)})"
