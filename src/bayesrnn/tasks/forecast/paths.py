"""Paths into the future: each value drawn from what the network says, and fed back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bayesrnn.methods.base import Network
from bayesrnn.tasks.forecast.heads import HEADS
from bayesrnn.tasks.forecast.windows import Windows
from bayesrnn.uncertainty.draws import Draws

#: Paths that are walked side by side.
_ROWS: Final = 8192


@dataclass(frozen=True)
class Paths:
    """What draws of a network make of the future of windows.

    values: float64 [windows, draws, paths, horizon], in the units of the series. All paths of a
        draw are of one set of weights.
    """

    values: Tensor

    @property
    def all(self) -> Tensor:
        """[windows, paths of all draws, horizon]."""
        return self.values.flatten(1, 2)

    @property
    def noise(self) -> Tensor:
        """The variance that would be left if the weights were known, E[Var]: [windows, horizon]."""
        if self.values.shape[2] < 2:
            return torch.zeros_like(self.values[:, 0, 0])
        return self.values.var(2).mean(1)

    @property
    def ignorance(self) -> Tensor:
        """The variance of the mean between draws, Var[E]: [windows, horizon].

        The mean of P paths differs from the draw's own by chance, with a variance of E[Var] / P,
        which is taken off.
        """
        if self.values.shape[1] < 2:
            return torch.zeros_like(self.values[:, 0, 0])
        between = self.values.mean(2).var(1)
        return (between - self.noise / self.values.shape[2]).clamp_min(0.0)

    @property
    def epistemic_share(self) -> Tensor:
        """The share of the variance that is about the model: [windows, horizon]."""
        total = self.noise + self.ignorance
        return torch.where(total > 0, self.ignorance / total.clamp_min(1e-300), 0.0)


@torch.no_grad()
def draw_paths(
    draws: Draws,
    windows: Windows,
    likelihood: str,
    paths: int,
    generator: torch.Generator,
    advance: Callable[[int], object] = lambda number: None,
) -> Paths:
    """`paths` paths of every draw for every window, one set of weights held over a whole path.

    advance: is called with the number of values that were drawn.
    """
    found = []
    for network in draws.networks():
        rows = max(1, _ROWS // paths)
        parts = []
        for first in range(0, len(windows), rows):
            part = windows.part(slice(first, first + rows))
            parts.append(_walk(network, part, likelihood, paths, generator, advance))
        found.append(torch.cat(parts))
    return Paths(torch.stack(found, 1))


@torch.no_grad()
def mean_path(network: Network, windows: Windows, likelihood: str) -> Tensor:
    """The path of the means, each fed back as if it had come: float64 [windows, horizon]."""
    head = HEADS[likelihood]
    return _unroll(network, windows, head.mean)


def _walk(
    network: Network,
    windows: Windows,
    likelihood: str,
    paths: int,
    generator: torch.Generator,
    advance: Callable[[int], object],
) -> Tensor:
    head = HEADS[likelihood]

    def sample(parameters: Tensor, base: Tensor, unit: Tensor) -> Tensor:
        advance(len(base))
        return head.sample(parameters, base, unit, generator)

    found = _unroll(network, windows, sample, paths)
    return found.view(len(windows), paths, -1)


def _unroll(
    network: Network,
    windows: Windows,
    choose: Callable[[Tensor, Tensor, Tensor], Tensor],
    paths: int = 1,
) -> Tensor:
    """Read the context, then choose a value at each step and feed it back."""
    layout = windows.layout
    before = windows.steps(-layout.context, layout.context)
    _, state = network(windows.network_inputs(windows.values, before))
    state = tree_map(lambda of: of.repeat_interleave(paths, 1).contiguous(), state)
    walked = windows.expanded(paths)
    values, observed = walked.values.clone(), walked.observed.clone()
    values[:, layout.reach :] = torch.nan
    observed[:, layout.reach :] = True
    walked = walked.replaced(values=values, observed=observed)
    for step in range(layout.horizon):
        place = windows.steps(step, 1)
        parameters, state = network(walked.network_inputs(values, place), state)
        chosen = choose(parameters[0], walked.base(values, place)[:, 0], walked.unit)
        values[:, layout.reach + step] = chosen.clamp_min(0.0) if layout.non_negative else chosen
    return values[:, layout.reach :]
