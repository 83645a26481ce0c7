"""Minibatches: of examples in random order, and of a stream of tokens cut into pieces."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from bayesrnn.errors import CorpusError

T = TypeVar("T")
AnySequences = TypeVar("AnySequences", bound="Sequences[Any]")


class Batch(NamedTuple):
    """Tokens `[time, batch]` and, in the same places, the tokens that follow them."""

    inputs: Tensor
    targets: Tensor


class EvaluationBatch(NamedTuple):
    """As `Batch`, with a `mask` that is true where a target counts and false on padding."""

    inputs: Tensor
    targets: Tensor
    mask: Tensor


class EpochBatches(ABC, Generic[T]):
    """The minibatches of one epoch, in order and by number.

    sequences: how many sequences, or examples, lie side by side in each.
    steps: how many units each of them counts as.
    """

    def __init__(self, count: int, sequences: int, steps: int) -> None:
        self._count, self.sequences, self.steps = count, sequences, steps

    def length(self, number: int) -> float:
        """How many predictions a minibatch has for each sequence, on average."""
        del number
        return self.steps

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> T:
        if not 0 <= number < self._count:
            raise IndexError(f"minibatch {number} of {self._count}")
        return self.part(number, slice(None))

    def __iter__(self) -> Iterator[T]:
        return (self[number] for number in range(self._count))

    @abstractmethod
    def part(self, number: int, sequences: slice) -> T:
        """Some sequences of the minibatch of a valid number."""


class TrainingBatches(EpochBatches[Batch]):
    """A stream of tokens, in order.

    The stream is cut into `batch_size` contiguous rows, which are walked side by side `unroll`
    tokens at a time, so that the recurrent state after minibatch i is the one that minibatch i + 1
    needs. The tail that does not fill a minibatch is dropped, as is customary.
    """

    def __init__(self, stream: Tensor, batch_size: int, unroll: int) -> None:
        length = len(stream) // batch_size
        super().__init__(max(length - 1, 0) // unroll, batch_size, unroll)
        if not len(self):
            raise CorpusError(
                f"the training text has {len(stream):,} tokens, but one minibatch of {batch_size} "
                f"rows of {unroll} tokens needs {batch_size * (unroll + 1):,}; "
                "give more text, or a smaller --batch-size or --unroll"
            )
        self._columns = stream[: batch_size * length].view(batch_size, length).t().contiguous()

    def part(self, number: int, sequences: slice) -> Batch:
        """Some columns of a minibatch."""
        start, stop = number * self.steps, (number + 1) * self.steps
        columns = self._columns[:, sequences]
        return Batch(columns[start:stop], columns[start + 1 : stop + 1])


class Examples(ABC, Generic[T]):
    """Examples that can be learnt from in any order, as minibatches T."""

    #: What they are, in the plural.
    noun: ClassVar[str]

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, chosen: Tensor) -> T:
        """The examples with these numbers, side by side."""

    def shuffled(self, batch_size: int, generator: torch.Generator) -> Tensor:
        """The numbers `[minibatches, batch_size]` of the examples in random order."""
        count = len(self) // batch_size
        order = torch.randperm(len(self), generator=generator)
        return order[: count * batch_size].view(count, batch_size)

    def length(self, chosen: Tensor) -> float:
        """How many predictions there are for each of these examples, on average."""
        del chosen
        return 1


@dataclass(frozen=True)
class Sequences(Examples[T]):
    """Examples that are sequences of words, of any lengths; those of like length are read together.

    words: int64 `[words]`, those of all sequences.
    starts, lengths: int64 `[sequences]`, where a sequence begins, and its words that count.
    """

    #: Minibatches sorted by length together.
    block: ClassVar[int] = 16

    words: Tensor
    starts: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    def shuffled(self, batch_size: int, generator: torch.Generator) -> Tensor:
        """The numbers `[minibatches, batch_size]`: sequences of like length share a minibatch.

        So there is little padding. Sequences are shuffled, sorted by length within blocks of some
        minibatches, and the minibatches shuffled again. A block is large enough to find sequences
        of like length, and small enough that minibatches differ from epoch to epoch.
        """
        shuffled, lengths = super().shuffled(batch_size, generator), self.lengths.cpu()
        blocks = torch.split(shuffled.flatten(), self.block * batch_size)
        like = torch.cat([block[lengths[block].argsort(stable=True)] for block in blocks])
        order = torch.randperm(len(shuffled), generator=generator)
        return like.view(shuffled.shape)[order].to(self.lengths.device)

    def by_length(self, batch_size: int) -> Iterator[Tensor]:
        """The numbers of all sequences, the short ones first."""
        return iter(torch.split(self.lengths.argsort(stable=True), batch_size))

    def to(self: AnySequences, device: torch.device) -> AnySequences:
        """The same sequences on a device."""
        parts = {field.name: getattr(self, field.name).to(device) for field in fields(self)}
        return replace(self, **parts)


class ShuffledBatches(EpochBatches[T]):
    """Examples in random order, each at most once.

    The order is a pure function of `seed` and `epoch`, so a run that is resumed sees the same. The
    tail that does not fill a minibatch is left out of this epoch; it is another one in the next.
    """

    def __init__(self, examples: Examples[T], batch_size: int, seed: int, epoch: int) -> None:
        if len(examples) < batch_size:
            raise CorpusError(
                f"there are {len(examples):,} {examples.noun} to train on, but one minibatch needs "
                f"{batch_size:,}; give more {examples.noun} or a smaller --batch-size"
            )
        super().__init__(len(examples) // batch_size, batch_size, steps=1)
        self._chosen = examples.shuffled(batch_size, shuffling(seed, epoch))
        self._examples = examples

    def length(self, number: int) -> float:
        """How many predictions a minibatch has for each example, on average."""
        return self._examples.length(self._chosen[number])

    def part(self, number: int, sequences: slice) -> T:
        """Some examples of a minibatch."""
        return self._examples.batch(self._chosen[number, sequences])


def evaluation_batches(stream: Tensor, streams: int, unroll: int) -> Iterator[EvaluationBatch]:
    """Cut a stream so that each of its `len(stream) - 1` predictions is scored exactly once.

    The predictions are shared out to `streams` contiguous parts whose lengths differ by at most
    one. With `streams=1` there is no cut at all, and the perplexity does not depend on `unroll`.
    """
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
    """The generator that shuffles an epoch's examples: a pure function of the two numbers."""
    mixed = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(b"shuffle"), epoch))
    return torch.Generator().manual_seed(int(mixed.generate_state(1, np.uint64)[0]))
