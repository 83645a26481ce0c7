"""Posterior sharpening: a draw that is adapted to the minibatch that it is going to be scored on.

With phi a draw of the posterior (or its mean) and g the gradient of a loss by phi,

    theta = phi - eta * g + sigma0 * eps,    eps ~ N(0, 1),

where eta, one number of either sign for each weight, is learnt. The prior of theta is
N(phi, sigma0^2), so that

    KL[q(theta | phi) || p(theta | phi)] = ||eta * g||^2 / (2 sigma0^2),

exactly. With G = d loss / d theta and w = d loss / d KL the gradients have closed forms,

    d loss / d phi = G
    d loss / d eta = g (w eta g / sigma0^2 - G)
    d loss / d g   = eta (w eta g / sigma0^2 - G),

the last of which is used in second order only; in first order g counts as a constant (Fortunato,
Blundell & Vinyals, "Bayesian Recurrent Neural Networks").
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bayesrnn.core.kernel import reference
from bayesrnn.core.kernel.compiled import kernel_for
from bayesrnn.core.norms import total_norm
from bayesrnn.core.posterior import split
from bayesrnn.core.weights import Weights
from bayesrnn.errors import ConfigError


@dataclass(frozen=True)
class Sharpening:
    """How a network's draws are sharpened.

    sigma0: the standard deviation of a sharpened weight about its shifted draw.
    eta_init: where every eta starts; None for sigma0^2. To first order a step of eta against the
        gradient g of the minibatch's summed negative log-likelihood lowers it by eta ||g||^2 and
        costs eta^2 ||g||^2 / (2 sigma0^2) of KL divergence; sigma0^2 makes the most of the
        difference. Where the loss given to `sharpen` is c times smaller, c sigma0^2 does.
    """

    sigma0: float = 0.02
    eta_init: float | None = None

    def __post_init__(self) -> None:
        if not (self.sigma0 > 0 and 0 < self.sigma0 * self.sigma0 < math.inf):
            raise ConfigError(f"sigma0 is {self.sigma0:g}; a standard deviation has to be above 0")
        if not math.isfinite(self.first_eta):
            raise ConfigError(f"eta_init is {self.first_eta:g}; it has to be a finite number")

    @classmethod
    def given(cls, value: "Sharpening | bool | None") -> "Sharpening | None":
        """What `Bayesian` was given: a sharpening, True for the default one, or nothing."""
        if isinstance(value, bool):
            return cls() if value else None
        if value is None or isinstance(value, Sharpening):
            return value
        raise ConfigError(f"sharpening is {value!r}; it has to be True or a Sharpening(...)")

    @property
    def first_eta(self) -> float:
        """The number that every eta starts with."""
        return self.sigma0**2 if self.eta_init is None else self.eta_init


def sharpen(
    weights: Weights,
    loss: Tensor,
    etas: Sequence[Tensor],
    sigma0: float,
    seed: int,
    clip: float | None,
    second_order: bool,
    kept: Mapping[str, slice],
) -> Weights:
    """Sharpen `weights` by the gradient of `loss`, with the noise of `seed`.

    See `Bayesian.sharpen`; `etas` are in the order of the weights. `kept` names rows that stay as
    they are: those of padding, which have no gradient.
    """
    if weights.is_sharpened:
        raise ConfigError("these weights are sharpened already; sharpen the draw they came from")
    phis = list(weights.values())
    if [phi.shape for phi in phis] != [eta.shape for eta in etas]:
        raise ConfigError("these weights belong to another network: their shapes do not fit")
    gs, scale = _gradients(loss, phis, second_order), 1.0
    if clip is not None:
        gs, scale = _clipped(gs, clip, second_order)
    # The block-wise arithmetic needs at least one axis.
    tensors = [tensor if tensor.dim() else tensor[None] for tensor in (*phis, *gs, *etas)]
    *thetas, kl = _Sharpen.apply(  # type: ignore[no-untyped-call]
        scale, sigma0, seed, *tensors
    )
    sharpened = {}
    for (name, phi), theta in zip(weights.items(), thetas, strict=True):
        if name in kept:
            rows = kept[name]
            theta = torch.cat([theta[: rows.start], phi[rows], theta[rows.stop :]])
        sharpened[name] = theta.reshape(phi.shape)
    return weights.sharpened(sharpened, kl)


def _gradients(loss: Tensor, phis: Sequence[Tensor], second_order: bool) -> list[Tensor]:
    """The gradient by each weight tensor; zero by those that the loss does not depend on."""
    if loss.numel() != 1:
        raise ConfigError(
            f"the loss to sharpen by has the shape {tuple(loss.shape)}; it has to be one number"
        )
    found: Sequence[Tensor | None] = ()
    if loss.requires_grad and all(phi.requires_grad for phi in phis):
        found = torch.autograd.grad(loss, phis, create_graph=second_order, allow_unused=True)
    if all(g is None for g in found):  # zeros for all of them would hide a mistake
        raise ConfigError(
            "the loss to sharpen by does not depend on these weights: compute it with "
            "net(x, weights=weights), and both the draw and the loss outside of torch.no_grad()"
        )
    pairs = zip(found, phis, strict=True)
    # The compiled loops take contiguous tensors; autograd may give transposed or expanded ones.
    return [torch.zeros_like(phi) if g is None else g.contiguous() for g, phi in pairs]


def _clipped(gs: Sequence[Tensor], clip: float, second_order: bool) -> tuple[list[Tensor], float]:
    """The gradient, and the factor that scales it down to a norm of `clip` if it is longer."""
    if not clip > 0:
        raise ConfigError(f"clip is {clip:g}; it has to be above 0")
    norm = total_norm(gs)
    if not norm > clip:
        return list(gs), 1.0
    if not second_order:
        return list(gs), clip / norm
    # The factor depends on the weights as well, so autograd has to see it.
    lengths = torch.stack([torch.linalg.vector_norm(g) for g in gs])
    factor = clip / torch.linalg.vector_norm(lengths)
    return [g * factor for g in gs], 1.0


class _Sharpen(torch.autograd.Function):
    """All sharpened tensors and the KL divergence, as one step with closed-form gradients.

    The tensors are all phis, then all gs, then all etas; what counts as g is scale * g.
    """

    @staticmethod
    def forward(
        ctx: Any, scale: float, sigma0: float, seed: int, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        phis, gs, etas = split(tensors, 3)
        loops = kernel_for(tensors) or reference
        found = [
            loops.sharpen(phi, g, eta, scale, sigma0, seed, place)
            for place, (phi, g, eta) in enumerate(zip(phis, gs, etas, strict=True))
        ]
        thetas, squares = zip(*found, strict=True)
        ctx.save_for_backward(*gs, *etas)
        ctx.scale, ctx.sigma0 = scale, sigma0
        kl = sum(squares) / (2 * sigma0**2)
        return *thetas, torch.as_tensor(kl, dtype=phis[0].dtype, device=phis[0].device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *by_thetas, by_kl = gradients
        saved = ctx.saved_tensors
        gs, etas = saved[: len(by_thetas)], saved[len(by_thetas) :]
        loops = kernel_for(saved) or reference

        def by(wanted: Sequence[Tensor], others: Sequence[Tensor], needed: Sequence[bool]) -> Any:
            """The gradients by one factor of the shift eta * g, given the other."""
            return (
                loops.sharpen_gradient(by_theta, other, one, ctx.scale, by_kl, ctx.sigma0**2)
                if need
                else None
                for by_theta, one, other, need in zip(
                    by_thetas, wanted, others, needed, strict=True
                )
            )

        _, g_needed, eta_needed = split(ctx.needs_input_grad[3:], 3)
        by_gs, by_etas = by(gs, etas, g_needed), by(etas, gs, eta_needed)
        return None, None, None, *by_thetas, *by_gs, *by_etas
