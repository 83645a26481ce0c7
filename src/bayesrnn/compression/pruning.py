"""Drop the weights that matter least."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from bayesrnn.compression.ranking import Ranking, signal_to_noise
from bayesrnn.core.bayesian import Bayesian
from bayesrnn.errors import ConfigError

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class Pruned:
    """A pruned network.

    module: an ordinary module, the posterior mean with zeros for the weights that were dropped.
    kept: masks by name, true where a weight was kept.
    """

    module: nn.Module
    kept: Mapping[str, Tensor]

    @property
    def dropped(self) -> float:
        """The share of the weights that was dropped."""
        return dropped_weights(self.kept) / sum(mask.numel() for mask in self.kept.values())


def prune(net: Bayesian, fraction: float, per_tensor: bool = False) -> Pruned:
    """Drop this share of the Bayesian weights, those with the lowest |mean| / sigma first.

    As in Fortunato et al. 2017. The weights are compared over the whole network, or with
    `per_tensor` in each tensor by itself. Weights that are not Bayesian are kept. The network
    itself stays as it is.
    """
    kept = Ranking(signal_to_noise(net), per_tensor).kept(fraction)
    return Pruned(without(net.module, kept), kept)


@torch.no_grad()
def without(module: Module, kept: Mapping[str, Tensor]) -> Module:
    """A copy of the module with zeros where the mask of a parameter is false.

    Tied weights stay tied, and gradients are not copied. Parameters without a mask are copied.
    """
    parameters = dict(module.named_parameters(remove_duplicate=False))
    for name, mask in kept.items():
        if name not in parameters:
            raise ConfigError(
                f"there is a mask for {name}, but no such weight; there are: "
                f"{', '.join(parameters)}"
            )
        if mask.shape != parameters[name].shape:
            raise ConfigError(
                f"the mask of {name} has the shape {tuple(mask.shape)}, but the weight has "
                f"{tuple(parameters[name].shape)}; give one entry for each weight"
            )
    copy = deepcopy(module)
    for name, mask in kept.items():
        weight = copy.get_parameter(name)
        weight.masked_fill_(~mask.to(weight.device), 0.0)
    return copy


def dropped_weights(kept: Mapping[str, Tensor]) -> int:
    """How many weights the masks drop."""
    return sum(mask.numel() - int(mask.sum()) for mask in kept.values())
