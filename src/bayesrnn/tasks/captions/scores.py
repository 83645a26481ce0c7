"""Scores of captions against those that people wrote: BLEU, ROUGE-L and CIDEr-D."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ORDERS = 4
"""The longest run of words that a caption's scores look at."""

#: Scores are kept and shown times this, as the field does.
SCALE = 100

CIDER_SIGMA = 6.0
_ROUGE_BETA = 1.2
# What coco-caption adds to counts, so that an empty sum is not divided by 0.
_TINY, _SMALL = 1e-15, 1e-9

Ngram = tuple[str, ...]
Words = Sequence[str]


def ngram_counts(words: Sequence[str]) -> Counter[Ngram]:
    """How often each run of 1 to 4 words occurs in a caption."""
    runs = tuple(words)
    return Counter(
        runs[start : start + order]
        for order in range(1, ORDERS + 1)
        for start in range(len(runs) - order + 1)
    )


@dataclass(frozen=True)
class DocumentFrequencies:
    """In the captions of how many images each run of words occurs, out of how many images."""

    images: int
    counts: Counter[Ngram]

    @classmethod
    def of(cls, images: Iterable[Iterable[Counter[Ngram]]]) -> "DocumentFrequencies":
        """Count over images, each given by the counts of its captions."""
        total, counts = 0, Counter[Ngram]()
        for captions in images:
            total += 1
            counts.update(set().union(*captions))
        return cls(total, counts)

    def weight(self, ngram: Ngram) -> float:
        """The logarithm of images / frequency; a run that never occurred counts as one that did."""
        return math.log(self.images) - math.log(max(1, self.counts[ngram]))


@dataclass(frozen=True)
class CaptionScores:
    """The scores of one caption for each image, in the order of the images.

    bleu_counts: int64 `[images, 10]`, what BLEU is made of (`bleu`).
    rouge: float64 `[images]`, from 0 to 1.
    cider: float64 `[images]`, from 0 to 10. Since it weighs runs of words by how many of the
        scored images have them, it depends on the whole set.
    """

    bleu_counts: Tensor
    rouge: Tensor
    cider: Tensor

    def __len__(self) -> int:
        return len(self.cider)

    def metrics(self) -> dict[str, float]:
        """The metrics of the whole set, as the field prints them (some times 100)."""
        orders = bleu(self.bleu_counts.sum(0)).tolist()
        return {
            **{f"BLEU-{order}": value for order, value in enumerate(orders, 1)},
            "ROUGE-L": self.rouge.mean().item(),
            "CIDEr": self.cider.mean().item(),
        }


def score_captions(
    candidates: Sequence[Words], references: Sequence[Sequence[Words]]
) -> CaptionScores:
    """Score a caption for each image, cut into words, against the captions that people wrote."""
    counted = [ngram_counts(words) for words in candidates]
    known = [[ngram_counts(words) for words in captions] for captions in references]
    bleu_rows, rouge_rows, cider_rows = [], [], []
    frequencies = DocumentFrequencies.of(known)
    for words, counts, captions, captions_counts in zip(
        candidates, counted, references, known, strict=True
    ):
        lengths = [len(caption) for caption in captions]
        bleu_rows.append(_bleu_counts(len(words), counts, lengths, captions_counts))
        rouge_rows.append(rouge_l(words, captions))
        cider_rows.append(cider_d(counts, captions_counts, frequencies))
    return CaptionScores(
        torch.tensor(bleu_rows),
        torch.tensor(rouge_rows, dtype=torch.double),
        torch.tensor(cider_rows, dtype=torch.double),
    )


def bleu(counts: Tensor) -> Tensor:
    """BLEU-1 to BLEU-4 (Papineni et al. 2002) `[..., 4]` from counts `[..., 10]`.

    The counts are the words of the candidate, those of the reference closest in length (the
    shorter of two), the candidate's runs of 1 to 4 words, and how many of these are in a
    reference, each at most as often as the reference that has it most. Those of a set are the
    sums over its images. BLEU-n is the geometric mean of the shares of orders 1 to n, times
    exp(1 - reference / candidate) where the candidate is shorter.
    """
    numbers = counts.double()
    candidate, reference = numbers[..., 0], numbers[..., 1]
    runs, found = numbers[..., 2 : 2 + ORDERS], numbers[..., 2 + ORDERS :]
    shares = ((found + _TINY) / (runs + _SMALL)).log().cumsum(-1)
    ratio = (candidate + _TINY) / (reference + _SMALL)
    means = (shares / torch.arange(1, ORDERS + 1)).exp()
    return means * (1 - 1 / ratio).clamp(max=0).exp()[..., None]


