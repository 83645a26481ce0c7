"""What the methods with a Gaussian posterior over the weights share."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import torch
from torch import nn
from typing_extensions import Self

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.functional import copy_with
from bayesrnn.core.noise import Noise
from bayesrnn.core.norms import total_norm
from bayesrnn.core.predictive import predictive
from bayesrnn.core.priors import FittedGaussian, Gaussian, Grouping, Prior, ScaleMixture
from bayesrnn.core.sharpening import Sharpening
from bayesrnn.core.weights import Weights
from bayesrnn.core.widths import WidthSGD
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Hints, KLScale, Method, Network, not_weights
from bayesrnn.options import CheckedOptions, option
from bayesrnn.random import RandomStreams

#: Which weights a prior takes together unless the user says so.
_GROUPING: Mapping[str, Grouping] = {"mixture": "row", "fitted": "tensor"}


def _prior_words(options: Mapping[str, Any]) -> str:
    prior, per = options["prior"], options.get("prior_per")
    return f"{prior} prior per {per}" if per and prior in _GROUPING else f"{prior} prior"


@dataclass(frozen=True)
class PosteriorOptions(CheckedOptions):
    """Prior, posterior and draws; the defaults are those of Fortunato et al. (2017)."""

    prior: Literal["mixture", "gaussian", "fitted"] = option(
        "mixture",
        "prior of the weights: a mixture of two Gaussians, one Gaussian, or Gaussians whose scales "
        "fit themselves",
        shown=_prior_words,
    )
    prior_pi: float = option(0.25, "mixture prior: share of the wide component", gt=0, lt=1)
    prior_sigma1: float = option(
        math.exp(-1), "standard deviation of the prior's wide component (or only one)", gt=0
    )
    prior_sigma2: float = option(
        math.exp(-7), "mixture prior: standard deviation of the narrow component", gt=0
    )
    prior_per: Grouping | None = option(
        None,
        "which weights choose their component together (mixture prior), or share a scale (fitted "
        "prior); row: those that leave a unit, column: those that enter one (default: row for "
        "mixture, tensor for fitted)",
    )
    prior_floor: float = option(0.01, "fitted prior: about the smallest scale of a group", gt=0)
    sigma_scale: float = option(
        1.0, "multiplies the recipe's initial standard deviations of the posterior", gt=0
    )
    sigma_lr: float = option(
        0.0,
        "rate of the posterior's widths as a share of what the noise of gradients allows: 1 lets "
        "them learn within some epochs, with any optimiser; 0: rate and clipping of the means, "
        "under which they stay where they start (Fortunato et al.)",
        ge=0,
        zero="that of the means",
        shown="sigma lr {}",
    )
    prior_step: Literal["gradient", "natural"] = option(
        "gradient",
        "how the prior pulls the means: gradient, as a part of the loss; natural, by a step of its "
        "own after the optimiser's, which suits those that divide gradients by their size, as Adam "
        "does (with --prior gaussian or fitted, and --sigma-lr)",
        shown="{} prior step",
        shown_default=False,
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prior_per is None:
            object.__setattr__(self, "prior_per", _GROUPING.get(self.prior, "row"))
        if self.prior_step == "natural" and (self.prior == "mixture" or not self.sigma_lr):
            raise ConfigError(
                "--prior-step natural goes with --prior gaussian or fitted and a --sigma-lr above "
                f"0, not with {self.prior} and {self.sigma_lr:g}; with these, give --prior-step "
                "gradient"
            )

    def make_prior(self) -> Prior:
        """The prior that the options describe."""
        if self.prior == "gaussian":
            return Gaussian(self.prior_sigma1)
        assert self.prior_per is not None
        mixture = ScaleMixture(self.prior_pi, self.prior_sigma1, self.prior_sigma2, self.prior_per)
        if self.prior == "fitted":
            # Its scales are not known before training: the widths start as under the mixture.
            return FittedGaussian(self.prior_per, b=self.prior_floor**2, std=mixture.std)
        return mixture


AnyOptions = TypeVar("AnyOptions", bound=CheckedOptions)
Options = TypeVar("Options", bound=PosteriorOptions)


class WithPosterior(Method[AnyOptions, Bayesian]):
    """A method whose network is a `Bayesian`, however its posterior is learnt."""

    def undecayed(self, net: Bayesian) -> list[nn.Parameter]:
        """All but the means: at rho = 0 a posterior is wide, not narrow."""
        sharpening = [*net.eta_parameters(), *net.tau_parameters()]
        return [*not_weights(net.module), *net.rho.parameters(), *sharpening]

    def mean_module(self, net: Bayesian) -> nn.Module:
        """The module with the posterior mean."""
        return net.module

    def draw(self, net: Bayesian, seed: int) -> Network:
        """The network with one draw of its weights."""
        weights = self._drawn(net, seed)

        def network(*args: Any, **kwargs: Any) -> Any:
            return net.eval()(*args, weights=weights, **kwargs)

        return network

    def drawn_module(self, net: Bayesian, seed: int) -> nn.Module:
        """The module with the weights of a draw."""
        return copy_with(self.mean_module(net), self._drawn(net, seed))

    def _drawn(self, net: Bayesian, seed: int) -> Weights:
        if not torch.is_grad_enabled():
            return predictive(net, seed, self.noise_factor)[0]
        return net.sample(noise=net.noise(seed).scaled(self.noise_factor))

    @property
    def draws_can_be_kept(self) -> bool:
        """Yes: a draw is its weights."""
        return True

    @property
    def noise_can_change(self) -> bool:
        """Yes: sigma."""
        return True


class Variational(WithPosterior[Options]):
    """A method whose posterior is drawn once per minibatch and learnt by gradients."""

    def __init__(self, options: Options, streams: RandomStreams) -> None:
        super().__init__(options, streams)
        #: Noise that was used once and whose mirror image is due; after a restore, its seed.
        self._unmirrored: list[Noise | int] = []
        self._is_mirroring = False

    def of_shard(self, number: int) -> Self:
        """With noise of its own."""
        made = super().of_shard(number)
        if number:
            made._unmirrored, made._is_mirroring = [], False
        return made

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

    def parameter_groups(self, net: Bayesian) -> list[dict[str, Any]]:
        """The means, and the widths unless they have a rate of their own."""
        own_rate = self.options.sigma_lr > 0
        return [{"params": net.mean_parameters() if own_rate else net.weight_parameters()}]

    def widths(self, net: Bayesian, sequences: int) -> WidthSGD | None:
        """The optimiser of the widths, if they have a rate of their own."""
        rate = self.options.sigma_lr * sequences
        return WidthSGD(net.rho.parameters(), lr=rate) if rate else None

    def pull(self, net: Bayesian, weights: Weights, kl_scale: KLScale) -> Callable[[float], None]:
        """The step of the means towards the prior where the gradient of the KL leaves it out.

        The widths follow their gradient at some rate. For a Gaussian that is half of a natural
        step, so that the natural step of the means is twice that rate times sigma^2.
        """
        charged = 2 * self.options.kl_weight * kl_scale.epoch
        by_itself = self.options.prior_step == "natural"
        return lambda rate: net.pull(weights, rate * charged) if by_itself else None

    def gradient_norm(self, net: Bayesian, weights: Weights) -> float | None:
        """The gradient's norm of the first group, most of it a by-product of the backward pass."""
        squares = weights.squared_gradients
        if squares is None:
            return None
        ordinary = [parameter.grad for parameter in net.deterministic_parameters()]
        rest = total_norm([gradient for gradient in ordinary if gradient is not None])
        of_widths = 0.0 if self.options.sigma_lr else squares.by_rho
        return math.sqrt(squares.by_loc + of_widths + rest**2)

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
        pull = self.options.prior_step == "gradient"
        if self._is_mirroring:
            due = self._unmirrored.pop(0)
            self._is_mirroring = bool(self._unmirrored)
            noise = due if isinstance(due, Noise) else net.noise(due)
            return net.sample(noise=noise.mirrored(), pull=pull)
        weights = net.sample(self.streams["weights"], pull=pull)
        if self.options.antithetic:
            self._unmirrored.append(weights.noise)
            self._is_mirroring = len(self._unmirrored) == 2
        return weights
