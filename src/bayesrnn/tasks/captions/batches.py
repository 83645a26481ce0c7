"""Captions as token numbers, and their minibatches."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from bayesrnn.data.batches import Sequences
from bayesrnn.data.vocabulary import EOS, Vocabulary
from bayesrnn.tasks.captions.data import CaptionedImages, Captions


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
class EncodedCaptions(Sequences[CaptionBatch]):
    """All captions of some images, each an example to learn from, with a loss summed over words.

    Each lies between two `<eos>`: it starts with the first, and the second counts in its length.

    images: int64 `[captions]`, the number of a caption's image.
    features: float32 `[images, width]`.
    """

    noun: ClassVar[str] = "captions"
    #: Many captions are equally long, so that a minibatch is another one in every epoch even in
    #: blocks as large as these, which have 2 to 3% of padding.
    block: ClassVar[int] = 64

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

    def length(self, chosen: Tensor) -> float:
        """The mean length of these captions, `<eos>` counted."""
        return self.lengths[chosen].double().mean().item()


def captions_fingerprint(data: Captions) -> str:
    """A hash of the known words, and of the training captions and features."""
    digest = hashlib.sha256("\n".join(data.vocabulary.words).encode())
    encoded = EncodedCaptions.encode(data.train, data.vocabulary)
    for part in (encoded.words, encoded.images, encoded.features):
        digest.update(part.numpy().tobytes())
    return digest.hexdigest()
