"""Captions as token numbers, and their minibatches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bayesrnn.data.batches import by_like_length, shuffling
from bayesrnn.data.vocabulary import EOS, Vocabulary
from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.tasks.captions.data import CaptionedImages, Captions

#: Minibatches sorted by length together. Many captions are equally long, so that a minibatch is
#: another one in every epoch even in blocks as large as these, which have 2 to 3% of padding.
_BLOCK = 64


class CaptionBatch(NamedTuple):
    """Some captions side by side, each in a column, with the features of its image.

    features: `[batch, width]`.
    inputs: `[time, batch]`, `<eos>` (which stands for the start, too) and the caption's words.
    targets: `[time, batch]`, in the same places what follows: the caption's words and `<eos>`.
    mask: `[time, batch]`, true where a target counts; below, columns are filled with `<eos>`.
    """

    features: Tensor
    inputs: Tensor
    targets: Tensor
    mask: Tensor


@dataclass(frozen=True)
class EncodedCaptions:
    """All captions of some images, each an example to learn from.

    words: int64 `[words]`, all captions one after the other, each between two `<eos>`.
    starts: int64 `[captions]`, the place of a caption's first `<eos>`.
    lengths: int64 `[captions]`, its predictions: its words and the `<eos>` at its end.
    images: int64 `[captions]`, the number of its image.
    features: float32 `[images, width]`.
    """

    words: Tensor
    starts: Tensor
    lengths: Tensor
    images: Tensor
    features: Tensor

    @classmethod
    def encode(cls, images: CaptionedImages, vocabulary: Vocabulary) -> EncodedCaptions:
        """Give the captions' words their numbers, unknown ones that of `<unk>`."""
        tokens, lengths, owners = list[str](), list[int](), list[int]()
        for number, captions in enumerate(images.captions):
            for caption in captions:
                tokens += [EOS, *caption, EOS]
                lengths.append(len(caption) + 1)
                owners.append(number)
        return cls.laid_out(vocabulary.encode(tokens), lengths, owners, images.features)

    @classmethod
    def laid_out(
        cls, words: Tensor, lengths: Sequence[int], images: Sequence[int], features: Tensor
    ) -> EncodedCaptions:
        """From `words` as they are kept, and for each caption its predictions and its image."""
        long, owners = (torch.tensor(part, dtype=torch.long) for part in (lengths, images))
        return cls(words, (long + 1).cumsum(0) - (long + 1), long, owners, features)

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, chosen: Tensor) -> CaptionBatch:
        """The captions with these numbers, side by side."""
        starts, lengths = self.starts[chosen], self.lengths[chosen]
        step = torch.arange(int(lengths.max()), device=starts.device)[:, None]
        last = starts + lengths
        return CaptionBatch(
            self.features[self.images[chosen]],
            self.words[(starts + step).minimum(last)],
            self.words[(starts + step + 1).minimum(last)],
            step < lengths,
        )

    def by_length(self, batch_size: int) -> Iterator[CaptionBatch]:
        """Every caption once, those of like length together."""
        if batch_size < 1:
            raise ConfigError(f"batch size is {batch_size}; it has to be 1 or more")
        order = self.lengths.argsort(stable=True)
        return (self.batch(chosen) for chosen in torch.split(order, batch_size))

    def to(self, device: torch.device) -> EncodedCaptions:
        """The same captions on a device."""
        parts = (self.words, self.starts, self.lengths, self.images, self.features)
        return EncodedCaptions(*(part.to(device) for part in parts))


class CaptionBatches:
    """The minibatches of one epoch, by number: each caption at most once, in random order.

    A caption counts as one (`steps` is 1), and its loss is the sum over its words. Captions of
    like length share a minibatch (`by_like_length`). All is a pure function of `seed` and `epoch`,
    so a run that is resumed sees the same. The tail that does not fill a minibatch is left out of
    this epoch; it is another one in the next.
    """

    def __init__(self, captions: EncodedCaptions, batch_size: int, seed: int, epoch: int) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch size is {batch_size}; it has to be 1 or more")
        if len(captions) < batch_size:
            raise CorpusError(
                f"there are {len(captions):,} captions to train on, but one minibatch needs "
                f"{batch_size:,}; give more captions or a smaller --batch-size"
            )
        self._chosen = by_like_length(captions.lengths, batch_size, shuffling(seed, epoch), _BLOCK)
        self._captions = captions
        self.sequences = batch_size
        self.steps = 1

    def length(self, number: int) -> float:
        """The mean length of the captions of a minibatch, `<eos>` counted."""
        return self._captions.lengths[self._chosen[number]].double().mean().item()

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, number: int) -> CaptionBatch:
        if not 0 <= number < len(self):
            raise IndexError(f"minibatch {number} of {len(self)}")
        return self._captions.batch(self._chosen[number])

    def __iter__(self) -> Iterator[CaptionBatch]:
        return (self[number] for number in range(len(self)))


def captions_fingerprint(data: Captions) -> str:
    """A hash of the known words, and of the training captions and features."""
    digest = hashlib.sha256("\n".join(data.vocabulary.words).encode())
    encoded = EncodedCaptions.encode(data.train, data.vocabulary)
    for part in (encoded.words, encoded.images, encoded.features):
        digest.update(part.numpy().tobytes())
    return digest.hexdigest()
