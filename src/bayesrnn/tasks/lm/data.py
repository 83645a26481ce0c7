"""Corpora by name or by path: three streams of token numbers and their vocabulary."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Final, NamedTuple

from torch import Tensor

from bayesrnn.data.files import SPLITS, is_there, published_file, with_home
from bayesrnn.data.text import (
    decode_text,
    line_tokens,
    read_text,
    sentence_tokens,
    spelt_length,
)
from bayesrnn.data.tokens import (
    BYTE_PAIR,
    UNITS,
    WORD,
    CharacterTokeniser,
    Spelling,
    WordTokeniser,
    lacks_spaces,
    learn_byte_pairs,
    make_tokeniser,
)
from bayesrnn.data.vocabulary import EOS, UNK, Vocabulary
from bayesrnn.errors import CorpusError

OWN_TEXT_LIMIT: Final = 10_000
"""The vocabulary limit of running text when none is given."""

_SPLIT_NAMES = {
    "train": ("train", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test",),
}
_SUFFIXES = ("txt", "tokens")
_NOVEL = "pride-and-prejudice"


@dataclass(frozen=True)
class Corpus:
    """A training, a validation and a test text as int64 token numbers, and what they mean.

    unit: what a token is called, in the singular.
    types: how many different tokens the training text has, those outside the vocabulary included.
    characters: of each text, where they were counted.
    spelling: what the words of each text that are unknown cost to spell, in nats.
    lacks_spaces: whether what was taken for words are whole sentences of a script without spaces.
    """

    name: str
    vocabulary: Vocabulary
    train: Tensor
    valid: Tensor
    test: Tensor
    unit: str = UNITS[WORD]
    types: int = 0
    characters: Mapping[str, int] = field(default_factory=dict)
    spelling: Mapping[str, float] = field(default_factory=dict)
    lacks_spaces: bool = False

    def unknown(self, split: str) -> float:
        """The share of the tokens of a text that are `<unk>`."""
        return unknown_share(getattr(self, split), self.vocabulary)


def corpus_fingerprint(corpus: Corpus) -> str:
    """A hash of the words and the training text."""
    digest = hashlib.sha256("\n".join(corpus.vocabulary.words).encode())
    digest.update(corpus.train.numpy().tobytes())
    return digest.hexdigest()


def unknown_share(text: Tensor, vocabulary: Vocabulary) -> float:
    """The share of `<unk>` among tokens by their numbers."""
    if UNK not in vocabulary or not len(text):
        return 0.0
    return (text == vocabulary.index(UNK)).double().mean().item()


class Cutting(NamedTuple):
    """How texts are cut into tokens.

    limit: of the vocabulary that the training text is to give.
    vocabulary: that of another run, in place of such a one.
    """

    tokens: str = WORD
    limit: int | None = None
    vocabulary: Vocabulary | None = None


@dataclass(frozen=True)
class _Published:
    """A well-known corpus: its files under the data folder and its verified sizes."""

    file: str
    tokens: tuple[int, int, int]
    types: int


_PUBLISHED = {
    "ptb": _Published("ptb/ptb.{}.txt", (929_589, 73_760, 82_430), 10_000),
    "wikitext-2": _Published("wikitext-2/wiki.{}.tokens", (2_088_628, 217_646, 245_569), 33_278),
}
CORPUS_NAMES: Final = (*_PUBLISHED, _NOVEL)


def load_corpus(
    corpus: str | Path | Sequence[str | Path],
    data_dir: Path | None = None,
    vocabulary_limit: int | None = None,
    tokens: str = WORD,
    vocabulary: Vocabulary | None = None,
) -> Corpus:
    """Load one corpus by name, one folder with three split files, or one or more text files.

    A name wins over a file of the same name (write `./ptb` for the file). Published corpora are
    looked for under `data_dir`, or else under the folder in the environment variable
    BAYESRNN_DATA. Running text is split 80/10/10, and its vocabulary is the training words that
    occur at least twice, so that `<unk>` is trained; so are characters (`tokens`). Byte pairs are
    learnt on the training text. A `vocabulary` that is given takes their place.
    """
    how = Cutting(tokens, vocabulary_limit, vocabulary)
    given = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    if not given:
        raise CorpusError(f"no corpus was given; {_allowed()}")
    names = [str(item) for item in given if item in CORPUS_NAMES]
    if names and len(given) > 1:
        raise CorpusError(
            f"{', '.join(map(str, given))}: {names[0]!r} is the name of a whole corpus and cannot "
            "be mixed with others; give it alone, or give only paths"
        )
    if names == [_NOVEL]:
        file = resources.files("bayesrnn.data").joinpath(f"bundled/{_NOVEL}.txt")
        return _running_text(_NOVEL, decode_text(file.read_bytes(), _NOVEL), how)
    if names:
        return _published(names[0], data_dir, how)
    paths = [_existing(item) for item in given]
    folders = [path for path in paths if path.is_dir()]
    if folders and len(paths) > 1:
        raise CorpusError(
            f"{folders[0]} is a folder and was given together with {len(paths) - 1} other "
            "path(s); give one folder with train, valid and test files, or only text files"
        )
    if folders:
        return _folder(folders[0], how)
    if len({path.resolve() for path in paths}) < len(paths):
        raise CorpusError("the same text file was given twice; give each file only once")
    text = "\n\n".join(map(read_text, paths))
    return _running_text(" + ".join(path.name for path in paths), text, how)


def _allowed() -> str:
    return (
        f"give one of the names {', '.join(CORPUS_NAMES)}, the path of a folder with train, valid "
        "and test files, or the paths of one or more plain-text files"
    )


def _existing(item: str | Path) -> Path:
    path = with_home(item)
    if not str(item) or not is_there(path, _allowed()):
        raise CorpusError(f"{str(item)!r} is neither a known corpus nor a path; {_allowed()}")
    return path


def _published(name: str, data_dir: Path | None, how: Cutting) -> Corpus:
    known = _PUBLISHED[name]
    texts, streams = [], []
    for split, size in zip(SPLITS, known.tokens, strict=True):
        path = published_file(name, known.file.format(split), data_dir)
        texts.append(read_text(path))
        streams.append(line_tokens(texts[-1]))
        if len(streams[-1]) != size:
            raise CorpusError(
                f"{path} has {len(streams[-1]):,} tokens with one {EOS} a line, but {name!r} has "
                f"{size:,}; get the standard version, or give the folder's path instead of the name"
            )
    types = len(set(streams[0]))
    if types != known.types:
        raise CorpusError(
            f"the training text of {name!r} has {types:,} different words with {EOS}, but the "
            f"standard version has {known.types:,}; get that, or give the folder's path instead"
        )
    if how.tokens != WORD or how.vocabulary:
        return _cut(name, texts, how)
    return _encoded(name, Vocabulary.build(streams[0], how.limit), streams, spaced=True)


def _folder(folder: Path, how: Cutting) -> Corpus:
    """Read pre-tokenised train, valid and test files.

    Words that train lacks become `<unk>`. If there are some and train itself has no `<unk>`, words
    that occur once in train become `<unk>` too, so that the model learns when to expect one.
    """
    texts, streams = [], []
    for split in SPLITS:
        path = _split_file(folder, split)
        texts.append(read_text(path))
        tokens = line_tokens(texts[-1])
        if not set(tokens) - {EOS}:
            raise CorpusError(f"{path} has no words; give a text with one sentence a line")
        streams.append(tokens)
    name = folder.resolve().name
    if how.tokens != WORD or how.vocabulary:
        return _cut(name, texts, how)
    train = set(streams[0])
    open_ended = UNK not in train and not train.issuperset(streams[1] + streams[2])
    min_count = 2 if open_ended else 1
    vocabulary = Vocabulary.build(streams[0], how.limit, min_count=min_count, require_unk=True)
    return _encoded(name, vocabulary, streams, spaced=True)


def _split_file(folder: Path, split: str) -> Path:
    """Find the file of one split: train.txt, wiki.train.tokens.gz, dev.txt and the like."""
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise CorpusError(f"the folder {folder} cannot be read: {error.strerror}") from error
    found: dict[str, Path] = {}
    for path in files:
        plain_name = path.name.removesuffix(".gz")
        parts = plain_name.lower().split(".")
        if len(parts) > 1 and parts[-1] in _SUFFIXES:
            parts.pop()
        if parts[-1] in _SPLIT_NAMES[split]:
            found.setdefault(plain_name, path)  # sorted: a plain file comes before its .gz
    if len(found) == 1:
        return found.popitem()[1]
    if found:
        raise CorpusError(
            f"the folder {folder} has more than one {split} file: {', '.join(sorted(found))}; "
            "keep one"
        )
    wanted = " or ".join(f"{name}.txt" for name in _SPLIT_NAMES[split])
    seen = ", ".join(path.name for path in files[:8]) or "no files"
    raise CorpusError(
        f"the folder {folder} has no {split} file: looked for {wanted} (also as NAME.{split}.txt, "
        f".tokens or .gz), found {seen}; rename the file, or give plain-text files by their paths"
    )


def _running_text(name: str, text: str, how: Cutting) -> Corpus:
    if how.tokens != WORD:
        if not text.strip():
            raise CorpusError(f"{name} has no text; give one")
        return _cut(name, _split_lines_80_10_10(text), how)
    known = how.vocabulary
    tokens = sentence_tokens(text) if known is None else WordTokeniser(known).tokens(text)
    if not any(any(map(str.isalnum, token)) for token in set(tokens) - {EOS, UNK}):
        raise CorpusError(f"{name} has no words{'' if text else ': it is empty'}; give a text")
    streams = _split_80_10_10(tokens)
    limit = OWN_TEXT_LIMIT if how.limit is None else how.limit
    vocabulary = known or Vocabulary.build(streams[0], limit, min_count=2, require_unk=True)
    if len(vocabulary) < 3 or min(map(len, streams)) < 2:
        raise CorpusError(
            f"{name} is too small: with {len(tokens):,} tokens, of which 80% are for training, "
            "no word occurs twice there or a part stays empty; give more text"
        )
    return _encoded(name, vocabulary, streams)


def _split_80_10_10(tokens: list[str]) -> list[list[str]]:
    """Cut at the sentence ends nearest to 80% and 90%, or between words if sentences are few."""
    ends = [place + 1 for place, token in enumerate(tokens) if token == EOS]
    first, second = _cuts(len(tokens), ends)
    return [tokens[:first], tokens[first:second], tokens[second:]]


def _split_lines_80_10_10(text: str) -> list[str]:
    """Cut at the line ends nearest to 80% and 90%, or between characters if lines are few."""
    ends = [match.end() for match in re.finditer("\n", text)]
    first, second = _cuts(len(text), ends)
    return [text[:first], text[first:second], text[second:]]


def _cuts(length: int, ends: Sequence[int]) -> tuple[int, int]:
    cuts = (length * 8 // 10, length * 9 // 10)
    if not ends:
        return cuts
    first, second = (min(ends, key=lambda end: abs(end - cut)) for cut in cuts)
    return cuts if min(first, second - first, length - second) < 2 else (first, second)


def _cut(name: str, texts: Sequence[str], how: Cutting) -> Corpus:
    """Texts cut into characters or byte pairs, or into the words of a vocabulary."""
    vocabulary = how.vocabulary
    if vocabulary is None and how.tokens == BYTE_PAIR:
        vocabulary = learn_byte_pairs(texts[0], how.limit)
    elif vocabulary is None:
        characters = CharacterTokeniser().tokens(texts[0])
        vocabulary = Vocabulary.build(characters, how.limit, min_count=2, require_unk=True)
    tokeniser = make_tokeniser(how.tokens, vocabulary)
    streams = [tokeniser.tokens(text) for text in texts]
    if len(vocabulary) < 3 or min(map(len, streams)) < 2:
        raise CorpusError(
            f"{name} is too small: of its parts for training, validation and test one has fewer "
            f"than two {UNITS[how.tokens]}s, or no one occurs twice in training; give more text"
        )
    lengths = None if how.tokens == WORD else list(map(len, texts))
    return _encoded(
        name, vocabulary, streams, spaced=True, characters=lengths, unit=UNITS[how.tokens]
    )


def _encoded(
    name: str,
    vocabulary: Vocabulary,
    streams: list[list[str]],
    spaced: bool = False,
    characters: list[int] | None = None,
    unit: str = UNITS[WORD],
) -> Corpus:
    train, valid, test = map(vocabulary.encode, streams)
    spelling = Spelling(vocabulary)
    if characters is None:
        characters = [spelt_length(stream, spaced=spaced) for stream in streams]
    return Corpus(
        name,
        vocabulary,
        train,
        valid,
        test,
        unit=unit,
        types=len(set(streams[0])),
        characters=dict(zip(SPLITS, characters, strict=True)),
        spelling={s: spelling.nats(of) for s, of in zip(SPLITS, streams, strict=True)},
        lacks_spaces=lacks_spaces(streams[0]),
    )
