"""A recurrent layer unrolled step by step, with masks on its recurrent connections.

torch's fused layers take no mask there. Here one loop over time serves all cells, and only what
needs the step before is inside it: the product with the recurrent weights and a few operations on
the gates. Products with the inputs are computed before it, the derivatives of the gates before the
backward loop, the gradients of the weights after it, for all steps at once.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bayesrnn.nn.cells import GRU, Cell, CellState, Trace
from bayesrnn.nn.products import Repeated, linear, product

_CONTIGUOUS = torch.contiguous_format

#: W_ih, W_hh, b_ih and b_hh of torch's layers, with torch's order of the gates.
LayerWeights = tuple[Tensor, Tensor, Tensor | None, Tensor | None]


def unrolled(
    cell: Cell,
    x: Tensor,
    state: CellState,
    weights: LayerWeights,
    input_mask: Tensor | None = None,
    recurrent_mask: Tensor | None = None,
) -> tuple[Tensor, CellState]:
    """One layer: outputs [time, batch, hidden] and the last state from inputs [time, batch, in].

    input_mask, recurrent_mask: factors on the inputs and on the states that go into the gates (not
        on the state that a GRU also passes on directly). One for all gates is
        [time, batch, ...], one for each is [time, gates, batch, ...]; with a time axis of 1 it is
        the same at every step.
    """
    w_ih, w_hh, b_ih, b_hh = weights
    untied = any(mask is not None and mask.dim() == 4 for mask in (input_mask, recurrent_mask))
    into_gates = _products(cell, x, w_ih, b_ih, input_mask, untied)
    gate_axis = 1 if untied else 2
    extra = None
    if isinstance(cell, GRU):
        # The reset gate multiplies the contribution of the state to the third gate, and no other.
        r, z, extra = into_gates.unbind(gate_axis)
        into_gates = torch.stack([r, z, torch.zeros_like(extra)], gate_axis)
    if b_hh is not None:
        bias = b_hh.view(cell.gates, -1)
        into_gates = into_gates + (bias[:, None] if untied else bias)
    outputs, c = _Unrolled.apply(  # type: ignore[no-untyped-call]
        cell, untied, into_gates, extra, recurrent_mask, w_hh, *state
    )
    return outputs, CellState(outputs[-1], c)


def _products(
    cell: Cell, x: Tensor, weight: Tensor, bias: Tensor | None, mask: Tensor | None, untied: bool
) -> Tensor:
    """The contribution of the inputs to the gates: [time, batch, gates, hidden].

    Where gates have masks of their own: [time, gates, batch, hidden].
    """
    if mask is not None and mask.dim() == 4:
        masked = (x[:, None] * mask).transpose(0, 1)
        matrices = _by_gate(weight, cell).transpose(1, 2)
        found = torch.bmm(masked.flatten(1, 2), matrices)
        if bias is not None:
            found = found + bias.view(cell.gates, 1, -1)
        return found.view(cell.gates, *x.shape[:2], -1).transpose(0, 1)
    masked = x if mask is None else x * mask
    found = linear(masked, weight, bias).reshape(*x.shape[:2], cell.gates, -1)
    return found.transpose(1, 2) if untied else found


class _Unrolled(torch.autograd.Function):
    """The loop over time, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any,
        cell: Cell,
        untied: bool,
        into_gates: Tensor,
        extra: Tensor | None,
        mask: Tensor | None,
        weight: Tensor,
        h0: Tensor,
        c0: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """The outputs of all steps, and the last inner state."""
        steps = len(into_gates)
        gates = torch.empty_like(into_gates, memory_format=_CONTIGUOUS)
        outputs = h0.new_empty(steps, *h0.shape)
        trace = Trace(
            gates.unbind(1 if untied else 2),
            outputs,
            torch.empty_like(outputs) if cell.has_inner else None,
            torch.empty_like(outputs) if cell.saves else None,
            extra,
        )
        masks = None if mask is None else mask.expand(steps, *mask.shape[1:])
        # The masked states.
        sources = None if masks is None else torch.empty_like(masks, memory_format=_CONTIGUOUS)
        matrix = _by_gate(weight, cell).transpose(1, 2)
        recurrent = None if untied else Repeated(weight, len(h0), steps)
        before = CellState(h0, c0)
        for time in range(steps):
            source = before.h
            if masks is not None and sources is not None:
                source = torch.mul(source, masks[time], out=sources[time])
            if recurrent is None:
                source = source.expand(cell.gates, *h0.shape)
                torch.baddbmm(into_gates[time], source, matrix, out=gates[time])
            else:
                recurrent.added(into_gates[time].flatten(1), source, out=gates[time].flatten(1))
            cell.step(trace, time, before)
            before = CellState(outputs[time], None if trace.inner is None else trace.inner[time])
        ctx.cell, ctx.untied = cell, untied
        ctx.save_for_backward(
            gates, outputs, trace.inner, trace.saved, masks, sources, weight, h0, c0
        )
        return outputs, None if before.c is None else before.c.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_last: Tensor | None) -> tuple[Any, ...]:
        """The gradients by all arguments that are tensors, but for the mask."""
        cell, untied = ctx.cell, ctx.untied
        gates, outputs, inner, saved, masks, sources, weight, h0, c0 = ctx.saved_tensors
        gate_axis = 1 if untied else 2
        trace = Trace(gates.unbind(gate_axis), outputs, inner, saved, None)
        before = CellState(_shifted(h0, outputs), None if inner is None else _shifted(c0, inner))
        d_gates = torch.empty_like(gates)
        slopes = d_gates.unbind(gate_axis)
        factors = cell.slopes(trace, before, slopes)
        matrix = _by_gate(weight, cell)
        recurrent = None if untied else Repeated(weight.t(), len(h0), len(outputs))
        dh = torch.zeros_like(h0)
        dc = None if d_last is None else d_last.clone()
        for time in reversed(range(len(outputs))):
            dh += d_outputs[time]
            past = cell.backward(
                [slope[time] for slope in slopes], [factor[time] for factor in factors], dh, dc
            )
            if recurrent is None:
                dh = torch.bmm(d_gates[time], matrix)
            else:
                dh = recurrent(d_gates[time].flatten(1))
            if masks is not None:
                dh *= masks[time]
            if untied:
                dh = dh.sum(0)
            if past is not None:
                dh += past
        d_weight = None
        if ctx.needs_input_grad[5]:
            d_weight = _weight_gradient(d_gates, before.h if sources is None else sources, untied)
        d_extra = factors[0] if ctx.needs_input_grad[3] else None
        return None, None, d_gates, d_extra, None, d_weight, dh, dc


def _weight_gradient(d_gates: Tensor, sources: Tensor, untied: bool) -> Tensor:
    """The gradient of the recurrent weights from all steps at once."""
    if not untied:
        return product(d_gates.flatten(2).flatten(0, 1).t(), sources.flatten(0, 1).t())
    if sources.dim() == 3:
        sources = sources[:, None].expand_as(d_gates)
    by_gate = d_gates.permute(1, 3, 0, 2).flatten(2)
    return torch.bmm(by_gate, sources.transpose(0, 1).flatten(1, 2)).flatten(0, 1)


def _by_gate(weight: Tensor, cell: Cell) -> Tensor:
    """The weights as one matrix for each gate."""
    return weight.reshape(cell.gates, -1, weight.shape[1])


def _shifted(first: Tensor, states: Tensor) -> Tensor:
    """The states before each step."""
    return torch.cat([first[None], states[:-1]])
