"""A network with copies of its weights from training."""

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

_KEY = re.compile(r"snapshots\.(\d+)\.(.+)", re.DOTALL)


class Snapshots(nn.Module):
    """A module, `module`, and copies of its trained weights, the oldest first.

    The copies are no parameters, so no optimiser updates them, but `state_dict` has them: the
    current weights are `module.<name>`, the copies `snapshots.<number>.<name>`. `load_state_dict`
    takes any number of copies.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._kept: list[dict[str, Tensor]] = []
        self.register_state_dict_post_hook(_add_snapshots)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_take_snapshots)  # type: ignore[no-untyped-call]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module with the current weights."""
        return self.module(*args, **kwargs)

    def __len__(self) -> int:
        """Number of copies."""
        return len(self._kept)

    @torch.no_grad()
    def keep(self, limit: int) -> None:
        """Copy the current weights; of more than `limit` copies, the latest stay."""
        self._kept.append({name: weight.detach().clone() for name, weight in self._trained()})
        del self._kept[:-limit]

    def copy(self, number: int) -> nn.Module:
        """An ordinary module with the weights of a copy."""
        return self._with(self._kept[number])

    @torch.no_grad()
    def average(self) -> nn.Module:
        """An ordinary module with the mean of all copies' weights."""
        names = self._kept[0]
        means = {name: torch.zeros_like(weight) for name, weight in names.items()}
        for kept in self._kept:
            for name, weight in kept.items():
                means[name].add_(weight, alpha=1 / len(self))
        return self._with(means)

    @torch.no_grad()
    def _with(self, weights: Mapping[str, Tensor]) -> nn.Module:
        made = copy.deepcopy(self.module)
        for name, weight in weights.items():
            made.get_parameter(name).copy_(weight)
        return made

    def _trained(self) -> list[tuple[str, nn.Parameter]]:
        named = self.module.named_parameters()
        return [(name, parameter) for name, parameter in named if parameter.requires_grad]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Snapshots":
        """Move the copies along with the module to another device or type."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._kept = [{name: fn(weight) for name, weight in kept.items()} for kept in self._kept]
        return self


def _add_snapshots(net: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    assert isinstance(net, Snapshots)
    for number, kept in enumerate(net._kept):
        for name, weight in kept.items():
            state[f"{prefix}snapshots.{number}.{name}"] = weight


def _take_snapshots(net: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Take the copies out of a state; each has to have all the weights, in their shapes."""
    assert isinstance(net, Snapshots)
    errors: list[str] = rest[-1]
    found: dict[int, dict[str, Tensor]] = {}
    for key in [key for key in state if key.startswith(f"{prefix}snapshots.")]:
        match = _KEY.fullmatch(key.removeprefix(prefix))
        if match:
            found.setdefault(int(match[1]), {})[match[2]] = state.pop(key)
    shapes = {name: weight.shape for name, weight in net._trained()}
    for number, kept in found.items():
        if {name: weight.shape for name, weight in kept.items()} != shapes:
            errors.append(f"the snapshot {number} has other weights than the network")
            return
    example = next(net.module.parameters())
    net._kept = [
        {name: found[number][name].detach().clone().to(example) for name in shapes}
        for number in sorted(found)
    ]
