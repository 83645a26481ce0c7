"""Cut units out of a pruned network that do nothing: it becomes smaller, and says the same.

A unit does nothing if no path of weights that are not zero leads from it to an output of the
network, or if none leads to it, from an input or a bias: then it is always 0. Both are found by
following the weights, so that units which only talk to each other go as well.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn

from bayesrnn.nn.cut import CutLinear, CutRecurrent
from bayesrnn.nn.recurrent import CELLS
from bayesrnn.nn.units import Part, Units, by_unit, units_of

Module = TypeVar("Module", bound=nn.Module)

#: Outputs are left out of a matrix if at most this share of them has weights: putting those that
#: are computed in their places takes time as well (`benchmarks/cut_networks.py`).
_SHARE_LEFT = 0.75


def used_units(module: nn.Module) -> dict[str, Tensor]:
    """Which units of a network do anything, by the name of their layer."""
    groups = {units.name: units for units in units_of(module)}
    if not groups:
        return {}
    weights = dict(module.named_parameters(remove_duplicate=False))
    nonzero = {
        part.name: weights[part.name].detach() != 0
        for units in groups.values()
        for part in units.parts()
    }
    heard = _reached(groups, nonzero, forward=True)
    asked = _reached(groups, nonzero, forward=False)
    return {name: (heard[name] & asked[name]).cpu() for name in groups}


def _reached(
    groups: Mapping[str, Units], nonzero: Mapping[str, Tensor], forward: bool
) -> dict[str, Tensor]:
    """The units to which inputs lead (`forward`), or which lead to outputs."""
    ends = {part.name: units for units in groups.values() for part in _far(units, forward)}
    device = next(iter(nonzero.values())).device
    reached = {
        name: torch.zeros(u.count, dtype=torch.bool, device=device) for name, u in groups.items()
    }
    if not forward:
        for name, units in groups.items():
            reached[name] |= not units.sends
    order = list(groups.values()) if forward else list(groups.values())[::-1]
    grows = True
    while grows:
        grows = False
        for units in order:
            found = reached[units.name]
            for part in units.receives if forward else units.sends:
                mask = nonzero[part.name]
                other = ends.get(part.name)
                if other is not None and mask.dim() > 1:
                    mask = mask & _spread(
                        mask, _part_of(other, part.name, forward), reached[other.name]
                    )
                found = found | by_unit(mask, part, units.count).flatten(1).any(1)
            grows |= bool((found != reached[units.name]).any())
            reached[units.name] = found
    return reached


def _far(units: Units, forward: bool) -> tuple[Part, ...]:
    """The parts at the other end of an edge: what is received was sent, and the reverse."""
    return units.sends if forward else units.receives


def _part_of(units: Units, name: str, forward: bool) -> Part:
    return next(part for part in _far(units, forward) if part.name == name)


def _spread(like: Tensor, part: Part, reached: Tensor) -> Tensor:
    """A mask of a parameter, true in the weights of units that are reached."""
    found = torch.zeros_like(like)
    by_unit(found, part, len(reached))[reached] = True
    return found


def without_unused(module: nn.Module, kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The masks, but that the weights of units which do nothing are dropped as well.

    module: the network without the weights that the masks drop.
    """
    found = {name: mask.clone() for name, mask in kept.items()}
    own, used = own_names(module), used_units(module)
    for units in units_of(module):
        for part in units.parts():
            mask = found.get(own[part.name])
            if mask is not None:
                by_unit(mask, part, units.count)[~used[units.name]] = False
    return found


def own_names(module: nn.Module) -> dict[str, str]:
    """For each name of a parameter the first one that it has: tied ones have several."""
    first: dict[int, str] = {}
    parameters = module.named_parameters(remove_duplicate=False)
    return {name: first.setdefault(id(weight), name) for name, weight in parameters}


@torch.no_grad()
def cut(module: Module) -> Module:
    """A copy of a network without the units that do nothing, for prediction.

    What it says is the same, to the rounding of sums in which fewer zeros are added, and so is how
    it is called; the state is narrower where all layers are. One unit of a layer is kept in any
    case. A network that does not know its units, or uses all of them, is copied as it is.
    """
    made = deepcopy(module).requires_grad_(False)
    known = units_of(module)
    if not known:
        return made
    inner = [units for units in known if units.sends]
    places = {name: _places(mask) for name, mask in used_units(module).items()}
    weights = {
        name: _selected(name, weight.detach(), inner, places)
        for name, weight in module.named_parameters(remove_duplicate=False)
    }
    ties, shared = own_names(module), dict[str, nn.Parameter]()
    for name, layer in list(made.named_modules()):
        own = {key: f"{name}.{key}".lstrip(".") for key, _ in layer.named_parameters(recurse=False)}
        if all(layer.get_parameter(key).shape == weights[own[key]].shape for key in own):
            continue
        if isinstance(layer, nn.RNNBase):
            made.set_submodule(name, _recurrent(layer, name, weights))
            continue
        for key, full in own.items():
            smaller = nn.Parameter(weights[full].clone(), requires_grad=False)
            setattr(layer, key, shared.setdefault(ties[full], smaller))
        _tell_shape(layer)
    for units in known:
        if not units.sends:
            _leave_out(made, units, places[units.name])
    return made


def _tell_shape(layer: nn.Module) -> None:
    """What a layer says of the shape of its weights."""
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = layer.weight.shape
    elif isinstance(layer, nn.Embedding):
        layer.embedding_dim = layer.weight.shape[1]


def _leave_out(made: nn.Module, units: Units, places: Tensor) -> None:
    """Do without the rows of outputs that are nothing but their bias, if there are many."""
    for part in units.receives:
        name = part.name.rpartition(".")[0]
        layer = made.get_submodule(name)
        few = len(places) <= _SHARE_LEFT * units.count
        if few and isinstance(layer, nn.Linear) and layer.bias is not None:
            rows = places.to(layer.weight.device)
            made.set_submodule(name, CutLinear(layer.weight[rows], layer.bias, rows))


def _places(mask: Tensor) -> Tensor:
    """The numbers of the units that are kept: those that are used, or one."""
    found = mask.nonzero().flatten()
    return found if len(found) else torch.zeros(1, dtype=torch.long)


def _selected(
    name: str, weight: Tensor, groups: list[Units], places: Mapping[str, Tensor]
) -> Tensor:
    """A parameter without the weights of units that are not kept."""
    for axis in range(weight.dim()):
        wanted: dict[int, Tensor] = {}
        for units in groups:
            for part in {part for part in units.parts() if (part.name, part.axis) == (name, axis)}:
                blocks = part.start + units.count * torch.arange(part.blocks)
                wanted[part.start] = (blocks[:, None] + places[units.name]).flatten()
        if wanted:
            index = torch.cat([wanted[start] for start in sorted(wanted)])
            weight = weight.index_select(axis, index.to(weight.device))
    return weight


def _recurrent(layer: nn.RNNBase, name: str, weights: Mapping[str, Tensor]) -> CutRecurrent:
    cell = next(cell for cell, kind in CELLS.items() if isinstance(layer, kind))
    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    of_layers = [
        {f"{kind}_l0": weights[f"{name}.{kind}_l{number}"] for kind in kinds}
        for number in range(layer.num_layers)
    ]
    return CutRecurrent(cell, of_layers)
