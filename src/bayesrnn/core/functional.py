"""Running a module with other weights than its own."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


def run_with(
    module: nn.Module,
    weights: Mapping[str, Tensor],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    tie_weights: bool = True,
) -> Any:
    """What `module` gives with `weights` in place of the parameters of these names.

    tie_weights: a parameter that has several names is replaced under all of them.
    """
    try:
        return functional_call(module, dict(weights), args, dict(kwargs), tie_weights=tie_weights)
    finally:
        # torch's recurrent layers keep a list of the weights of their last call, which would hold
        # on to these; let them look at their own again.
        for layer in module.modules():
            if isinstance(layer, nn.RNNBase):
                layer._update_flat_weights()


@torch.no_grad()
def copy_with(module: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """A copy of `module` with `weights` as its own parameters of these names."""
    made = copy.deepcopy(module)
    for name, weight in weights.items():
        made.get_parameter(name).copy_(weight)
    return made
