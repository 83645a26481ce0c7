"""Captions without training: the consensus of the captions of similar images."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from bayesrnn.progress import progress_bar
from bayesrnn.tasks.captions.data import CaptionedImages, CaptionWords
from bayesrnn.tasks.captions.scores import CIDER_SIGMA, ORDERS
from bayesrnn.untrusted import plain_json, read_regular

#: Of how many nearest images the captions are looked through.
NEIGHBOURS: Final = 60


def consensus_captions(
    known: CaptionedImages,
    features: Tensor,
    neighbours: int = NEIGHBOURS,
    advance: Callable[[int], object] | None = None,
) -> list[CaptionWords]:
    """Caption each image of `features` `[images, width]` as similar images were (Devlin 2015).

    Among all captions of its nearest `known` images, take the one with the highest mean CIDEr-D
    to all the others, which says what most people said. The weights of CIDEr are those of the
    known captions. (J. Devlin et al., Exploring Nearest Neighbor Approaches for Image Captioning.)
    """
    index = CaptionIndex(known.captions)
    chosen = []
    for near in nearest_images(known.features, features, neighbours):
        numbers = index.captions_of(near)
        best = index.agreement(numbers).argmax()
        chosen.append(index.captions[int(numbers[best])])
        if advance is not None:
            advance(1)
    return chosen


def nearest_images(known: Tensor, features: Tensor, neighbours: int) -> Tensor:
    """The numbers `[images, neighbours]` of the known images nearest to each, the nearest first.

    Near is a high cosine of the two feature vectors; of equals, the earlier comes first.
    """
    directions = torch.nn.functional.normalize(known.double(), dim=1)
    cosines = torch.nn.functional.normalize(features.double(), dim=1) @ directions.T
    return cosines.argsort(dim=1, descending=True, stable=True)[:, :neighbours]


class CaptionIndex:
    """Captions by number, those of an image side by side, and the CIDEr-D between any of them.

    CIDEr-D compares captions i and j by sum_w min(i_w, j_w) j_w over runs w of words, both
    being counts times the weight of w. The lesser of two counts is the number of t = 1, 2, ...
    that both reach; so with one column for each (w, t), the sum is a plain product of vectors:
    weight where i reaches t, times weight * count where j does. And sums of such products over
    many captions j need only the sum of their vectors.
    """

    def __init__(self, captions: Sequence[Sequence[CaptionWords]]) -> None:
        self.captions = [caption for own in captions for caption in own]
        self._per_image = torch.tensor([len(own) for own in captions])
        owner = torch.arange(len(captions)).repeat_interleave(self._per_image)
        orders = [_entries(*runs, owner) for runs in _runs(self.captions)]
        caption = torch.cat([entries.caption for entries in orders])
        sorting = caption.argsort(stable=True)
        starts = torch.tensor([0, *(entries.columns for entries in orders)]).cumsum(0).tolist()
        shifted = [entries.column + start for entries, start in zip(orders, starts, strict=False)]
        self._column = torch.cat(shifted)[sorting]
        self._giving = torch.cat([entries.giving for entries in orders])[sorting]
        self._taking = torch.cat([entries.taking for entries in orders])[sorting]
        self._per_caption = torch.bincount(caption, minlength=len(self.captions))
        # As coco-caption: a caption is as long as it has pairs of words.
        self._length = torch.tensor([len(caption) - 1 for caption in self.captions])

    def captions_of(self, images: Tensor) -> Tensor:
        """The numbers of all captions of these images."""
        return _places(self._per_image, images)

    def agreement(self, chosen: Tensor) -> Tensor:
        """The mean CIDEr-D of each of the chosen captions to all the others, float64 `[chosen]`."""
        entries = _places(self._per_caption, chosen)
        row = torch.arange(len(chosen)).repeat_interleave(self._per_caption[chosen])
        kinds, column = torch.unique(self._column[entries], return_inverse=True)
        lengths, of_length = torch.unique(self._length[chosen], return_inverse=True)
        giving, taking = self._giving[entries], self._taking[entries]
        # Captions of the same length share the penalty on a difference in length.
        cell = of_length[row] * len(kinds) + column
        sums = torch.bincount(cell, taking, minlength=len(lengths) * len(kinds))
        apart = (lengths[:, None] - lengths).double()
        penalty = torch.exp(-apart.square() / (2 * CIDER_SIGMA**2))
        met = (penalty @ sums.view(len(lengths), len(kinds))).view(-1)[cell]
        totals = torch.bincount(row, giving * (met - taking), minlength=len(chosen))
        return 10 / ORDERS * totals / max(len(chosen) - 1, 1)


@dataclass(frozen=True)
class _Entries:
    """The vectors of all captions over runs of one length, as lists of what is not 0.

    caption, column: int64 `[entries]`, where an entry is, out of `columns`.
    giving, taking: float64 `[entries]`, its value when the caption is compared to others and when
        others are compared to it, each divided by the caption's norm.
    """

    caption: Tensor
    column: Tensor
    giving: Tensor
    taking: Tensor
    columns: int


def _runs(captions: Sequence[CaptionWords]) -> Iterator[tuple[Tensor, Tensor]]:
    """For each order 1 to 4: the number of the caption and of the kind of every run of words."""
    numbers: dict[str, int] = {}
    words = torch.tensor(
        [numbers.setdefault(word, len(numbers)) for caption in captions for word in caption]
    )
    lengths = torch.tensor([len(caption) for caption in captions])
    caption = torch.arange(len(captions)).repeat_interleave(lengths)
    left = lengths.cumsum(0).repeat_interleave(lengths) - torch.arange(len(words))
    start, kind = torch.arange(len(words)), words
    for order in range(1, ORDERS + 1):
        yield caption[start], kind
        longer = left[start] > order
        start = start[longer]
        pairs = kind[longer] * len(numbers) + words[start + order]
        kind = torch.unique(pairs, return_inverse=True)[1]


def _entries(caption: Tensor, kind: Tensor, owner: Tensor) -> _Entries:
    """The entries of runs, given by their captions and kinds; `owner` is the image of a caption."""
    kinds = int(kind.max()) + 1 if len(kind) else 1
    images = int(owner[-1]) + 1
    cells, counts = torch.unique(caption * kinds + kind, return_counts=True)
    caption, kind = cells // kinds, cells % kinds
    seen = torch.unique(owner[caption] * kinds + kind) % kinds
    weights = math.log(images) - torch.bincount(seen, minlength=kinds).double().log()
    values = weights[kind] * counts
    norms = torch.bincount(caption, values.square(), minlength=len(owner)).sqrt()
    norms[norms == 0] = 1  # all weights are 0 there
    reached = torch.arange(int(counts.sum())) - (counts.cumsum(0) - counts).repeat_interleave(
        counts
    )
    caption, kind, values = (part.repeat_interleave(counts) for part in (caption, kind, values))
    columns, column = torch.unique(reached * kinds + kind, return_inverse=True)
    norm = norms[caption]
    return _Entries(caption, column, weights[kind] / norm, values / norm, len(columns))


def _places(sizes: Tensor, groups: Tensor) -> Tensor:
    """The numbers of the members of some groups, which lie one after the other."""
    size = sizes[groups]
    first = (sizes.cumsum(0) - sizes)[groups]
    within = torch.arange(int(size.sum())) - (size.cumsum(0) - size).repeat_interleave(size)
    return first.repeat_interleave(size) + within


@dataclass(frozen=True)
class Consensus:
    """The captions of similar training images, and a hash of all that they depend on."""

    neighbours: int
    captions: list[CaptionWords]
    made_from: str

    @property
    def name(self) -> str:
        """The name of the inference."""
        return _name(self.neighbours)


def consensus_of(
    run: Path,
    known: CaptionedImages,
    split: str,
    images: CaptionedImages,
    neighbours: int = NEIGHBOURS,
) -> Consensus:
    """Captions of similar training images (`consensus_captions`).

    They are slow to find and depend on the data alone, so those that an earlier evaluation of the
    run kept are taken, if they were made from the same images and captions.
    """
    made_from = _fingerprint(known, images)
    file = run / "results" / f"{split}-{_name(neighbours)}.json"
    said = _earlier(file, made_from, images.names)
    if said is None:
        with progress_bar(len(images), " images", "looking at similar images") as bar:
            said = consensus_captions(known, images.features, neighbours, bar.update)
    return Consensus(neighbours, said, made_from)


def _name(neighbours: int) -> str:
    return f"consensus{neighbours}"


def _fingerprint(*parts: CaptionedImages) -> str:
    """A hash of all that captions and scores depend on."""
    digest = hashlib.sha256()
    for images in parts:
        digest.update(repr((images.names, images.captions)).encode())
        digest.update(images.features.numpy().tobytes())
    return digest.hexdigest()


def _earlier(path: Path, made_from: str, names: Sequence[str]) -> list[CaptionWords] | None:
    """The captions of an earlier result; None where there are none that can be used."""
    try:
        content = plain_json(read_regular(path))
        said = {entry["image"]: tuple(entry["consensus"].split()) for entry in content["captions"]}
        return [said[name] for name in names] if content["made_from"] == made_from else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
