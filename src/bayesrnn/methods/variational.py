"""What the methods with a Gaussian posterior over the weights share."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from torch import nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.noise import Noise
from bayesrnn.core.norms import total_norm
from bayesrnn.core.priors import Gaussian, Grouping, Prior, ScaleMixture
from bayesrnn.core.sharpening import Sharpening
from bayesrnn.core.weights import Weights
from bayesrnn.methods.base import Hints, Method, Network, not_weights
from bayesrnn.options import CheckedOptions, option
from bayesrnn.random import RandomStreams


def _prior_words(options: Mapping[str, Any]) -> str:
    per = f" per {options['prior_per']}" if "prior_per" in options else ""
    return f"{options['prior']} prior{per * (options['prior'] == 'mixture')}"


@dataclass(frozen=True)
class PosteriorOptions(CheckedOptions):
    """Prior, posterior and draws; the defaults are those of Fortunato et al. (2017)."""

    prior: Literal["mixture", "gaussian"] = option(
        "mixture",
        "prior of the weights: a mixture of two Gaussians, or one Gaussian",
        shown=_prior_words,
    )
    prior_pi: float = option(0.25, "mixture prior: share of the wide component", gt=0, lt=1)
    prior_sigma1: float = option(
        math.exp(-1), "standard deviation of the prior's wide component (or only one)", gt=0
    )
    prior_sigma2: float = option(
        math.exp(-7), "mixture prior: standard deviation of the narrow component", gt=0
    )
    prior_per: Grouping = option(
        "row", "mixture prior: which weights choose their component together"
    )
    sigma_scale: float = option(
        1.0, "multiplies the recipe's initial standard deviations of the posterior", gt=0
    )
    kl_weight: float = option(
        1.0,
        "multiplies the KL divergence; below 1 the posterior is colder than Bayes' rule says",
        gt=0,
        shown="KL weight {}",
        shown_default=False,
    )
    antithetic: bool = option(
        True, "use each noise for two minibatches, in the order +a +b -a -b: saves half of it"
    )

    def make_prior(self) -> Prior:
        """The prior that the options describe."""
        if self.prior == "gaussian":
            return Gaussian(self.prior_sigma1)
        return ScaleMixture(self.prior_pi, self.prior_sigma1, self.prior_sigma2, self.prior_per)


AnyOptions = TypeVar("AnyOptions", bound=CheckedOptions)
Options = TypeVar("Options", bound=PosteriorOptions)


class WithPosterior(Method[AnyOptions, Bayesian]):
    """A method whose network is a `Bayesian`, however its posterior is learnt."""

    def undecayed(self, net: Bayesian) -> list[nn.Parameter]:
        """All but the means: at rho = 0 a posterior is wide, not narrow."""
        return [*not_weights(net.module), *net.rho.parameters(), *net.eta_parameters()]

    def mean_module(self, net: Bayesian) -> nn.Module:
        """The module with the posterior mean."""
        return net.module

    def draw(self, net: Bayesian, seed: int) -> Network:
        """The network with one draw of its weights."""
        weights = net.sample(noise=net.noise(seed))

        def network(*args: Any, **kwargs: Any) -> Any:
            return net.eval()(*args, weights=weights, **kwargs)

        return network


class Variational(WithPosterior[Options]):
    """A method whose posterior is drawn once per minibatch and learnt by gradients."""

    def __init__(self, options: Options, streams: RandomStreams) -> None:
        super().__init__(options, streams)
        #: Noise that was used once and whose mirror image is due; after a restore, its seed.
        self._unmirrored: list[Noise | int] = []
        self._is_mirroring = False

    def make_posterior(
        self, module: nn.Module, hints: Hints, sharpening: Sharpening | None = None
    ) -> Bayesian:
        """A posterior over the module's weights."""
        scale = self.options.sigma_scale
        sigma_init = {
            pattern: replace(value, low=value.low * scale, high=value.high * scale)
            for pattern, value in hints.sigma_init.items()
        }
        return Bayesian(
            module,
            self.options.make_prior(),
            sigma_init or None,
            hints.deterministic,
            generator=self.streams["sigma"],
            sharpening=sharpening,
        )

    def state(self) -> Any:
        """The seeds of noise whose mirror images are due, and whether now is their turn."""
        if not self._unmirrored:
            return None
        seeds = [due.seed if isinstance(due, Noise) else due for due in self._unmirrored]
        return {"seeds": seeds, "mirroring": self._is_mirroring}

    def restore(self, state: Any) -> None:
        """Continue where `state` was taken.

        A single seed comes from a checkpoint of runs that mirrored each noise at once: its mirror
        image is the next draw, after which the order of today begins.
        """
        if isinstance(state, int):
            state = {"seeds": [state], "mirroring": True}
        self._unmirrored = [] if state is None else list(state["seeds"])
        self._is_mirroring = state is not None and bool(state["mirroring"])

    def next_draw(self, net: Bayesian) -> Weights:
        """The draw of the next minibatch: a fresh one, or the mirror image of the last but one.

        With fresh noises a, b, c, ... the order is +a +b -a -b +c +d -c -d. A recurrent state that
        +a left behind is read with +b, so that what -a reads depends on a hardly at all; in the
        order +a -a, the second draw would be biased by what the first one left.
        """
        if self._is_mirroring:
            due = self._unmirrored.pop(0)
            self._is_mirroring = bool(self._unmirrored)
            noise = due if isinstance(due, Noise) else net.noise(due)
            return net.sample(noise=noise.mirrored())
        weights = net.sample(self.streams["weights"])
        if self.options.antithetic:
            self._unmirrored.append(weights.noise)
            self._is_mirroring = len(self._unmirrored) == 2
        return weights


def gradient_norm(net: Bayesian, weights: Weights) -> float | None:
    """The norm of the gradient by means and rhos, most of it a by-product of the backward pass."""
    if weights.squared_gradient is None:
        return None
    ordinary = [parameter.grad for parameter in net.deterministic_parameters()]
    rest = total_norm([gradient for gradient in ordinary if gradient is not None])
    return math.sqrt(weights.squared_gradient + rest**2)
