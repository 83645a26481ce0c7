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
Blundell & Vinyals, "Bayesian Recurrent Neural Networks"). That is the literal form; the other one,
which shrinks, is in `core/shrinking.py`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bayesrnn.core.kernel import reference
from bayesrnn.core.kernel.compiled import kernel_for
from bayesrnn.core.norms import total_norm
from bayesrnn.core.posterior import split
from bayesrnn.core.shrinking import Shrinking, shrink
from bayesrnn.core.weights import Weights
from bayesrnn.errors import ConfigError

#: literal: as published, with a fixed sigma0 and a learnt step of each weight. shrinking: with a
#: learnt sigma0 of each tensor, which shrinks by what a minibatch says of a weight.
Form = Literal["literal", "shrinking"]


@dataclass(frozen=True)
class Sharpening:
    """How a network's draws are sharpened.

    sigma0: the standard deviation of a sharpened weight about its shifted draw; for the shrinking
        form, that of its prior about the draw, which is where each tensor starts.
    eta_init: where every eta starts; None for sigma0^2. To first order a step of eta against the
        gradient g of the minibatch's summed negative log-likelihood lowers it by eta ||g||^2 and
        costs eta^2 ||g||^2 / (2 sigma0^2) of KL divergence; sigma0^2 makes the most of the
        difference. Where the loss given to `sharpen` is c times smaller, c sigma0^2 does. The
        shrinking form has no eta.
    form: literal, as published, or shrinking (`core/shrinking.py`).
    names: shrinking form: patterns of the tensors that are sharpened, deterministic ones as well.
    momentum: shrinking form: how much of a new minibatch goes into the moving mean of squared
        gradients that stands for the curvature.
    """

    sigma0: float = 0.02
    eta_init: float | None = None
    form: Form = "literal"
    names: tuple[str, ...] = ("*",)
    momentum: float = 0.02

    def __post_init__(self) -> None:
        if isinstance(self.names, str):
            object.__setattr__(self, "names", (self.names,))
        if self.form not in get_args(Form):
            raise ConfigError(f"form is {self.form!r}; there are: {', '.join(get_args(Form))}")
        if self.form == "shrinking" and self.eta_init is not None:
            raise ConfigError("eta_init belongs to the literal form of sharpening; leave it out")
        if self.form == "literal" and tuple(self.names) != ("*",):
            raise ConfigError("names belongs to the shrinking form; the literal one sharpens all")
        if not 0 < self.momentum <= 1:
            raise ConfigError(f"momentum is {self.momentum:g}; it has to be above 0 and at most 1")
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
    return weights.sharpened(_with_kept(weights, thetas, kept), kl)


def sharpen_shrinking(
    weights: Weights,
    tensors: Mapping[str, Tensor],
    loss: Tensor,
    shrinking: Shrinking,
    seed: int,
    *,
    clip: float | None,
    second_order: bool,
    kept: Mapping[str, slice],
    curvature: Mapping[str, Tensor] | None,
    learn: bool,
) -> Weights:
    """Sharpen in the other form; `tensors` are what is sharpened, of the draw or ordinary ones.

    curvature: that of tensors where it is known; learn: whether the moving means take in g.
    """
    phis = list(tensors.values())
    gs = _gradients(loss, phis, second_order)
    if learn:
        shrinking.observe([g.detach() for g in gs])
    curvatures = shrinking.curvatures(gs, curvature)
    if clip is not None:
        gs, scale = _clipped(gs, clip, second_order)
        gs = gs if scale == 1 else [g * scale for g in gs]
    thetas, kl, slope = shrink(phis, gs, curvatures, shrinking.taus(), seed)
    moved = {**weights, **_with_kept(tensors, thetas, kept)}
    return weights.sharpened(moved, kl, slope)


def _with_kept(
    phis: Mapping[str, Tensor], thetas: Sequence[Tensor], kept: Mapping[str, slice]
) -> dict[str, Tensor]:
    """The sharpened tensors by name, in the shapes of phi and with the rows that are kept of it."""
    sharpened = {}
    for (name, phi), theta in zip(phis.items(), thetas, strict=True):
        if name in kept:
            rows = kept[name]
            theta = torch.cat([theta[: rows.start], phi[rows], theta[rows.stop :]])
        sharpened[name] = theta.reshape(phi.shape)
    return sharpened


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
        return *thetas, torch.as_tensor(
            kl, dtype=reference.wide_type(phis[0]), device=phis[0].device
        )

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
