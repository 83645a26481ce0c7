"""Runs of one to four words in captions, and how telling each is."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ORDERS = 4
"""The longest run of words that a caption's scores look at."""

Ngram = tuple[str, ...]


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
