"""Texts with a rating or a label: film reviews by name, or a table of the user's own."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from bayesrnn.data.files import published_file, with_home
from bayesrnn.data.text import read_text, sentence_tokens
from bayesrnn.data.vocabulary import EOS, Vocabulary
from bayesrnn.errors import CorpusError
from bayesrnn.tasks.sentiment.segments import Segments
from bayesrnn.tasks.sentiment.tables import TextTable, read_table
from bayesrnn.untrusted import plain_json

SCALE_DATA: Final = "scale"
"""The name of Pang & Lee's (2005) film reviews."""

_AUTHORS = {
    "Dennis+Schwartz": 1027,
    "James+Berardinelli": 1307,
    "Scott+Renshaw": 902,
    "Steve+Rhodes": 1770,
}
_FOLDER = "scaledata/scaledata"
_TEST_SHARE, _VALID_SHARE = 0.2, 0.1
#: Different texts below which a part would be too small to say anything.
_FEWEST = 10


@dataclass(frozen=True)
class Numbers:
    """Targets that are numbers, with the mean and standard deviation of the training texts'."""

    mean: float
    sd: float

    def standardised(self, targets: Tensor) -> Tensor:
        """What a network learns: targets with mean 0 and standard deviation 1, in float32."""
        return ((targets - self.mean) / self.sd).float()


