"""Texts cut into segments, each an example with its text's target, and their minibatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from bayesrnn.data.batches import Sequences
from bayesrnn.errors import CorpusError


class SegmentBatch(NamedTuple):
    """Words `[time, batch]`, how many of each column count, and the targets `[batch]`.

    Below its last word a column is padded with arbitrary words; nothing may depend on them.
    """

    words: Tensor
    lengths: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Segments(Sequences[SegmentBatch]):
    """The segments of some texts, in order, one after the other without gaps.

    texts: int64 `[segments]`, the number of the text that a segment is from.
    targets: `[texts]`, float64 for numbers, int64 for labels.
    """

    noun: ClassVar[str] = "segments of text"

    texts: Tensor
    targets: Tensor

    @classmethod
    def cut(cls, texts: Sequence[Tensor], targets: Tensor, longest: int) -> Segments:
        """Cut each text into as few segments of up to `longest` words as can be.

        The lengths of a text's segments differ by at most one word: a short rest would count in the
        mean over the text's segments like a long one.
        """
        if not len(texts) == len(targets) > 0 or not all(map(len, texts)):
            raise CorpusError("texts to cut need at least one word and a target each")
        lengths, numbers = [], []
        for number, text in enumerate(texts):
            parts = -(-len(text) // longest)
            shorter, longer_parts = divmod(len(text), parts)
            lengths += [shorter + (part < longer_parts) for part in range(parts)]
            numbers += [number] * parts
        long = torch.tensor(lengths)
        return cls(
            torch.cat(list(texts)), long.cumsum(0) - long, long, torch.tensor(numbers), targets
        )

    def batch(self, chosen: Tensor) -> SegmentBatch:
        """The segments with these numbers, side by side."""
        starts, lengths = self.starts[chosen], self.lengths[chosen]
        step = torch.arange(int(lengths.max()), device=starts.device)
        places = (starts + step[:, None]).clamp(max=len(self.words) - 1)
        return SegmentBatch(self.words[places], lengths, self.targets[self.texts[chosen]])

    def mean_by_text(self, values: Tensor) -> Tensor:
        """The mean over the segments of each text of `values` `[segments, ...]`."""
        texts, count = self.texts.to(values.device), len(self.targets)
        sums = values.new_zeros(count, *values.shape[1:]).index_add(0, texts, values)
        counts = torch.bincount(texts, minlength=count)
        means: Tensor = sums / counts.view(-1, *[1] * (values.dim() - 1))
        return means

    def with_unknown(self, most: float, unknown: int, generator: torch.Generator) -> Segments:
        """The same segments with some words replaced by the word numbered `unknown`.

        Which share of a segment's words is replaced is `most` times the eighth power of a uniform
        number: mostly hardly any, a ninth on average, but now and then nearly all.
        """
        shares = most * torch.rand(len(self.lengths), generator=generator).pow(8)
        drawn = torch.rand(len(self.words), generator=generator)
        replaced = drawn < shares.repeat_interleave(self.lengths.cpu())
        return replace(self, words=self.words.masked_fill(replaced.to(self.words.device), unknown))

    def first_texts(self, count: int) -> Segments:
        """The segments of the first `count` texts."""
        kept = int((self.texts < count).sum())
        ends = self.starts[:kept] + self.lengths[:kept]
        return Segments(
            words=self.words[: int(ends[-1])],
            starts=self.starts[:kept],
            lengths=self.lengths[:kept],
            texts=self.texts[:kept],
            targets=self.targets[:count],
        )
