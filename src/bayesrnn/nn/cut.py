"""Layers of networks that some units were cut out of."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesrnn.nn.recurrent import CELLS, State


class CutRecurrent(nn.Module):
    """Recurrent layers of different widths, called like torch's of one width.

    The state is as wide as the widest layer, so that others can hold it as they hold torch's; what
    a narrower layer has beyond its width is zero, and not read.

    weights: of each layer, by torch's names of the first: weight_ih_l0, weight_hh_l0, ...
    """

    def __init__(self, cell: str, weights: Sequence[dict[str, Tensor]]) -> None:
        super().__init__()
        self.widths = [layer["weight_hh_l0"].shape[1] for layer in weights]
        self.num_layers, self.hidden_size = len(weights), max(self.widths)
        self.input_size = weights[0]["weight_ih_l0"].shape[1]
        self.layers = nn.ModuleList(_layer(cell, layer) for layer in weights)
        self.mode: str = cast(nn.RNNBase, self.layers[0]).mode

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Outputs [time, batch, width of the last layer] and the state after."""
        after = []
        for number, (layer, width) in enumerate(zip(self.layers, self.widths, strict=True)):
            own: State | None = None
            if isinstance(state, tuple):
                own = (_of_layer(state[0], number, width), _of_layer(state[1], number, width))
            elif state is not None:
                own = _of_layer(state, number, width)
            x, found = layer(x, own)
            after.append(found)
        if self.mode == "LSTM":
            return x, (self._stacked([h for h, _ in after]), self._stacked([c for _, c in after]))
        return x, self._stacked(after)

    def _stacked(self, states: Sequence[Tensor]) -> Tensor:
        return stacked([one[0] for one in states], self.hidden_size)


def _layer(cell: str, weights: dict[str, Tensor]) -> nn.RNNBase:
    inputs, width = (weights[f"weight_{kind}_l0"].shape[1] for kind in ("ih", "hh"))
    layer = CELLS[cell](inputs, width, device="meta").to(weights["weight_hh_l0"].dtype)
    layer.load_state_dict(
        {name: one.detach().clone() for name, one in weights.items()}, assign=True
    )
    return layer.requires_grad_(False)


def _of_layer(state: Tensor, number: int, width: int) -> Tensor:
    return state[number : number + 1, :, :width].contiguous()


class CutLinear(nn.Module):
    """A linear layer without the rows of outputs whose weights are zero: those are their bias.

    weight: [rows, inputs]; bias: [outputs]; rows: which outputs the rows are.
    """

    weight: Tensor
    bias: Tensor
    rows: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, rows: Tensor) -> None:
        super().__init__()
        for name, tensor in (("weight", weight), ("bias", bias), ("rows", rows)):
            self.register_buffer(name, tensor.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Outputs [..., outputs] for x [..., inputs]."""
        return placed(F.linear(x, self.weight, self.bias[self.rows]), self.rows, self.bias)


def placed(some: Tensor, rows: Tensor, bias: Tensor) -> Tensor:
    """All outputs, given those of some rows: the others are their bias."""
    return bias.expand(*some.shape[:-1], -1).clone().index_copy_(-1, rows, some)


def stacked(states: Sequence[Tensor], width: int) -> Tensor:
    """The states [batch, units] of layers as [layers, batch, width]; zeros beyond their units."""
    return torch.stack([F.pad(one, (0, width - one.shape[-1])) for one in states])


def layer_weights(recurrent: nn.Module) -> list[list[Tensor]]:
    """Of each layer the matrices of inputs and state, then their biases."""
    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    if isinstance(recurrent, CutRecurrent):
        return [[layer.get_parameter(f"{kind}_l0") for kind in kinds] for layer in recurrent.layers]
    assert isinstance(recurrent, nn.RNNBase)
    layers = range(recurrent.num_layers)
    return [[recurrent.get_parameter(f"{kind}_l{n}") for kind in kinds] for n in layers]


def layer_states(recurrent: nn.Module, flat: Tensor) -> Tensor:
    """Numbers for all units [batch, units], layer after layer, as [layers, batch, width]."""
    if isinstance(recurrent, CutRecurrent):
        return stacked(torch.split(flat, recurrent.widths, -1), recurrent.hidden_size)
    assert isinstance(recurrent, nn.RNNBase)
    return flat.view(len(flat), recurrent.num_layers, -1).movedim(1, 0).contiguous()
