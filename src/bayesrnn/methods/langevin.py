"""sgld, psgld: samples of the posterior by Langevin dynamics (Welling & Teh 2011; Li et al. 2016).

Training is gradient descent with noise (`core.Langevin` has the formulas). After a burn-in, the
weights are samples of the posterior; copies of them are stored at intervals (snapshots), and
prediction averages the probabilities of their networks. The schedule of the learning rate is the
decay of the step size.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import nn

from bayesrnn.core.langevin import Langevin
from bayesrnn.core.norms import total_norm
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Hints, KLScale, Method, MinibatchLoss, Network, Objective
from bayesrnn.methods.snapshots import Snapshots
from bayesrnn.options import CheckedOptions, option


@dataclass(frozen=True)
class LangevinOptions(CheckedOptions):
    """Prior, noise, and which weights are stored."""

    temperature: float = option(
        1.0,
        "factor on the variance of the noise: 1 samples the posterior, less a colder one",
        ge=0,
        shown="temperature {}",
    )
    prior_sigma: float = option(
        1.0, "standard deviation of the weights' Gaussian prior", gt=0, shown="prior sigma {}"
    )
    burn_in: float = option(
        0.5, "share of training before weights are kept to predict with", ge=0, lt=1
    )
    snapshots: int = option(
        10,
        "sets of weights to keep at most, the latest; each checkpoint on the disk holds them all",
        ge=1,
    )
    thinning: int | None = option(
        None,
        "steps from one kept set of weights to the next (default: spread over what is left)",
        ge=1,
    )

    def is_kept(self, step: int, steps: int) -> bool:
        """Whether the weights after the `step`-th of `steps` updates, from 1, are stored."""
        burnt = round(self.burn_in * steps)
        since, left = step - burnt, steps - burnt
        if since < 1:
            return False
        if self.thinning is not None:
            return since % self.thinning == 0
        count = min(self.snapshots, left)
        return since * count // left > (since - 1) * count // left


Options = TypeVar("Options", bound=LangevinOptions)


class LangevinMethod(Method[Options, Snapshots]):
    """What sgld and psgld share: all but the scale of a step."""

    own_optimiser: ClassVar[bool] = True
    can_average: ClassVar[bool] = False
    can_drop: ClassVar[bool] = False
    can_share_noise: ClassVar[bool] = True
    mean_label: ClassVar[str] = "mean of the kept weights"

    def build(self, module: nn.Module, hints: Hints) -> Snapshots:
        """The module, with room for copies of its weights."""
        return Snapshots(module)

    def loss(self, net: Snapshots, objective: Objective, kl_scale: KLScale) -> MinibatchLoss:
        """The negative log posterior; that of the prior up to a constant.

        The gradient is that of the likelihood: the optimiser adds the prior's, in closed form.
        """
        nll, state = objective(net.train())
        squares = total_norm([weight.detach() for weight in _trained(net)]) ** 2
        prior = kl_scale.epoch * squares / (2 * self.options.prior_sigma**2)
        return MinibatchLoss(nll + prior, state, {"nll": nll.item(), "prior": prior})

    def after_step(self, net: Snapshots, step: int, steps: int) -> None:
        """Store the weights if it is time to."""
        if step == 1:
            self._require_time(steps)
        if self.options.is_kept(step, steps):
            net.keep(self.options.snapshots)

    def _require_time(self, steps: int) -> None:
        """Refuse a thinning with which no weights would ever be stored."""
        thinning, left = self.options.thinning, steps - round(self.options.burn_in * steps)
        if thinning is not None and thinning > left:
            raise ConfigError(
                f"--thinning is {thinning}, but training has only {left} steps after the burn-in, "
                "so no weights would be kept; give a smaller one"
            )

    def mean_module(self, net: Snapshots) -> nn.Module:
        """The module with the mean of the snapshots, or the current weights if there are none."""
        return net.average() if len(net) else net.module

    def kept(self, net: Snapshots) -> int:
        """Number of snapshots."""
        return len(net)

    @property
    def draws_differ(self) -> bool:
        """No: each snapshot is one network."""
        return False

    def draw(self, net: Snapshots, seed: int) -> Network:
        """The network of snapshot seed % snapshots."""
        if not len(net):
            return self.mean(net)
        return net.copy(seed % len(net)).eval()

    def drawn_module(self, net: Snapshots, seed: int) -> nn.Module:
        """The module with the weights of snapshot seed % snapshots."""
        return net.copy(seed % len(net)) if len(net) else super().drawn_module(net, seed)

    def _langevin(
        self,
        net: nn.Module,
        lr: float,
        kl_scale: KLScale,
        alpha: float | None = None,
        eps: float = 1.0,
    ) -> torch.optim.Optimizer:
        return Langevin(
            _trained(net),
            lr,
            scale=kl_scale.epoch,
            prior_sigma=self.options.prior_sigma,
            temperature=self.options.temperature,
            alpha=alpha,
            eps=eps,
            generator=self.streams["langevin"],
        )


class Sgld(LangevinMethod[LangevinOptions]):
    """Gradient descent on the negative log posterior, with noise that makes its path a sample."""

    name: ClassVar[str] = "sgld"
    summary: ClassVar[str] = "samples by stochastic gradient Langevin dynamics (Welling & Teh 2011)"
    options_type: ClassVar[type] = LangevinOptions

    def optimiser(self, net: Snapshots, lr: float, kl_scale: KLScale) -> torch.optim.Optimizer:
        """Langevin dynamics with the same step size for all weights."""
        return self._langevin(net, lr, kl_scale)


@dataclass(frozen=True)
class PreconditionedOptions(LangevinOptions):
    """Options of preconditioned Langevin dynamics, beside those of sgld."""

    memory: float = option(
        0.99,
        "share of the running mean of squared gradients that a step leaves as it is",
        ge=0,
        lt=1,
    )
    damping: float = option(
        1e-3,
        "added to the root of that mean: weights without gradients step by --lr over this",
        gt=0,
    )


class Psgld(LangevinMethod[PreconditionedOptions]):
    """Langevin dynamics whose step and noise are scaled for each weight as RMSprop does."""

    name: ClassVar[str] = "psgld"
    summary: ClassVar[str] = "sgld with a step size for each weight, as RMSprop (Li et al. 2016)"
    options_type: ClassVar[type] = PreconditionedOptions

    def optimiser(self, net: Snapshots, lr: float, kl_scale: KLScale) -> torch.optim.Optimizer:
        """Langevin dynamics preconditioned by the running mean of squared gradients."""
        return self._langevin(net, lr, kl_scale, self.options.memory, self.options.damping)


def _trained(net: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in net.parameters() if parameter.requires_grad]
