"""The optimiser by name, the learning-rate schedule, and gradient clipping."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesrnn.core import total_norm
from bayesrnn.errors import ConfigError

#: torch optimisers that cannot take a plain step on dense gradients.
_UNUSABLE = ("LBFGS", "SparseAdam")


@dataclass(frozen=True)
class Schedule:
    """The learning rate: constant for `hold` epochs, then times `decay` in each epoch."""

    lr: float
    hold: int
    decay: float

    def at(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        return float(self.lr * self.decay ** max(0, epoch + 1 - self.hold))


def _optimiser_type(wanted: str) -> Callable[..., torch.optim.Optimizer]:
    known = {
        name.lower(): value
        for name, value in vars(torch.optim).items()
        if inspect.isclass(value)
        and issubclass(value, torch.optim.Optimizer)
        and value is not torch.optim.Optimizer
        and name not in _UNUSABLE
    }
    if str(wanted).lower() not in known:
        raise ConfigError(
            f"--optimizer is {wanted}; of torch's optimisers these can be used: "
            f"{', '.join(sorted(known))}"
        )
    return known[wanted.lower()]


def default_lr(name: str) -> float:
    """The learning rate that torch gives an optimiser by default."""
    return float(inspect.signature(_optimiser_type(name)).parameters["lr"].default)


def make_optimiser(
    name: str, groups: list[dict[str, Any]], lr: float, weight_decay: float
) -> torch.optim.Optimizer:
    """A torch optimiser for groups of parameters, by its class's name in upper or lower case."""
    make = _optimiser_type(name)
    options = {"lr": lr} | ({"weight_decay": weight_decay} if weight_decay else {})
    refused = set(options) - set(inspect.signature(make).parameters)
    if refused:
        raise ConfigError(f"--optimizer {name} has no option {', '.join(sorted(refused))}")
    return make(groups, **options)


def clip_gradients(
    parameters: Iterable[nn.Parameter], limit: float | None, norm: float | None = None
) -> float:
    """Scale all gradients together down to the norm `limit`; gives the norm before that.

    `norm` is the norm of all gradients if it is already known.
    """
    gradients: list[Tensor] = [p.grad for p in parameters if p.grad is not None]
    if norm is None:
        norm = total_norm(gradients)
    if limit is not None and norm > limit:
        torch._foreach_mul_(gradients, limit / (norm + 1e-6))
    return norm
