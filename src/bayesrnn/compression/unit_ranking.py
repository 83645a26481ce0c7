"""The order in which whole units are dropped, each with all of its weights."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bayesrnn.compression.cutting import own_names
from bayesrnn.compression.pruning import dropped_weights
from bayesrnn.errors import ConfigError
from bayesrnn.nn.units import Part, Units, by_unit, units_of


def unit_scores(module: nn.Module, importance: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The importance of units, from that of weights: the root of the mean square over all of its.

    With |mean| / sigma that is how many nats a weight of the unit stands above N(0, sigma^2), but
    for the root and a factor of 2: mean^2 / (2 sigma^2) = KL(N(mean, sigma^2) || N(0, sigma^2)).
    """
    own = own_names(module)
    found = {}
    for units in units_of(module):
        squares, weights = torch.zeros(units.count, dtype=torch.double), 0
        for part in _own_parts(units, own, importance):
            values = by_unit(importance[part.name].detach().cpu(), part, units.count)
            each = values.double().square().flatten(1)
            squares += each.sum(1)
            weights += each.shape[1]
            if any(part.name == sent.name for sent in units.sends if part in units.receives):
                # What a unit tells itself is received and sent, and is to count once.
                own_state = values.diagonal(dim1=0, dim2=-1).double().square()
                squares -= own_state.sum(0)
                weights -= len(own_state)
        if weights:
            found[units.name] = (squares / weights).sqrt()
    return found


def units_at_random(module: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Random importance of units, the baseline."""
    return {u.name: torch.rand(u.count, generator=generator) for u in units_of(module)}


class UnitRanking:
    """Units in the order of their importance, with masks of weights as `Ranking` has them.

    They are ranked over the whole network, and dropped one after the other as long as the weights
    that go with them are no larger share than is asked for; or, with `per_layer`, in each layer by
    itself, so that each loses the same share of its units. Units among equals go in their order.

    weights: those that may be dropped, by name.
    scores: the importance of the units of each layer that may lose some.
    """

    def __init__(
        self,
        module: nn.Module,
        weights: Mapping[str, Tensor],
        scores: Mapping[str, Tensor],
        per_layer: bool = False,
    ) -> None:
        known, own = {units.name: units for units in units_of(module)}, own_names(module)
        if not scores.keys() & known.keys():
            raise ConfigError(
                "there are no units to rank; give a network that knows its units, such as those of "
                "`bayesrnn train`, and leave some of them to be dropped"
            )
        names = [name for name in known if name in scores]
        groups = [[name] for name in names] if per_layer else [names]
        #: For each group how many units it has, and for each weight the rank of the first of its
        #: units that goes: as many as there are where none ever does.
        self._groups: list[tuple[int, dict[str, Tensor]]] = []
        for group in groups:
            values = torch.cat([scores[name].detach().cpu().double() for name in group])
            if bool(values.isnan().any()):
                raise ConfigError(
                    "the importance of some units is NaN; give a network whose weights are numbers"
                )
            order = values.argsort(stable=True)
            ranks = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
            first = {
                name: torch.full(weight.shape, len(order), dtype=torch.int32)
                for name, weight in weights.items()
            }
            counts = [len(scores[name]) for name in group]
            for name, own_ranks in zip(group, torch.split(ranks, counts), strict=True):
                for part in _own_parts(known[name], own, first):
                    view = by_unit(first[part.name], part, len(own_ranks))
                    shape = (-1, *[1] * (view.dim() - 1))
                    view.copy_(torch.minimum(view, own_ranks.int().view(shape)))
            self._groups.append((len(order), first))
        self._per_layer = per_layer
        self._lost = _weights_lost(*self._groups[0])
        #: How many weights go with all units.
        self.weights = dropped_weights(self.kept(1.0))

    def kept(self, fraction: float) -> dict[str, Tensor]:
        """Which weights are left when this share of them is dropped, or less, in whole units.

        The masks are true where a weight is kept, and on the CPU.
        """
        if not 0 <= fraction <= 1:
            raise ConfigError(f"the fraction to drop is {fraction:g}; it has to be from 0 to 1")
        kept: dict[str, Tensor] = {}
        for count, first in self._groups:
            units = round(fraction * count) if self._per_layer else self._units_within(fraction)
            for name, ranks in first.items():
                mask = ranks >= units
                kept[name] = kept[name] & mask if name in kept else mask
        return kept

    def _units_within(self, fraction: float) -> int:
        """The most units that take no larger share of the weights with them."""
        most = round(fraction * int(self._lost[-1]))
        return int(torch.searchsorted(self._lost, most, right=True))


def _weights_lost(count: int, first: Mapping[str, Tensor]) -> Tensor:
    """How many weights are gone with the first unit, with the first two, and so on."""
    each = sum(torch.bincount(ranks.flatten(), minlength=count + 1) for ranks in first.values())
    assert isinstance(each, Tensor)
    return each[:count].cumsum(0)


def _own_parts(units: Units, own: Mapping[str, str], weights: Mapping[str, Tensor]) -> list[Part]:
    """Where the weights of units lie, tied ones once, of those that are given."""
    parts = dict.fromkeys(part._replace(name=own[part.name]) for part in units.parts())
    return [part for part in parts if part.name in weights]
