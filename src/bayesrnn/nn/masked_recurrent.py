"""Recurrent layers of torch with masks on the inputs of their gates."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map_only

from bayesrnn.errors import ConfigError
from bayesrnn.nn import cells
from bayesrnn.nn.masked import MaskedLayer, MaskStyle
from bayesrnn.nn.unrolled import unrolled


class MaskedRecurrent(MaskedLayer, nn.RNNBase):
    """Masks on what flows into the gates of each recurrent layer: inputs and former states.

    input_rate: of the inputs of every layer; above the first, these are the outputs of the one
        below.
    recurrent_rate: of the states that flow from one step to the next.
    """

    cell: ClassVar[cells.Cell]
    input_rate: float = 0.0
    recurrent_rate: float = 0.0

    @property
    def rate(self) -> float:
        """The larger of the two."""
        return max(self.input_rate, self.recurrent_rate)

    def switch_off(self) -> None:
        """Set the rates to 0."""
        self.input_rate = self.recurrent_rate = 0.0

    def forward(self, x: Any, hx: Any = None) -> Any:
        """Outputs and last state, as torch's layers give them."""
        if not self.training or not self.rate:
            return super().forward(x, hx)
        if isinstance(x, PackedSequence):
            raise ConfigError(
                f"the {self.mode} layer was given a PackedSequence, which masks cannot be put on; "
                "pad the sequences instead, and read each at its own last step"
            )
        batched = x.dim() != 2
        if not batched:
            x = x.unsqueeze(0 if self.batch_first else 1)
            hx = tree_map_only(Tensor, lambda part: part.unsqueeze(1), hx)
        if hx is None:
            hx = self._zeros(x)
        self.check_forward_args(x, hx, None)
        outputs, last = self._read(x.transpose(0, 1) if self.batch_first else x, hx)
        if self.batch_first:
            outputs = outputs.transpose(0, 1)
        if not batched:
            outputs = outputs.squeeze(0 if self.batch_first else 1)
            last = tree_map_only(Tensor, lambda part: part.squeeze(1), last)
        return outputs, last

    def _zeros(self, x: Tensor) -> Any:
        batch = x.shape[0 if self.batch_first else 1]
        zeros = x.new_zeros(len(self.all_weights), batch, self.hidden_size)
        return (zeros, zeros) if self.cell.has_inner else zeros

    def _read(self, x: Tensor, hx: Any) -> tuple[Tensor, Any]:
        """All layers, one above the other; `x` is [time, batch, units]."""
        hs, cs = hx if self.cell.has_inner else (hx, None)
        directions = 2 if self.bidirectional else 1
        last: list[cells.CellState] = []
        for _ in range(self.num_layers):
            outputs = []
            for backwards in range(directions):
                number = len(last)
                state = cells.CellState(hs[number], None if cs is None else cs[number])
                read, after = self._read_once(x.flip(0) if backwards else x, state, number)
                outputs.append(read.flip(0) if backwards else read)
                last.append(after)
            x = torch.cat(outputs, -1) if self.bidirectional else outputs[0]
        h = torch.stack([state.h for state in last])
        inner = [state.c for state in last if state.c is not None]
        return x, (h, torch.stack(inner)) if inner else h

    def _read_once(
        self, x: Tensor, state: cells.CellState, number: int
    ) -> tuple[Tensor, cells.CellState]:
        """One layer in one direction."""
        w_ih, w_hh, *biases = self.all_weights[number]
        b_ih, b_hh = biases or (None, None)
        states = state.h.expand(len(x), *state.h.shape)
        input_mask = self.style.draw(self.input_rate, x, self.cell.gates)
        recurrent_mask = self.style.draw(self.recurrent_rate, states, self.cell.gates)
        weights = (w_ih, w_hh, b_ih, b_hh)
        return unrolled(self.cell, x, state, weights, input_mask, recurrent_mask)


class MaskedLSTM(MaskedRecurrent, nn.LSTM):
    """`nn.LSTM` with masks."""

    cell = cells.LSTM()


class MaskedGRU(MaskedRecurrent, nn.GRU):
    """`nn.GRU` with masks."""

    cell = cells.GRU()


class MaskedRNN(MaskedRecurrent, nn.RNN):
    """`nn.RNN` with masks."""

    cell = cells.RNN()


_KINDS: dict[type, type[MaskedLSTM | MaskedGRU | MaskedRNN]] = {
    nn.LSTM: MaskedLSTM,
    nn.GRU: MaskedGRU,
    nn.RNN: MaskedRNN,
}


def masked_recurrent(
    layer: nn.RNNBase, input_rate: float, recurrent_rate: float, style: MaskStyle
) -> MaskedRecurrent:
    """The masked layer with the parameters of an ordinary one."""
    kind = _KINDS.get(type(layer))
    if kind is None:
        raise ConfigError(
            f"the network has a recurrent layer {type(layer).__name__}, which masks cannot be put "
            "on; there are: nn.LSTM, nn.GRU, nn.RNN"
        )
    if layer.proj_size or layer.mode == "RNN_RELU":
        what = f"proj_size {layer.proj_size}" if layer.proj_size else "nonlinearity 'relu'"
        raise ConfigError(
            f"the network has a recurrent layer with {what}, which masks cannot be put on; leave "
            "it out"
        )
    masked = kind(
        layer.input_size,
        layer.hidden_size,
        num_layers=layer.num_layers,
        bias=layer.bias,
        batch_first=layer.batch_first,
        bidirectional=layer.bidirectional,
        device="meta",  # its own parameters are thrown away
    )
    for name, parameter in layer.named_parameters():
        setattr(masked, name, parameter)
    masked.input_rate, masked.recurrent_rate = input_rate, recurrent_rate
    masked.style = style
    return masked.train(layer.training)
