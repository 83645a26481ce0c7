"""Three recurrent cells: forward and backward, one step at a time and in place."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor


class Trace(NamedTuple):
    """What the forward pass of a layer saves for the backward pass: [time, batch, hidden] each.

    gates: one for each gate, in torch's order: its input, and after the step its output.
    outputs: the states h.
    inner: the inner states c of an LSTM.
    saved: what else a cell needs: tanh(c) of an LSTM; a_n of a GRU.
    extra: inputs of a cell beside those of its gates: x_n of a GRU.
    """

    gates: Sequence[Tensor]
    outputs: Tensor
    inner: Tensor | None
    saved: Tensor | None
    extra: Tensor | None


class CellState(NamedTuple):
    """The state h, and the inner state c of an LSTM."""

    h: Tensor
    c: Tensor | None


class Cell(ABC):
    """One step of a cell: forward, and backward from its state to its gates."""

    gates: ClassVar[int]
    #: Whether the cell has an inner state c, and whether it saves a tensor beside gates and states.
    has_inner: ClassVar[bool] = False
    saves: ClassVar[bool] = False

    @abstractmethod
    def step(self, trace: Trace, time: int, before: CellState) -> None:
        """Fill the trace at `time` from the inputs of the gates and the state before."""

    @abstractmethod
    def slopes(self, trace: Trace, before: CellState, into: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Fill `into` with the derivative of the state by the input of each gate, for all steps.

        Gives further factors that `backward` needs. `before` are the states before each step.
        """

    @abstractmethod
    def backward(
        self, slopes: Sequence[Tensor], factors: Sequence[Tensor], dh: Tensor, dc: Tensor | None
    ) -> Tensor | None:
        """Turn the slopes of a step into gradients, given those by its state.

        `dc` becomes the gradient by the c before. Gives the part of the gradient by the h before
        that does not go through the gates.
        """


class LSTM(Cell):
    """c = f c' + i g; h = o tanh(c); the gates are i, f, g, o."""

    gates = 4
    has_inner = saves = True

    def step(self, trace: Trace, time: int, before: CellState) -> None:
        """As above."""
        i, f, g, o = (gate[time] for gate in trace.gates)
        c, squashed = _there(trace.inner)[time], _there(trace.saved)[time]
        i.sigmoid_()
        f.sigmoid_()
        g.tanh_()
        o.sigmoid_()
        torch.mul(f, _there(before.c), out=c).addcmul_(i, g)
        torch.tanh(c, out=squashed)
        torch.mul(o, squashed, out=trace.outputs[time])

    def slopes(self, trace: Trace, before: CellState, into: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Of c by i, f and g; of h by o. The factors are dh/dc and dc/dc'."""
        i, f, g, o = trace.gates
        squashed = _there(trace.saved)
        torch.addcmul(i, i, i, value=-1, out=into[0]).mul_(g)
        torch.addcmul(f, f, f, value=-1, out=into[1]).mul_(_there(before.c))
        torch.mul(g, g, out=into[2]).neg_().add_(1).mul_(i)
        torch.addcmul(o, o, o, value=-1, out=into[3]).mul_(squashed)
        return (1 - squashed * squashed).mul_(o), f

    def backward(
        self, slopes: Sequence[Tensor], factors: Sequence[Tensor], dh: Tensor, dc: Tensor | None
    ) -> Tensor | None:
        """The gates i, f and g act through c."""
        of_inner, of_inner_before = factors
        by_inner = _there(dc).addcmul_(dh, of_inner)
        for slope in slopes[:3]:
            slope.mul_(by_inner)
        slopes[3].mul_(dh)
        by_inner.mul_(of_inner_before)
        return None


class GRU(Cell):
    """h = (1 - z) n + z h' with n = tanh(x_n + r a_n); the gates are r, z, n.

    The input of the gate n is a_n = W_hn h' + b_hn alone, since r multiplies it.
    """

    gates = 3
    saves = True

    def step(self, trace: Trace, time: int, before: CellState) -> None:
        """As above; n takes the place of a_n among the gates."""
        r, z, n = (gate[time] for gate in trace.gates)
        r.sigmoid_()
        z.sigmoid_()
        _there(trace.saved)[time].copy_(n)
        n.mul_(r).add_(_there(trace.extra)[time]).tanh_()
        torch.lerp(n, before.h, z, out=trace.outputs[time])

    def slopes(self, trace: Trace, before: CellState, into: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Of h by all three. The factors are dh/dx_n, which becomes its gradient, and dh/dh'."""
        r, z, n = trace.gates
        of_extra = (1 - n * n).mul_(1 - z)
        torch.addcmul(r, r, r, value=-1, out=into[0]).mul_(_there(trace.saved)).mul_(of_extra)
        torch.addcmul(z, z, z, value=-1, out=into[1]).mul_(before.h - n)
        torch.mul(of_extra, r, out=into[2])
        return of_extra, z

    def backward(
        self, slopes: Sequence[Tensor], factors: Sequence[Tensor], dh: Tensor, dc: Tensor | None
    ) -> Tensor | None:
        """All gates act on h itself."""
        del dc
        of_extra, of_before = factors
        for slope in (*slopes, of_extra):
            slope.mul_(dh)
        return dh * of_before


class RNN(Cell):
    """h = tanh(a); the one gate is a."""

    gates = 1

    def step(self, trace: Trace, time: int, before: CellState) -> None:
        """As above."""
        del before
        torch.tanh(trace.gates[0][time], out=trace.outputs[time])

    def slopes(self, trace: Trace, before: CellState, into: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """1 - h^2."""
        del before
        torch.mul(trace.outputs, trace.outputs, out=into[0]).neg_().add_(1)
        return ()

    def backward(
        self, slopes: Sequence[Tensor], factors: Sequence[Tensor], dh: Tensor, dc: Tensor | None
    ) -> Tensor | None:
        """The gate is the output."""
        del factors, dc
        slopes[0].mul_(dh)
        return None


def _there(tensor: Tensor | None) -> Tensor:
    """A tensor that only some cells have, and this one does."""
    assert tensor is not None
    return tensor
