"""Recurrent layers of torch with masks on the inputs of their gates."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map_only

from bayesrnn.errors import ConfigError
from bayesrnn.nn import cells
from bayesrnn.nn.masked import MaskedLayer, MaskStyle
from bayesrnn.nn.packed import joined, pieces_of, rows
from bayesrnn.nn.unrolled import unrolled


class MaskedRecurrent(MaskedLayer, nn.RNNBase):
    """Masks on what flows into the gates of each recurrent layer: inputs and former states.

    In training mode each sequence has masks of its own, drawn once for all its time steps (Gal &
    Ghahramani 2016); in evaluation mode it is torch's layer, with torch's parameters under torch's
    names.

    dropout: the share that is dropped of the inputs of every layer, the first included (torch's
        layers leave the first whole); above it, these are the outputs of the one below.
    recurrent_dropout: of the states that flow from one step to the next.
    tied: whether all gates of a cell share one mask, or each has its own.

    There is no nonlinearity but tanh, so that `bias` is the fourth argument of all, and no
    `proj_size`.
    """

    cell: ClassVar[cells.Cell]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        recurrent_dropout: float = 0.0,
        tied: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **unknown: Any,
    ) -> None:
        if isinstance(bias, str):  # where torch's RNN has the nonlinearity
            unknown = {"nonlinearity": bias, **unknown}
        for name, value in unknown.items():
            raise ConfigError(
                f"{name} is {value!r}, but the recurrent layers with masks have no {name}; leave "
                "it out (a plain RNN has tanh, states have no projection)"
            )
        super().__init__(  # type: ignore[call-arg]  # torch's layer of the cell, not its base
            input_size=input_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            bias=bias,
            batch_first=batch_first,
            bidirectional=bidirectional,
            device=device,
            dtype=dtype,
        )
        for name, rate in (("dropout", dropout), ("recurrent_dropout", recurrent_dropout)):
            if not 0 <= rate < 1:
                raise ConfigError(f"{name} is {rate:g}; it has to be 0 or more, and below 1")
        self.input_rate, self.recurrent_rate = dropout, recurrent_dropout
        self.style: MaskStyle = MaskStyle(gates="tied" if tied else "untied")

    def extra_repr(self) -> str:
        """Sizes as torch shows them, and the rates."""
        rates = f"input_rate={self.input_rate:g}, recurrent_rate={self.recurrent_rate:g}"
        return f"{super().extra_repr()}, {rates}"

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
            return self._read_packed(x, hx)
        batched = x.dim() != 2
        if not batched:
            x = x.unsqueeze(0 if self.batch_first else 1)
            hx = tree_map_only(Tensor, lambda part: part.unsqueeze(1), hx)
        if hx is None:
            hx = self._zeros(x, x.shape[0 if self.batch_first else 1])
        self.check_forward_args(x, hx, None)
        (outputs,), last = self._read([x.transpose(0, 1) if self.batch_first else x], hx)
        if self.batch_first:
            outputs = outputs.transpose(0, 1)
        if not batched:
            outputs = outputs.squeeze(0 if self.batch_first else 1)
            last = tree_map_only(Tensor, lambda part: part.squeeze(1), last)
        return outputs, last

    def _read_packed(self, x: PackedSequence, hx: Any) -> Any:
        """The same of sequences of different lengths."""
        hx = self._zeros(x.data, int(x.batch_sizes[0])) if hx is None else hx
        if x.sorted_indices is not None:
            hx = tree_map_only(Tensor, lambda part: part.index_select(1, x.sorted_indices), hx)
        self.check_forward_args(x.data, hx, x.batch_sizes)
        pieces, last = self._read(pieces_of(x), hx)
        if x.unsorted_indices is not None:
            last = tree_map_only(
                Tensor, lambda part: part.index_select(1, x.unsorted_indices), last
            )
        return x._replace(data=torch.cat([piece.flatten(0, 1) for piece in pieces])), last

    def _zeros(self, x: Tensor, batch: int) -> Any:
        zeros = x.new_zeros(len(self.all_weights), batch, self.hidden_size)
        return (zeros, zeros) if self.cell.has_inner else zeros

    def _read(self, pieces: list[Tensor], hx: Any) -> tuple[list[Tensor], Any]:
        """All layers, one above the other; the input as pieces, [time, batch, units] each."""
        hs, cs = hx if self.cell.has_inner else (hx, None)
        last: list[cells.CellState] = []
        for _ in range(self.num_layers):
            read = []
            for backwards in range(2 if self.bidirectional else 1):
                number = len(last)
                state = cells.CellState(hs[number], None if cs is None else cs[number])
                outputs, after = self._read_once(pieces, state, number, bool(backwards))
                read.append(outputs)
                last.append(after)
            pieces = read[0]
            if self.bidirectional:
                pieces = [torch.cat(both, -1) for both in zip(*read, strict=True)]
        h = torch.stack([state.h for state in last])
        inner = [state.c for state in last if state.c is not None]
        return pieces, (h, torch.stack(inner)) if inner else h

    def _read_once(
        self, pieces: list[Tensor], start: cells.CellState, number: int, backwards: bool
    ) -> tuple[list[Tensor], cells.CellState]:
        """One layer in one direction: its outputs, and the state of each sequence at its end."""
        w_ih, w_hh, *biases = self.all_weights[number]
        b_ih, b_hh = biases or (None, None)
        # In the order of reading; the longest sequences are the first of each piece.
        order = range(len(pieces))[:: -1 if backwards else 1]
        lengths = [len(pieces[place]) for place in order]
        inputs = pieces[0].new_empty(()).expand(sum(lengths), *pieces[0].shape[1:])
        states = start.h.expand(sum(lengths), *start.h.shape)
        input_mask = self.style.draw(self.input_rate, inputs, self.cell.gates)
        recurrent_mask = self.style.draw(self.recurrent_rate, states, self.cell.gates)
        weights = (w_ih, w_hh, b_ih, b_hh)
        read, ended, done = list(pieces), [], 0
        state = rows(start, 0, 0) if backwards else start
        for place, length in zip(order, lengths, strict=True):
            x, batch = pieces[place], pieces[place].shape[1]
            if backwards:  # shorter sequences begin later
                state = joined([state, rows(start, len(state.h), batch)])
            elif batch < len(state.h):  # or end earlier
                ended.append(rows(state, batch, len(state.h)))
                state = rows(state, 0, batch)
            steps = slice(done, done := done + length)
            masks = [_part(mask, steps, batch) for mask in (input_mask, recurrent_mask)]
            outputs, state = unrolled(
                self.cell, x.flip(0) if backwards else x, state, weights, *masks
            )
            read[place] = outputs.flip(0) if backwards else outputs
        return read, joined([state, *reversed(ended)])


def _part(mask: Tensor | None, steps: slice, batch: int) -> Tensor | None:
    """The mask of some steps and of the first sequences."""
    if mask is None:
        return None
    return (mask[steps] if len(mask) > 1 else mask)[..., :batch, :]


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
    **{kind: kind for kind in (MaskedLSTM, MaskedGRU, MaskedRNN)},
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
        dropout=input_rate,
        bidirectional=layer.bidirectional,
        recurrent_dropout=recurrent_rate,
        device="meta",  # its own parameters are thrown away
    )
    for name, parameter in layer.named_parameters():
        setattr(masked, name, parameter)
    masked.style = style
    return masked.train(layer.training)
