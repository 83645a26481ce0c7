"""How probable a network finds values, each given all that came before it in its window."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bayesrnn.methods.base import Network
from bayesrnn.tasks.forecast.heads import HEADS
from bayesrnn.tasks.forecast.windows import Windows


class Steps(NamedTuple):
    """Steps of windows: what the network reads of them, and what it is to say.

    inputs: [steps, windows, n]. y, base, is_there: [steps, windows]. unit: [windows].
    """

    inputs: Tensor
    y: Tensor
    base: Tensor
    unit: Tensor
    is_there: Tensor

    def log_probs(self, parameters: Tensor, likelihood: str) -> Tensor:
        """The log-density of each value given its parameters; 0 where there is none."""
        found = HEADS[likelihood].log_prob(parameters, self.y, self.base, self.unit)
        return torch.where(self.is_there, found, 0.0)


def steps_of(windows: Windows, first: int, count: int) -> Steps:
    """The steps first, ... counted from the start of the forecast, as they came."""
    places = windows.steps(first, count)
    values = windows.values
    return Steps(
        windows.network_inputs(values, places),
        values[:, places].t(),
        windows.base(values, places).t(),
        windows.unit,
        windows.scored(places).t(),
    )


def window_loss(windows: Windows, network: Network, likelihood: str) -> Tensor:
    """The negative log-likelihood, summed over the steps of context and horizon, mean over windows.

    The context teaches as well as the horizon does: each of its steps is a forecast of one value.
    """
    layout = windows.layout
    steps = steps_of(windows, -layout.context, layout.context + layout.horizon)
    parameters, _ = network(steps.inputs)
    return -steps.log_probs(parameters, likelihood).sum() / len(windows)


def horizon_log_probs(
    network: Network, windows: Windows, likelihood: str, temperatures: Sequence[float]
) -> Tensor:
    """The log-density of each value of the horizon at each temperature: [temperatures, values].

    Each is given the values before it as they came.
    """
    layout, head = windows.layout, HEADS[likelihood]
    before = windows.steps(-layout.context, layout.context)
    _, state = network(windows.network_inputs(windows.values, before))
    steps = steps_of(windows, 0, layout.horizon)
    parameters, _ = network(steps.inputs, state)
    return torch.stack(
        [
            steps.log_probs(head.tempered(parameters, t), likelihood)[steps.is_there]
            for t in temperatures
        ]
    )
