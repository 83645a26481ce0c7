"""The words that a model knows, and their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from bayesrnn.errors import CorpusError

EOS = "<eos>"
"""The token that ends a sentence or a line."""

UNK = "<unk>"
"""The token that stands for every word outside the vocabulary."""


@dataclass(frozen=True)
class Vocabulary:
    """An ordered set of words; a word's number is its place in `words`."""

    words: tuple[str, ...]
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = {word: number for number, word in enumerate(self.words)}
        if not numbers:
            raise CorpusError("a vocabulary needs at least one word, but none was given")
        if len(numbers) < len(self.words):
            word, count = Counter(self.words).most_common(1)[0]
            raise CorpusError(
                f"the vocabulary lists {word!r} {count} times; give each word only once"
            )
        object.__setattr__(self, "_numbers", numbers)

    @classmethod
    def build(
        cls,
        tokens: Iterable[str],
        limit: int | None = None,
        *,
        min_count: int = 1,
        require_unk: bool = False,
    ) -> Vocabulary:
        """Take the most frequent words, at most `limit` of them with `<eos>` and `<unk>` counted.

        Words seen fewer than `min_count` times are left out. `<eos>` is always in; `<unk>` is in
        when a word was left out, when the tokens hold it, or when `require_unk`. The order is by
        frequency in the encoded stream (so `<unk>` counts for all that it replaces), and
        alphabetic among equals.
        """
        if limit is not None and limit < 3:
            raise CorpusError(
                f"a vocabulary limit of {limit} is too small: it has to hold {EOS}, {UNK} and "
                "at least one word, so give 3 or more"
            )
        counts = Counter(tokens)
        eos, unk = counts.pop(EOS, 0), counts.pop(UNK, 0)
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        kept = [word for word in ranked if counts[word] >= min_count]
        with_unk = require_unk or unk > 0 or len(kept) < len(ranked)
        if limit is not None and len(kept) + 1 + with_unk > limit:
            with_unk, kept = True, kept[: limit - 2]
        chosen = {word: counts[word] for word in kept} | {EOS: eos}
        if with_unk:
            chosen[UNK] = unk + sum(counts[word] for word in ranked[len(kept) :])
        return cls(tuple(sorted(chosen, key=lambda word: (-chosen[word], word))))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._numbers

    def index(self, word: str) -> int:
        """Give the number of a word, or that of `<unk>` for a word outside the vocabulary."""
        number = self._numbers.get(word, self._numbers.get(UNK))
        if number is None:
            raise CorpusError(
                f"the word {word!r} is not in the vocabulary of {len(self):,} words, which has no "
                f"{UNK} to stand for it; use only words that occur in the training text"
            )
        return number

    def encode(self, tokens: Iterable[str]) -> Tensor:
        """Turn tokens into their numbers, a one-dimensional tensor of int64."""
        return torch.tensor([self.index(token) for token in tokens], dtype=torch.long)

    def decode(self, ids: Tensor | Iterable[int]) -> list[str]:
        """Turn numbers back into words."""
        numbers: list[int] = ids.reshape(-1).tolist() if isinstance(ids, Tensor) else list(ids)
        for number in numbers:
            if not 0 <= number < len(self):
                raise CorpusError(
                    f"there is no word number {number}: the vocabulary has the numbers 0 to "
                    f"{len(self) - 1:,}"
                )
        return [self.words[number] for number in numbers]


VOCABULARY_FILE: Final = "vocabulary.txt"


def vocabulary_text(vocabulary: Vocabulary) -> str:
    """One word a line, in the order of their numbers."""
    return "\n".join(vocabulary.words) + "\n"


def read_vocabulary(files: Mapping[str, str]) -> Vocabulary:
    """The vocabulary out of the files of a run."""
    return Vocabulary(tuple(files[VOCABULARY_FILE].split("\n")[:-1]))
