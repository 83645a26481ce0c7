"""Langevin dynamics: gradient descent with noise, whose path is a sample of the posterior."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from bayesrnn.core.kernel import reference
from bayesrnn.core.kernel.compiled import kernel_for
from bayesrnn.core.kernel.reference import LangevinStep
from bayesrnn.core.noise import draw_seed
from bayesrnn.errors import ConfigError


class Langevin(torch.optim.Optimizer):
    """Stochastic gradient Langevin dynamics (Welling & Teh 2011) as an optimiser of torch.

    With the negative log posterior U(w) of all data, theta <- theta - (e/2) grad U + N(0, e). Here
    the gradients are those of a loss that is the negative log-likelihood of all data times `scale`
    (a mean over N examples: 1/N), and the prior N(0, prior_sigma^2) is added in closed form, so
    with e = 2 lr scale a step is

        theta <- theta - lr G (grad loss + scale theta / prior_sigma^2) + N(0, 2 lr scale T G)

    with G = 1. With `alpha`, G = 1 / (eps + sqrt(V)) for each weight as in RMSprop, where V is the
    running mean of the squared gradient of the loss, V <- alpha V + (1 - alpha) (grad loss)^2 (Li
    et al. 2016, pSGLD). As is usual, the term Gamma that holds the derivatives of G is left out: it
    is small where V moves slowly, and the error is of the order of 1 - alpha.

    Lower `lr` as training goes on, with any schedule: the error of the dynamics vanishes with it.

    temperature: T; 1 samples the posterior, less a colder one, 0 is gradient descent or RMSprop.
    generator: the source of the noise; torch's default one if None.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        scale: float,
        prior_sigma: float = 1.0,
        temperature: float = 1.0,
        alpha: float | None = None,
        eps: float = 1e-3,
        generator: torch.Generator | None = None,
    ) -> None:
        positive = {"lr": lr, "scale": scale, "prior_sigma": prior_sigma, "eps": eps}
        for name, value in positive.items():
            if not value > 0:
                raise ConfigError(f"{name} is {value:g}; it has to be above 0")
        if not 0 <= temperature < math.inf:
            raise ConfigError(f"temperature is {temperature:g}; it has to be 0 or more")
        if alpha is not None and not 0 <= alpha < 1:
            raise ConfigError(f"alpha is {alpha:g}; it has to be at least 0 and below 1")
        self._generator = generator
        defaults = {
            "lr": lr,
            "scale": scale,
            "prior_sigma": prior_sigma,
            "temperature": temperature,
            "alpha": alpha,
            "eps": eps,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            _require_stable(group)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Also take a state with the former names of three settings."""
        super().__setstate__(state)
        for group in self.param_groups:
            for old, new in {"share": "scale", "memory": "alpha", "damping": "eps"}.items():
                if old in group:
                    group[new] = group.pop(old)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of every parameter that is trained; without a gradient, the prior alone acts."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        seed = draw_seed(self._generator)
        place = 0
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad and parameter.numel():
                    self._move(parameter, group, seed, place)
                    place += 1
        return loss

    def _move(self, parameter: Tensor, group: dict[str, Any], seed: int, place: int) -> None:
        g = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        squares = None
        if group["alpha"] is not None:
            state = self.state[parameter]
            if not state:
                state["squares"] = torch.zeros_like(parameter)
            squares = state["squares"]
        lr, scale = group["lr"], group["scale"]
        step = LangevinStep(
            rate=lr,
            pull=scale / group["prior_sigma"] ** 2,
            noise=math.sqrt(2 * lr * scale * group["temperature"]),
            alpha=group["alpha"] or 0.0,
            eps=group["eps"],
        )
        tensors = [parameter, g] if squares is None else [parameter, g, squares]
        loops = kernel_for(tensors) or reference
        if not parameter.dim():  # the block-wise arithmetic needs an axis
            parameter, g = parameter[None], g[None]
            squares = None if squares is None else squares[None]
        loops.langevin(parameter, g, squares, step, seed, place)


def _require_stable(group: dict[str, Any]) -> None:
    """Refuse steps that would leap over the prior: weights without data would not settle on it."""
    largest_step = 1.0 if group["alpha"] is None else 1 / group["eps"]
    leap = group["lr"] * largest_step * group["scale"] / group["prior_sigma"] ** 2
    if leap >= 1:
        limit = group["lr"] / leap
        advice = "" if group["alpha"] is None else ", a larger damping (eps)"
        raise ConfigError(
            f"the learning rate is {group['lr']:g}, with which a step of Langevin dynamics leaps "
            f"over a prior of standard deviation {group['prior_sigma']:g}; give one below "
            f"{limit:.2g}{advice}, or a wider prior"
        )
