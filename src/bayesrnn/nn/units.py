"""What the units of a network are: which of its weights enter each, and which leave it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor, nn


class Part(NamedTuple):
    """Where the weights of units lie in a parameter: unit j at `start` + j along an axis.

    blocks: of recurrent layers one for each gate: then unit j is at `start` + b * count + j for
        each block b.
    """

    name: str
    axis: int
    blocks: int = 1
    start: int = 0


@dataclass(frozen=True)
class Units:
    """Units side by side, each the same number of weights.

    receives: the weights by which they are computed, all of them: without any that is not zero a
        unit is always 0 (or, of outputs of the network, their bias alone).
    sends: the weights by which others, or they themselves at the next step, take what they are.
        Units that send nothing are outputs of the network.
    """

    name: str
    count: int
    receives: tuple[Part, ...]
    sends: tuple[Part, ...] = ()

    def with_parts(self, receives: tuple[Part, ...] = (), sends: tuple[Part, ...] = ()) -> "Units":
        """The same units with further weights."""
        return replace(self, receives=self.receives + receives, sends=self.sends + sends)

    def parts(self) -> Iterator[Part]:
        """All of its weights."""
        yield from self.receives
        yield from self.sends


def units_of(module: nn.Module) -> tuple[Units, ...]:
    """The units of a network that knows them (`units`), those first that are computed first."""
    known = getattr(module, "units", None)
    return tuple(known()) if callable(known) else ()


def by_unit(tensor: Tensor, part: Part, count: int) -> Tensor:
    """The weights of units in a parameter, a view: [count, weights of each, ...]."""
    own = tensor.narrow(part.axis, part.start, part.blocks * count)
    own = own.movedim(part.axis, 0)
    return own.view(part.blocks, count, *own.shape[1:]).movedim(1, 0)


def recurrent_units(name: str, module: nn.RNNBase) -> list[Units]:
    """The units of recurrent layers with this name in a network; the last one's leave it too."""
    found = []
    blocks = module.get_parameter("weight_hh_l0").shape[0] // module.hidden_size
    for layer in range(module.num_layers):
        rows = [f"weight_ih_l{layer}", f"weight_hh_l{layer}"]
        rows += [f"bias_ih_l{layer}", f"bias_hh_l{layer}"]
        columns = [f"weight_hh_l{layer}"]
        columns += [f"weight_ih_l{layer + 1}"] if layer + 1 < module.num_layers else []
        receives = tuple(Part(f"{name}.{row}", 0, blocks) for row in rows)
        sends = tuple(Part(f"{name}.{column}", 1) for column in columns)
        found.append(Units(f"{name}_l{layer}", module.hidden_size, receives, sends))
    return found
