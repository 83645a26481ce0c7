"""Sharpening with a posterior that shrinks: the more a minibatch says of a weight, the surer it is.

With phi a draw (or the mean), g the gradient of the minibatch's summed loss by phi, h >= 0 its
curvature, and sigma0 learnt, one for each tensor, as tau = log sigma0^2,

    theta = phi - v g + sqrt(v) eps,   v = kappa sigma0^2,   kappa = 1 / (1 + sigma0^2 h):

where the loss is quadratic with curvature h, exactly the posterior of theta under the prior
N(phi, sigma0^2). Whatever g and h are, the move costs exactly

    KL[q(theta | phi) || p(theta | phi)] = 1/2 sum [v^2 g^2 / sigma0^2 + kappa - 1 - log kappa].

With G = d loss / d theta, w = d loss / d KL and nu = log v, the gradients have closed forms:

    d loss / d phi = G
    d loss / d nu  = -v g G + sqrt(v) eps (G - w g) / 2 + w (v^2 g^2 / sigma0^2 + (kappa - 1) / 2)
    d loss / d tau = sum [kappa d loss / d nu + w (1 - v^2 g^2 / sigma0^2 - kappa) / 2]
    d loss / d h   = -v d loss / d nu
    d loss / d g   = -v G + w v^2 g / sigma0^2     (second order only)

The loss falls by sqrt(v) eps g just because of the draw; w times that is left out of d nu, where it
has mean 0 and would be most of the variance (a control variate).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bayesrnn.core.kernel import reference
from bayesrnn.core.names import matching, place, require_matches
from bayesrnn.core.noise import normal_noise
from bayesrnn.core.posterior import split
from bayesrnn.errors import ConfigError


def shrink(
    phis: Sequence[Tensor],
    gs: Sequence[Tensor],
    curvatures: Sequence[Tensor],
    taus: Sequence[Tensor],
    seed: int,
) -> tuple[list[Tensor], Tensor, Tensor]:
    """The sharpened tensors, the KL divergence, and the sum of sqrt(v) eps g.

    taus: log sigma0^2 of each tensor, one number or one for each weight.
    The last is what the noise adds to the loss to first order: its mean is 0, so that an estimate
    without it has less variance.
    """
    like = [phi.detach() if phi.dim() else phi.detach()[None] for phi in phis]
    noise = normal_noise(like, seed).tensors
    eps = [tensor.reshape(phi.shape) for tensor, phi in zip(noise, phis, strict=True)]
    *thetas, kl, slope = _Shrink.apply(  # type: ignore[no-untyped-call]
        *phis, *gs, *curvatures, *taus, *eps
    )
    return thetas, kl, slope


class _Shrink(torch.autograd.Function):
    """All sharpened tensors, KL and slope of the noise, with closed-form gradients.

    The tensors are all phis, then all gs, hs, taus and eps.
    """

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        phis, gs, hs, taus, noise = split(tensors, 5)
        thetas, kl, slope = [], 0.0, 0.0
        for phi, g, h, tau, eps in zip(phis, gs, hs, taus, noise, strict=True):
            shrunk = tau.exp() * h
            kappa = 1 / (1 + shrunk)
            v = kappa * tau.exp()
            moved, jitter = v * g, v.sqrt() * eps
            thetas.append(phi - moved + jitter)
            # v^2 / sigma0^2 = kappa v and kappa - 1 = -kappa sigma0^2 h: right for sigma0 = 0, too.
            cost = kappa * moved * g - kappa * shrunk + shrunk.log1p()
            kl += cost.sum(dtype=torch.double).item() / 2
            slope += (jitter * g).sum(dtype=torch.double).item()
        ctx.save_for_backward(*gs, *hs, *taus, *noise)
        dtype = reference.wide_type(phis[0])
        numbers = [
            torch.tensor(number, dtype=dtype, device=phis[0].device) for number in (kl, slope)
        ]
        ctx.mark_non_differentiable(numbers[1])
        return *thetas, *numbers

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *by_thetas, weight, _ = gradients
        gs, hs, taus, noise = split(ctx.saved_tensors, 4)
        _, g_needed, h_needed, _, _ = split(ctx.needs_input_grad, 5)
        by_gs: list[Tensor | None] = []
        by_hs: list[Tensor | None] = []
        by_taus = []
        for by_theta, g, h, tau, eps, of_g, of_h in zip(
            by_thetas, gs, hs, taus, noise, g_needed, h_needed, strict=True
        ):
            kappa = 1 / (1 + tau.exp() * h)
            v = kappa * tau.exp()
            squares = kappa * v * g * g
            by_nu = v.sqrt() * eps * (by_theta - weight * g) / 2 - v * g * by_theta
            by_nu += weight * (squares + (kappa - 1) / 2)
            by_tau = kappa * by_nu + weight * (1 - squares - kappa) / 2
            by_taus.append(by_tau.sum_to_size(tau.shape))
            by_gs.append(kappa * v * g * weight - v * by_theta if of_g else None)
            by_hs.append(-v * by_nu if of_h else None)
        return *by_thetas, *by_gs, *by_hs, *by_taus, *(None for _ in noise)


class Shrinking(nn.Module):
    """What sharpening of this form learns: tau of each tensor, and the curvature of each weight.

    The curvature is that of the summed loss of a minibatch, a moving mean of squared gradients:
    for a model that is right, the mean of g^2 is the curvature. It is a statistic, not learnt by
    gradients, as the running means of batch normalisation.
    """

    def __init__(
        self, module: nn.Module, names: Sequence[str], sigma0: float, momentum: float
    ) -> None:
        super().__init__()
        self.names, self.momentum = tuple(names), momentum
        self.tau, self.squares = nn.Module(), nn.Module()
        for name in names:
            weight = module.get_parameter(name)
            tau = weight.new_tensor(sigma0).log().mul(2).detach()
            place(self.tau, name, nn.Parameter(tau))
            place(self.squares, name, torch.zeros_like(weight, requires_grad=False))
        #: The share of the moving means that is not their start, 0.
        self.register_buffer("seen", torch.zeros((), dtype=torch.double))

    def taus(self) -> list[Tensor]:
        """log sigma0^2 of each tensor."""
        return [self.tau.get_parameter(name) for name in self.names]

    @torch.no_grad()
    def observe(self, gs: Sequence[Tensor]) -> None:
        """Take the gradients of a minibatch's summed loss into the moving means."""
        for name, g in zip(self.names, gs, strict=True):
            self.squares.get_buffer(name).lerp_(g * g, self.momentum)
        seen = self.get_buffer("seen")
        seen.lerp_(torch.ones_like(seen), self.momentum)

    def curvatures(
        self, gs: Sequence[Tensor], given: Mapping[str, Tensor] | None = None
    ) -> list[Tensor]:
        """The curvature of each weight: as `given`, or the moving mean, corrected for its start.

        Before anything was seen, g^2 of the minibatch at hand.
        """
        given, seen = given or {}, self.get_buffer("seen").item()
        if unknown := sorted(given.keys() - set(self.names)):
            raise ConfigError(
                f"a curvature is given for {unknown[0]}, which is not sharpened; what is: "
                f"{', '.join(self.names)}"
            )
        found = []
        for name, g in zip(self.names, gs, strict=True):
            if name in given and given[name].shape != g.shape:
                raise ConfigError(
                    f"the curvature of {name} has the shape {tuple(given[name].shape)}; its "
                    f"weights have {tuple(g.shape)}"
                )
            if name in given:
                found.append(given[name])
            else:
                squares = self.squares.get_buffer(name)
                found.append(squares / seen if seen else g.detach().square())
        return found


def shrinking_of(
    module: nn.Module,
    aliases: Mapping[str, Sequence[str]],
    patterns: Sequence[str],
    sigma0: float,
    momentum: float,
) -> Shrinking:
    """What sharpening learns of the trainable parameters that the patterns fit."""
    trainable = {n: a for n, a in aliases.items() if module.get_parameter(n).requires_grad}
    require_matches("names", patterns, [name for many in trainable.values() for name in many])
    names = [n for n, a in trainable.items() if matching(a, patterns) is not None]
    return Shrinking(module, names, sigma0, momentum)
