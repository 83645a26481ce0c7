"""ivon: the improved variational online Newton method (Shen et al. 2024).

A variational method whose optimiser learns the posterior: the weights are its mean, and a running
estimate h of the Hessian's diagonal gives its standard deviations,

    sigma = 1 / sqrt(ess (h + delta)),    delta = 1 / (ess prior_sigma^2),

where ess is the factor from the loss of a minibatch to that of all data. The optimiser is the
authors', the package `ivon-opt`: an extra, not least because its licence is the GPL (3.0 or later),
which applies to whoever distributes the two together.

The optimiser gives all trained weights a standard deviation. Those that a task wants deterministic
are trained alike, but at their mean in a draw to predict with.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Protocol, cast

import torch
from torch import Tensor, nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import absolute
from bayesrnn.core.kernel.reference import inverse_softplus
from bayesrnn.core.priors import Gaussian
from bayesrnn.errors import ConfigError, MissingExtraError
from bayesrnn.methods.base import Hints, KLScale, MinibatchLoss, Network, Objective
from bayesrnn.methods.variational import WithPosterior
from bayesrnn.options import CheckedOptions, option
from bayesrnn.random import RandomStreams


@dataclass(frozen=True)
class IvonOptions(CheckedOptions):
    """The prior, and how the Hessian is estimated."""

    prior_sigma: float = option(
        1.0, "standard deviation of the weights' Gaussian prior", gt=0, shown="prior sigma {}"
    )
    hess_init: float = option(
        1.0,
        "initial Hessian; with it a step is --lr times the gradient, as in gradient descent",
        gt=0,
    )
    beta1: float = option(
        0.9, "share of the gradient's running mean that a step leaves as it is", ge=0, lt=1
    )
    beta2: float = option(0.99995, "share of the Hessian that a step leaves as it is", ge=0, lt=1)
    clip_radius: float | None = option(
        None, "largest step of a weight, before --lr, in either direction (default: no limit)", gt=0
    )


class Ivon(WithPosterior[IvonOptions]):
    """Minimise the free energy of a Gaussian posterior with an optimiser that holds its sigmas."""

    name: ClassVar[str] = "ivon"
    summary: ClassVar[str] = "variational online Newton (Shen et al. 2024; an extra)"
    options_type: ClassVar[type] = IvonOptions
    own_optimiser: ClassVar[bool] = True
    can_average: ClassVar[bool] = False
    can_drop: ClassVar[bool] = False
    can_share_noise: ClassVar[bool] = True

    def __init__(self, options: IvonOptions, streams: RandomStreams) -> None:
        super().__init__(options, streams)
        self._optimiser: _Posterior | None = None

    def build(self, module: nn.Module, hints: Hints) -> Bayesian:
        """A posterior over the module's weights; until there is an optimiser, as wide as the prior.

        The standard deviations receive no gradients: the optimiser gives them.
        """
        _ivon_type()  # raises before training where the extra is missing
        prior = Gaussian(self.options.prior_sigma)
        sigma = absolute(prior.sigma)
        net = Bayesian(
            module,
            prior=prior,
            sigma_init=sigma,
            deterministic=hints.deterministic,
            min_sigma=0.0,
            generator=self.streams["sigma"],
        )
        net.rho.requires_grad_(False)
        return net

    def optimiser(self, net: Bayesian, lr: float, kl_scale: KLScale) -> torch.optim.Optimizer:
        """The authors' optimiser, over all trained weights."""
        options, ess = self.options, 1 / kl_scale.epoch
        bayesian = [net.module.get_parameter(name) for name in net.names]
        others = [weight for weight in net.deterministic_parameters() if weight.requires_grad]
        made = _ivon_type()(
            bayesian + others,
            lr=lr,
            ess=ess,
            hess_init=options.hess_init,
            beta1=options.beta1,
            beta2=options.beta2,
            weight_decay=1 / (ess * options.prior_sigma**2),
            clip_radius=options.clip_radius or float("inf"),
        )
        self._optimiser = made
        # A checkpoint is of the mean and of the newest standard deviations.
        net.register_state_dict_pre_hook(lambda *_: self._refresh(net))  # type: ignore[no-untyped-call]
        return cast(torch.optim.Optimizer, made)

    def loss(self, net: Bayesian, objective: Objective, kl_scale: KLScale) -> MinibatchLoss:
        """The negative log-likelihood with weights drawn from the posterior.

        The weights stay drawn until the optimiser's step, which needs the gradient there.
        """
        if self._optimiser is None:
            raise ConfigError("ivon has no loss without its optimiser; make that first")
        with self.streams.as_default("weights"):
            self._optimiser.draw()
        try:
            nll, state = objective(net.train().module)
        except BaseException:
            self._optimiser.settle()
            raise
        return MinibatchLoss(nll, state, {"nll": nll.item()})

    def mean_module(self, net: Bayesian) -> nn.Module:
        """The module with the posterior mean."""
        self._refresh(net)
        return super().mean_module(net)

    def draw(self, net: Bayesian, seed: int) -> Network:
        """The network with one draw of its weights."""
        self._refresh(net)
        return super().draw(net, seed)

    @torch.no_grad()
    def _refresh(self, net: Bayesian) -> None:
        """Put the optimiser's posterior into the network: the mean, and its sigmas as rho."""
        if self._optimiser is None:
            return  # a network that was loaded to predict with has them already
        self._optimiser.settle()
        # The deterministic weights come last in the optimiser, and have no rho.
        for name, sigma in zip(net.names, self._optimiser.sigmas(), strict=False):
            net.rho.get_parameter(name).copy_(inverse_softplus(sigma))


