"""Sequences of different lengths as pieces of time in which the same ones go on.

A `PackedSequence` has the sequences in the order of their lengths, the longest first. Between the
ends of two of them its steps are an ordinary [time, batch, units] of those that go on, so that no
step of a sequence that is over is ever computed.
"""

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from bayesrnn.nn.cells import CellState


def pieces_of(packed: PackedSequence) -> list[Tensor]:
    """Its steps in order: [time, batch, units] each, the batch smaller from piece to piece."""
    runs = [(batch, len(list(run))) for batch, run in groupby(packed.batch_sizes.tolist())]
    parts = torch.split(packed.data, [batch * steps for batch, steps in runs])
    return [
        part.view(steps, batch, *part.shape[1:])
        for part, (batch, steps) in zip(parts, runs, strict=True)
    ]


def rows(state: CellState, start: int, stop: int) -> CellState:
    """The state of some sequences."""
    return CellState(state.h[start:stop], None if state.c is None else state.c[start:stop])


def joined(states: Sequence[CellState]) -> CellState:
    """The states of some sequences and then of others; those of none are left out."""
    states = [state for state in states if len(state.h)]
    if len(states) == 1:
        return states[0]
    inner = [state.c for state in states if state.c is not None]
    return CellState(torch.cat([state.h for state in states]), torch.cat(inner) if inner else None)
