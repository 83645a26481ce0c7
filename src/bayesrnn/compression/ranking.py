"""The order in which weights are dropped."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import DETERMINISTIC


def signal_to_noise(net: Bayesian) -> dict[str, Tensor]:
    """|mean| / sigma of each Bayesian weight, by name: how certain it is not to be zero.

    A mean of zero has no signal, even where sigma is zero too.
    """
    means = {name: net.module.get_parameter(name).detach() for name in net.names}
    sigmas = net.sigmas()
    return {
        name: torch.where(mean == 0, 0.0, mean.abs() / sigmas[name]) for name, mean in means.items()
    }


def magnitude(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The absolute values of the weights."""
    return {name: weight.detach().abs() for name, weight in weights.items()}


def droppable(module: nn.Module) -> dict[str, nn.Parameter]:
    """The weights of a network without a posterior that may be dropped, tied ones once.

    They are those that would have one: all that are trained, but for the deterministic ones and
    single numbers, such as the noise of ratings, which are no weights.
    """
    return {
        name: parameter
        for name, parameter in module.named_parameters()
        if parameter.requires_grad and name not in DETERMINISTIC and parameter.dim()
    }


def importance(net: nn.Module, module: nn.Module) -> dict[str, Tensor]:
    """What a trained network has to rank its weights by: signal-to-noise, or else magnitude.

    module: the ordinary module inside `net`.
    """
    return signal_to_noise(net) if isinstance(net, Bayesian) else magnitude(droppable(module))


def at_random(weights: Mapping[str, Tensor], generator: torch.Generator) -> dict[str, Tensor]:
    """Random importance, the baseline."""
    return {name: torch.rand(weight.shape, generator=generator) for name, weight in weights.items()}


class Ranking:
    """Weights in the order of their importance, the least important first.

    They are ranked over the whole network, or with `per_tensor` in each tensor by itself, so that
    each loses the same share. Among equals, the one that comes first is dropped first.
    """

    def __init__(self, importance: Mapping[str, Tensor], per_tensor: bool = False) -> None:
        if not importance:
            raise ConfigError("there are no weights to rank; give the importance of at least one")
        for name, values in importance.items():
            if bool(values.isnan().any()):
                raise ConfigError(
                    f"the importance of {name} is NaN for some weights; give a network whose "
                    "weights are numbers"
                )
        self._shapes = {name: values.shape for name, values in importance.items()}
        flat = {name: values.detach().cpu().flatten() for name, values in importance.items()}
        groups = [{name: values} for name, values in flat.items()] if per_tensor else [flat]
        self._ranks: dict[str, Tensor] = {}
        self._sizes: dict[str, int] = {}
        for group in groups:
            ranks = _ranks(torch.cat(list(group.values())))
            parts = torch.split(ranks, [len(values) for values in group.values()])
            for name, part in zip(group, parts, strict=True):
                self._ranks[name], self._sizes[name] = part, len(ranks)

    @property
    def weights(self) -> int:
        """How many weights there are in all."""
        return sum(len(ranks) for ranks in self._ranks.values())

    def kept(self, fraction: float) -> dict[str, Tensor]:
        """Which weights are left when this share of them is dropped, rounded to whole weights.

        The masks are true where a weight is kept, and on the CPU.
        """
        if not 0 <= fraction <= 1:
            raise ConfigError(f"the fraction to drop is {fraction:g}; it has to be from 0 to 1")
        return {
            name: (ranks >= round(fraction * self._sizes[name])).view(self._shapes[name])
            for name, ranks in self._ranks.items()
        }


def _ranks(values: Tensor) -> Tensor:
    """The rank of each value."""
    order = values.argsort(stable=True)
    ranks = torch.empty_like(order, dtype=torch.int32)
    ranks[order] = torch.arange(len(values), dtype=torch.int32)
    return ranks
