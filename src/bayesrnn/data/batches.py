"""Cutting a stream of tokens into `[time, batch]` pieces, for training and for evaluation."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayesrnn.errors import ConfigError, CorpusError


class Batch(NamedTuple):
    """Tokens `[time, batch]` and, in the same places, the tokens that follow them."""

    inputs: Tensor
    targets: Tensor


class EvaluationBatch(NamedTuple):
    """As `Batch`, with a `mask` that is true where a target counts and false on padding."""

    inputs: Tensor
    targets: Tensor
    mask: Tensor


class TrainingBatches:
    """The minibatches of one epoch, in order and by number.

    The stream is cut into `batch_size` contiguous rows, which are walked side by side `unroll`
    tokens at a time, so that the recurrent state after minibatch i is the one that minibatch i + 1
    needs. The tail that does not fill a minibatch is dropped, as is customary.
    """

    def __init__(self, stream: Tensor, batch_size: int, unroll: int) -> None:
        _require_positive(batch_size=batch_size, unroll=unroll)
        length = len(stream) // batch_size
        self.sequences = batch_size
        self.steps = unroll
        self._count = max(length - 1, 0) // unroll
        if not self._count:
            raise CorpusError(
                f"the training text has {len(stream):,} tokens, but one minibatch of {batch_size} "
                f"rows of {unroll} tokens needs {batch_size * (unroll + 1):,}; "
                "give more text, or a smaller --batch-size or --unroll"
            )
        self._columns = stream[: batch_size * length].view(batch_size, length).t().contiguous()

    def length(self, number: int) -> float:
        """As many predictions for each sequence in every minibatch."""
        del number
        return self.steps

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Batch:
        if not 0 <= number < self._count:
            raise IndexError(f"minibatch {number} of {self._count}")
        start, stop = number * self.steps, (number + 1) * self.steps
        return Batch(self._columns[start:stop], self._columns[start + 1 : stop + 1])

    def __iter__(self) -> Iterator[Batch]:
        return (self[number] for number in range(self._count))


def evaluation_batches(stream: Tensor, streams: int, unroll: int) -> Iterator[EvaluationBatch]:
    """Cut a stream so that each of its `len(stream) - 1` predictions is scored exactly once.

    The predictions are shared out to `streams` contiguous parts whose lengths differ by at most
    one. With `streams=1` there is no cut at all, and the perplexity does not depend on `unroll`.
    """
    _require_positive(streams=streams, unroll=unroll)
    if len(stream) < 2:
        raise CorpusError(
            f"the text to evaluate has {len(stream)} token(s), but a prediction needs at least 2; "
            "give more text"
        )
    return _cut_evenly(stream, streams, unroll)


def _cut_evenly(stream: Tensor, streams: int, unroll: int) -> Iterator[EvaluationBatch]:
    predictions = len(stream) - 1
    shorter, longer_parts = divmod(predictions, streams)
    part = torch.arange(streams, device=stream.device)
    lengths = shorter + (part < longer_parts).long()
    starts = lengths.cumsum(0) - lengths
    longest = shorter + bool(longer_parts)
    for first in range(0, longest, unroll):
        step = torch.arange(first, min(first + unroll, longest), device=stream.device)
        mask = step[:, None] < lengths
        place = (starts + step[:, None]).clamp(max=predictions - 1)
        yield EvaluationBatch(stream[place], stream[place + 1], mask)


def shuffling(seed: int, epoch: int) -> torch.Generator:
    """The randomness in the order of an epoch's examples: a pure function of the two numbers."""
    for name, number in (("seed", seed), ("epoch", epoch)):
        if number < 0:
            raise ConfigError(f"{name} is {number}; it has to be 0 or more")
    mixed = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(b"shuffle"), epoch))
    return torch.Generator().manual_seed(int(mixed.generate_state(1, np.uint64)[0]))


def by_like_length(
    lengths: Tensor, batch_size: int, generator: torch.Generator, block: int = 16
) -> Tensor:
    """The numbers `[minibatches, batch_size]` of sequences of these lengths, for one epoch.

    Sequences of like length share a minibatch, so that few words are read for nothing: they are
    shuffled, sorted by length within blocks of `block` minibatches, and the minibatches shuffled
    again. A block is to be large enough to find sequences of like length, and small enough that a
    minibatch is another one in every epoch. The tail that does not fill a minibatch is left out.
    """
    count = len(lengths) // batch_size
    shuffled = torch.randperm(len(lengths), generator=generator)[: count * batch_size]
    on_cpu = lengths.cpu()
    blocks = torch.split(shuffled, block * batch_size)
    like = torch.cat([block[on_cpu[block].argsort(stable=True)] for block in blocks])
    order = torch.randperm(count, generator=generator)
    return like.view(count, batch_size)[order].to(lengths.device)


def _require_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ConfigError(f"{name.replace('_', ' ')} is {number}; it has to be 1 or more")
