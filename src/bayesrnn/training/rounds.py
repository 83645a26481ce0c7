"""Training rounds, which come one after the other; most methods have one."""

from collections.abc import Sequence
from typing import NamedTuple


class Round(NamedTuple):
    """A round of training.

    number: counted from 0.
    start: the epochs of all rounds before it.
    epochs: its own.
    """

    number: int
    start: int
    epochs: int


def round_of(epoch: int, lengths: Sequence[int]) -> Round:
    """The round that an epoch, counted from 0, belongs to; after the end, the last one."""
    start = 0
    for number, epochs in enumerate(lengths):
        if epoch < start + epochs or number == len(lengths) - 1:
            return Round(number, start, epochs)
        start += epochs
    raise ValueError("there has to be a round")