def _bleu_counts(
    words: int,
    counts: Counter[Ngram],
    reference_lengths: Sequence[int],
    references: Sequence[Counter[Ngram]],
) -> list[int]:
    closest = min(reference_lengths, key=lambda length: (abs(length - words), length))
    found = [0] * ORDERS
    for ngram, count in counts.items():
        found[len(ngram) - 1] += min(count, max(other[ngram] for other in references))
    runs = [max(0, words - order) for order in range(ORDERS)]
    return [words, closest, *runs, *found]


def rouge_l(candidate: Words, references: Sequence[Words]) -> float:
    """ROUGE-L (Lin 2004): (1 + b^2) P R / (R + b^2 P), b = 1.2.

    P and R are the longest common subsequence's share of the candidate and of a reference, each
    the best over all references. An empty caption counts as one word that is empty.
    """
    own = candidate or ("",)
    others = [reference or ("",) for reference in references]
    common = [longest_common_subsequence(own, other) for other in others]
    if not any(common):
        return 0.0
    precision = max(common) / len(own)
    recall = max(length / len(other) for length, other in zip(common, others, strict=True))
    return (1 + _ROUGE_BETA**2) * precision * recall / (recall + _ROUGE_BETA**2 * precision)


def longest_common_subsequence(first: Words, second: Words) -> int:
    """The length of the longest sequence of words that both have in this order.

    A row of the usual table only ever rises by one from a place to the next, so it is kept as the
    bits of one number, 0 where it rises, and a whole row is worked out at once (Hyyro 2004).
    """
    places: dict[str, int] = {}
    for place, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << place
    row = (1 << len(first)) - 1
    for word in second:
        met = row & places.get(word, 0)
        row = row + met | row - met
    return len(first) - (row & (1 << len(first)) - 1).bit_count()


@dataclass(frozen=True)
class _Vector:
    """A caption as CIDEr sees it: its runs of words with their weights."""

    weights: dict[Ngram, float]
    norms: list[float]
    length: int

    @classmethod
    def of(cls, counts: Counter[Ngram], frequencies: DocumentFrequencies) -> "_Vector":
        weights = {ngram: count * frequencies.weight(ngram) for ngram, count in counts.items()}
        squares = [0.0] * ORDERS
        length = 0
        for ngram, weight in weights.items():
            squares[len(ngram) - 1] += weight * weight
            # As coco-caption: a caption is as long as it has pairs of words.
            length += counts[ngram] if len(ngram) == 2 else 0
        return cls(weights, [math.sqrt(square) for square in squares], length)


def cider_d(
    candidate: Counter[Ngram],
    references: Sequence[Counter[Ngram]],
    frequencies: DocumentFrequencies,
) -> float:
    """CIDEr-D (Vedantam, Zitnick & Parikh 2015) of a caption, from counts of runs of words.

    10 times the mean over references r and orders n = 1..4 of
    exp(-(l_c - l_r)^2 / (2 sigma^2)) * sum_w min(c_w, r_w) r_w / (|c| |r|), sigma = 6, where c_w
    and r_w are how often a run w of n words occurs times log(images / images that have it).
    """
    own = _Vector.of(candidate, frequencies)
    total = 0.0
    for reference in references:
        other = _Vector.of(reference, frequencies)
        products = [0.0] * ORDERS
        for ngram, weight in own.weights.items():
            if (met := other.weights.get(ngram)) is not None:
                products[len(ngram) - 1] += min(weight, met) * met
        alike = sum(
            product / (norm * other_norm)
            for product, norm, other_norm in zip(products, own.norms, other.norms, strict=True)
            if norm and other_norm
        )
        total += alike * math.exp(-((own.length - other.length) ** 2) / (2 * CIDER_SIGMA**2))
    return 10 * total / (ORDERS * len(references))


def scaled_scores(scores: CaptionScores) -> dict[str, float]:
    """The scores of a whole set as they are kept and shown."""
    return {name: SCALE * value for name, value in scores.metrics().items()}