class _Posterior(Protocol):
    """What the method needs of the optimiser, beside its steps."""

    def draw(self) -> None: ...
    def settle(self) -> None: ...
    def sigmas(self) -> list[Tensor]: ...


@cache
def _ivon_type() -> Any:
    """The authors' optimiser, its draw and its update in two calls for the training loop."""
    try:
        from ivon import IVON
    except ImportError:
        raise MissingExtraError(
            "the method ivon needs an extra: pip install 'bayesrnn[ivon]'"
        ) from None

    class Ivon(IVON):  # type: ignore[misc]
        """IVON whose draw and update are two calls, and whose step count is saved."""

        #: The mean and the noise while the parameters hold a draw.
        _drawn: tuple[Tensor, Tensor] | None = None

        @property
        def current_step(self) -> int:
            """Number of updates, which debiases the running mean of the gradients."""
            return int(self.state["current_step"])

        @current_step.setter
        def current_step(self, value: int) -> None:
            # In the state, which is saved; an attribute, as the authors have it, is not.
            self.state["current_step"] = value

        def draw(self) -> None:
            """Put a draw from the posterior in the place of the parameters."""
            self.settle()
            self._drawn = self._sample_params()

        def settle(self) -> None:
            """Put the mean back if a draw is in its place; the draw is discarded."""
            if self._drawn is not None:
                self._restore_param_average(False, *self._drawn)
                self._drawn = None

        def step(self, closure: Any = None) -> None:
            """Put the mean back and update it by the gradients at the draw."""
            assert closure is None, "the training loop has computed the gradients already"
            assert self._drawn is not None, "no draw"
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is None:  # not in the loss
                        parameter.grad = torch.zeros_like(parameter)
            self._restore_param_average(True, *self._drawn)
            self._drawn = None
            super().step()

        def sigmas(self) -> list[Tensor]:
            """The standard deviation of each weight, in the shapes of the parameters."""
            found = []
            for group in self.param_groups:
                sigma = (group["ess"] * (group["hess"] + group["weight_decay"])).rsqrt()
                parts = sigma.split([parameter.numel() for parameter in group["params"]])
                pairs = zip(parts, group["params"], strict=True)
                found += [part.view(parameter.shape) for part, parameter in pairs]
            return found

    return Ivon
