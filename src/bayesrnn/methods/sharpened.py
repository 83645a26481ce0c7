"""sharpened: Bayes by Backprop with posterior sharpening (Fortunato et al. 2017, section 4)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.curvature import watched
from bayesrnn.core.norms import total_norm
from bayesrnn.core.sharpening import Form, Sharpening
from bayesrnn.core.weights import Weights
from bayesrnn.core.widths import WidthSGD
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Bound, Bounded, Hints, KLScale, MinibatchLoss, Objective
from bayesrnn.methods.variational import PosteriorOptions, Variational
from bayesrnn.options import option


@dataclass(frozen=True)
class SharpenedOptions(PosteriorOptions):
    """Options of posterior sharpening, beside those of Bayes by Backprop."""

    form: Form = option(
        "literal",
        "literal: as published, with a fixed sigma0 and learnt steps; shrinking: with a sigma0 of "
        "each tensor that is learnt and shrinks by what the minibatch says, and no steps to learn",
        shown="{} form",
        shown_default=False,
    )
    sigma0: float = option(
        0.02,
        "standard deviation of sharpened weights around their mean; with --form shrinking, that of "
        "their prior about the draw, to start from",
        gt=0,
        shown="sigma0 {}",
    )
    sigma0_lr: float = option(
        1.0,
        "form shrinking: rate of log sigma0^2, as --sigma-lr; 0 keeps it as it is",
        ge=0,
    )
    sharpen_names: tuple[str, ...] = option(
        ("*",),
        "form shrinking: the tensors that are sharpened, by name or pattern, such as '*bias*'",
        metavar="NAME ...",
    )
    eta_init: float | None = option(
        None, "initial step of each weight down the gradient of the summed loss (default: sigma0^2)"
    )
    eta_lr: float = option(
        0.002, "learning rate of the steps as a share of --lr; 0 keeps them as they are", ge=0
    )
    sharpen_clip: float = option(
        200.0, "largest norm of the summed loss' gradient that sharpens; 0 for no limit", ge=0
    )
    sharpen_kl_weight: float = option(
        1.0,
        "multiplies the KL of sharpening in training; below 1 the loss is no bound any more",
        ge=0,
    )
    second_order: bool = option(
        False, "differentiate through the gradient that sharpens as well: slower"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        shrinking = self.form == "shrinking"
        if shrinking and self.eta_init is not None:
            raise ConfigError("--eta-init belongs to --form literal; --form shrinking has no steps")
        if not shrinking and self.sharpen_names != ("*",):
            raise ConfigError("--sharpen-names belongs to --form shrinking; add it")


class Sharpened(Variational[SharpenedOptions], Bounded[Bayesian]):
    """Move each draw phi of the weights towards the minibatch at hand, and charge for the move.

    theta ~ N(phi - eta * g, sigma0^2), where g is the gradient of the minibatch's summed loss at
    phi and the step eta of each weight is learnt; or, in the form that shrinks, with a variance
    that is less the more the minibatch says (`core.shrinking`). Both passes start from the same
    recurrent state.
    """

    name: ClassVar[str] = "sharpened"
    summary: ClassVar[str] = "bbb with posterior sharpening (Fortunato et al. 2017)"
    options_type: ClassVar[type] = SharpenedOptions
    trains_like: ClassVar[str] = "bbb"
    #: The layer whose curvature has a closed form.
    _softmax_layer: str | None = None

    @classmethod
    def can_shard(cls, values: Mapping[str, Any]) -> bool:
        """Not in the form that keeps statistics of the gradients that it has seen."""
        return values.get("form") != "shrinking"

    def build(self, module: nn.Module, hints: Hints) -> Bayesian:
        """A posterior over the module's weights, with a step for each."""
        sharpening = Sharpening(
            self.options.sigma0,
            self.options.eta_init,
            self.options.form,
            self.options.sharpen_names,
        )
        self._softmax_layer = hints.softmax_layer
        net = self.make_posterior(module, hints, sharpening)
        for eta in net.eta_parameters():
            eta.requires_grad_(self.options.eta_lr > 0)
        for tau in net.tau_parameters():
            tau.requires_grad_(self.options.sigma0_lr > 0)
        return net

    def loss(self, net: Bayesian, objective: Objective, kl_scale: KLScale) -> MinibatchLoss:
        """The free energy of the minibatch with sharpened weights."""
        phi = self.next_draw(net.train())
        # cuDNN has no second derivatives of recurrent layers.
        with torch.backends.cudnn.flags(enabled=not self.options.second_order):
            before, _, curvature = self._look(net, phi, objective)
        summed = before / kl_scale.minibatch
        theta = self._sharpened(net, phi, summed, self.streams["sharpening"], curvature)
        nll, state = objective(partial(net, weights=theta))
        kl = theta.kl * (self.options.kl_weight * kl_scale.epoch)
        seen_kl = theta.minibatch_kl * kl_scale.minibatch
        minibatch_kl = seen_kl * self.options.sharpen_kl_weight
        terms = {"nll": nll.item(), "kl": kl.item(), "minibatch_kl": minibatch_kl.item()}
        known_norm = partial(self.gradient_norm, net, theta)
        total, pull = nll + kl + minibatch_kl, self.pull(net, theta, kl_scale)
        return MinibatchLoss(
            total, state, terms, known_norm, seen_kl.item(), prior_kl=kl, pull=pull
        )

    def bound(self, net: Bayesian, objective: Objective, generator: torch.Generator) -> Bound:
        """NLL + KL of one sharpened draw around the posterior mean.

        A draw is theta = phi - eta * g + sigma0 * eps, and its NLL is that at phi, minus
        eta * g . g, plus sigma0 * eps . g, plus terms of second order. The third is most of the
        estimate's variance and has mean 0 whatever g is, so it is subtracted (a control variate).
        """
        net.eval()
        phi = net.mean()
        tensors = net.to_sharpen(phi)
        # cuDNN has no backward pass of recurrent layers in evaluation mode.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            before, _, curvature = self._look(net, phi, objective)
            gradients = torch.autograd.grad(before, list(tensors.values()), materialize_grads=True)
            # Has the same gradient as the loss, without a second backward pass through the network.
            products = [(tensors[n] * g).sum() for n, g in zip(tensors, gradients, strict=True)]
            linear = torch.stack(products).sum()
        with torch.no_grad():
            theta = self._sharpened(net, phi, linear, generator, curvature)
            nll, state = objective(partial(net, weights=theta))
            if net.shrinking is not None:
                bound = nll.item() - theta.noise_slope.item()
                return Bound(bound, theta.minibatch_kl.item(), state, bound - before.item())
            norm, limit = total_norm(gradients), self.options.sharpen_clip or math.inf
            descent = moved = 0.0
            for name, g in zip(phi, gradients, strict=True):
                descent += (net.eta.get_parameter(name) * g * g).sum(dtype=torch.double).item()
                moved += ((theta[name] - phi[name]) * g).sum(dtype=torch.double).item()
        descent *= limit / norm if norm > limit else 1.0
        bound = nll.item() - (moved + descent)
        drawn = bound - (before.item() - descent)
        return Bound(bound, theta.minibatch_kl.item(), state, drawn)

    def parameter_groups(self, net: Bayesian) -> list[dict[str, Any]]:
        """The steps apart, with a lower rate, for the KL's curvature is g^2 / sigma0^2."""
        groups = super().parameter_groups(net)
        if self.options.eta_lr and net.eta_parameters():
            groups.append({"params": net.eta_parameters(), "lr_scale": self.options.eta_lr})
        return groups

    def widths(self, net: Bayesian, sequences: int) -> WidthSGD | None:
        """The optimiser of the widths, and of what the shrinking form learns."""
        made, taus = super().widths(net, sequences), net.tau_parameters()
        if not (taus and self.options.sigma0_lr):
            return made
        group = {"params": taus, "lr": self.options.sigma0_lr * sequences}
        if made is None:
            return WidthSGD([group])
        made.add_param_group(group)
        return made

    def diagnostics(self, net: Bayesian) -> dict[str, float]:
        """The sigma0 of each tensor; or the size of the steps and the share that goes uphill."""
        if net.shrinking is not None:
            taus = zip(net.shrinking.names, net.shrinking.taus(), strict=True)
            return {f"sigma0.{name}": math.exp(tau.item() / 2) for name, tau in taus}
        steps = [eta.detach() for eta in net.eta_parameters()]
        count = sum(eta.numel() for eta in steps)
        negative = sum(int((eta < 0).sum()) for eta in steps)
        return {
            "eta_rms": total_norm(steps) / math.sqrt(count),
            "eta_negative_share": negative / count,
        }

    def _look(
        self, net: Bayesian, phi: Weights, objective: Objective
    ) -> tuple[Tensor, Any, dict[str, Tensor] | None]:
        """The outcome with a draw, and the curvatures of its loss that have a closed form."""
        if net.shrinking is None or self._softmax_layer is None:
            return *objective(partial(net, weights=phi)), None
        with watched(net.module, self._softmax_layer) as seen:
            before, state = objective(partial(net, weights=phi))
        closed, names = seen.curvature(), net.shrinking.names
        return before, state, {n: h for n, h in closed.items() if n in names}

    def _sharpened(
        self,
        net: Bayesian,
        phi: Weights,
        summed: Tensor,
        generator: torch.Generator,
        curvature: dict[str, Tensor] | None,
    ) -> Weights:
        return net.sharpen(
            phi,
            summed,
            generator=generator,
            clip=self.options.sharpen_clip or None,
            second_order=self.options.second_order and torch.is_grad_enabled(),
            curvature=curvature,
        )