@dataclass(frozen=True)
class Labels:
    """Targets that are labels; a label's number is its place."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Reviews:
    """Texts to train on, to validate with and to test with, and what is to be predicted."""

    name: str
    vocabulary: Vocabulary
    target: Numbers | Labels
    train: Segments
    valid: Segments
    test: Segments


def load_reviews(
    data: str,
    data_dir: Path | None = None,
    *,
    text_column: str | None = None,
    target_column: str | None = None,
    target: str = "auto",
    delimiter: str | None = None,
    vocabulary_limit: int = 20_000,
    segment: int = 200,
) -> Reviews:
    """Load Pang & Lee's reviews ("scale") or a table of texts and targets, a CSV file.

    The vocabulary is the words of the training texts that occur at least twice, the most frequent
    ones, at most `vocabulary_limit` with `<unk>` counted. Texts are cut into segments of up to
    `segment` words.
    """
    targets: list[float] | list[str]
    if data == SCALE_DATA:
        words, targets = _scale(data_dir)
    else:
        table = read_table(with_home(data), text_column, target_column, target, delimiter)
        words, targets = _own_words(data, table), table.targets
    parts = split_by_text(words)
    if parts is None:
        raise CorpusError(
            f"{data} has {len(set(map(tuple, words))):,} different texts, but training, validation "
            f"and test need at least {_FEWEST} in all; give more"
        )
    described, values = _described(data, targets, parts.train)
    tokens = [word for number in parts.train for word in words[number]]
    vocabulary = Vocabulary.build(tokens, vocabulary_limit, min_count=2, require_unk=True)
    made = [
        Segments.cut([vocabulary.encode(words[n]) for n in part], values[part], segment)
        for part in parts
    ]
    return Reviews(data, vocabulary, described, *made)


def review_words(text: str) -> list[str]:
    """The words and signs of running text, lower-cased; where sentences end is left to the signs.

    Text that is cut at its spaces already mostly stays as it is. Of Pang & Lee's reviews, which are
    learnt as the data has them, 0.3% of the words would be cut further (1/2, writer/director,
    kids'), which makes about 0.5% more words. By that much a review given to a trained run differs
    from the training data.
    """
    return [token for token in sentence_tokens(text) if token != EOS]


class Parts(NamedTuple):
    """The numbers of the texts of each part, in the order of the texts' hashes."""

    train: list[int]
    valid: list[int]
    test: list[int]


def split_by_text(texts: Sequence[Sequence[str]]) -> Parts | None:
    """Split texts 80/20 into training and test, and hold out 10% of the training for validation.

    Texts are sorted by the SHA-256 of their words: as good as at random, and the same on every
    machine, for every run and in whatever order they come. Equal texts (some reviews are there
    twice) get into the same part. None if there are too few.
    """
    by_hash: dict[str, list[int]] = {}
    for number, words in enumerate(texts):
        key = hashlib.sha256(" ".join(words).encode()).hexdigest()
        by_hash.setdefault(key, []).append(number)
    if len(by_hash) < _FEWEST:
        return None
    ordered = [by_hash[key] for key in sorted(by_hash)]
    test = round(_TEST_SHARE * len(ordered))
    valid = max(1, round(_VALID_SHARE * (len(ordered) - test)))
    groups = (ordered[test + valid :], ordered[test : test + valid], ordered[:test])
    return Parts(*([number for same in group for number in same] for group in groups))


def three_classes(ratings: Tensor) -> Tensor:
    """Pang & Lee's three classes of a rating from 0 to 1: up to 0.4, between, from 0.7 on."""
    return (ratings > 0.4).long() + (ratings >= 0.7).long()


def target_text(target: Numbers | Labels) -> str:
    """What is predicted, as a text that `read_target` takes."""
    values: dict[str, Any] = (
        {"kind": "number", "mean": target.mean, "sd": target.sd}
        if isinstance(target, Numbers)
        else {"kind": "label", "labels": list(target.names)}
    )
    return json.dumps(values, indent=2) + "\n"


def read_target(text: str) -> Numbers | Labels:
    """What `target_text` wrote."""
    try:
        values = plain_json(text)
        if values["kind"] == "label":
            return _labels(values["labels"])
        mean, sd = (_number(values[name]) for name in ("mean", "sd"))
        if values["kind"] != "number" or not sd > 0:
            raise ValueError("the standard deviation of the numbers has to be above 0")
        return Numbers(mean, sd)
    except (ValueError, KeyError, TypeError) as error:
        raise CorpusError(
            f"what the run predicts cannot be read, its target.json is damaged: {str(error)[:200]}"
        ) from None


def _labels(names: Any) -> Labels:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("the labels have to be a list of texts")
    if len(set(names)) < max(len(names), 2):
        raise ValueError("there have to be two labels or more, each of them once")
    return Labels(tuple(names))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{str(value)[:40]!r} is no number")
    return float(value)


def _scale(data_dir: Path | None) -> tuple[list[list[str]], list[float]]:
    words: list[list[str]] = []
    ratings: list[float] = []
    for author, count in _AUTHORS.items():
        texts = published_file(SCALE_DATA, f"{_FOLDER}/{author}/subj.{author}", data_dir)
        numbers = published_file(SCALE_DATA, f"{_FOLDER}/{author}/rating.{author}", data_dir)
        lines = read_text(texts).splitlines()
        found = read_text(numbers).split()
        for path, have in ((texts, len(lines)), (numbers, len(found))):
            if have != count:
                raise CorpusError(
                    f"{path} has {have:,} lines instead of {count:,}; get version 1.0 of Pang & "
                    "Lee's scale data set"
                )
        words += [line.split() for line in lines]
        try:
            ratings += map(float, found)
        except ValueError as error:
            raise CorpusError(f"{numbers} is damaged: {error}") from None
    return words, ratings


def _own_words(data: str, table: TextTable) -> list[list[str]]:
    words = [review_words(text) for text in table.texts]
    for row, found in zip(table.rows, words, strict=True):
        if not found:
            raise CorpusError(
                f"{data}, row {row}: the text is empty; give each row a text, or leave it out"
            )
    return words


def _described(
    data: str, targets: Sequence[float] | Sequence[str], train: Sequence[int]
) -> tuple[Numbers | Labels, Tensor]:
    """What is to be predicted, and the targets as numbers."""
    if all(isinstance(target, str) for target in targets):
        names = sorted({str(target) for target in targets})
        if len(names) == 1:
            raise CorpusError(
                f"{data} has only one label, {names[0]!r}; there is nothing to tell apart"
            )
        if len(names) > len(targets) / 2:
            raise CorpusError(
                f"{data} has {len(names):,} different labels for {len(targets):,} texts, too many "
                "to learn; give a column of labels that come back, with --target-column"
            )
        places = {name: place for place, name in enumerate(names)}
        return Labels(tuple(names)), torch.tensor([places[str(target)] for target in targets])
    values = torch.tensor([float(target) for target in targets], dtype=torch.double)
    of_training = values[list(train)]
    if bool((of_training == of_training[0]).all()):
        raise CorpusError(
            f"the numbers of the training texts of {data} are all the same "
            f"({of_training[0].item():g}); there is nothing to predict"
        )
    sd = of_training.std(correction=0).item()
    if not sd > 0 or not math.isfinite(sd):
        raise CorpusError(
            f"the numbers of the training texts of {data} have a standard deviation of {sd:g}, "
            "which cannot be computed with; give them in another unit"
        )
    return Numbers(of_training.mean().item(), sd), values
