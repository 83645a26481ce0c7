"""Corpora by name or by path: three streams of token numbers and their vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from torch import Tensor

from bayesrnn.data.files import SPLITS, is_there, published_file
from bayesrnn.data.text import decode_text, line_tokens, read_text, sentence_tokens
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
    """A training, a validation and a test text as int64 token numbers, and what they mean."""

    name: str
    vocabulary: Vocabulary
    train: Tensor
    valid: Tensor
    test: Tensor


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
) -> Corpus:
    """Load one corpus by name, one folder with three split files, or one or more text files.

    A name wins over a file of the same name (write `./ptb` for the file). Published corpora are
    looked for under `data_dir`, or else under the folder in the environment variable
    BAYESRNN_DATA. Running text is split 80/10/10, and its vocabulary is the training words that
    occur at least twice, so that `<unk>` is trained.
    """
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
        return _running_text(_NOVEL, decode_text(file.read_bytes(), _NOVEL), vocabulary_limit)
    if names:
        return _published(names[0], data_dir, vocabulary_limit)
    paths = [_existing(item) for item in given]
    folders = [path for path in paths if path.is_dir()]
    if folders and len(paths) > 1:
        raise CorpusError(
            f"{folders[0]} is a folder and was given together with {len(paths) - 1} other "
            "path(s); give one folder with train, valid and test files, or only text files"
        )
    if folders:
        return _folder(folders[0], vocabulary_limit)
    if len({path.resolve() for path in paths}) < len(paths):
        raise CorpusError("the same text file was given twice; give each file only once")
    text = "\n\n".join(map(read_text, paths))
    return _running_text(" + ".join(path.name for path in paths), text, vocabulary_limit)


def _allowed() -> str:
    return (
        f"give one of the names {', '.join(CORPUS_NAMES)}, the path of a folder with train, valid "
        "and test files, or the paths of one or more plain-text files"
    )


def _existing(item: str | Path) -> Path:
    path = Path(item).expanduser() if str(item).startswith("~/") else Path(item)
    if not str(item) or not is_there(path, _allowed()):
        raise CorpusError(f"{str(item)!r} is neither a known corpus nor a path; {_allowed()}")
    return path


def _published(name: str, data_dir: Path | None, limit: int | None) -> Corpus:
    known = _PUBLISHED[name]
    streams = []
    for split, size in zip(SPLITS, known.tokens, strict=True):
        path = published_file(name, known.file.format(split), data_dir)
        streams.append(line_tokens(read_text(path)))
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
    return _encoded(name, Vocabulary.build(streams[0], limit), streams)


def _folder(folder: Path, limit: int | None) -> Corpus:
    """Read pre-tokenised train, valid and test files.

    Words that train lacks become `<unk>`. If there are some and train itself has no `<unk>`, words
    that occur once in train become `<unk>` too, so that the model learns when to expect one.
    """
    streams = []
    for split in SPLITS:
        path = _split_file(folder, split)
        tokens = line_tokens(read_text(path))
        if not set(tokens) - {EOS}:
            raise CorpusError(f"{path} has no words; give a text with one sentence a line")
        streams.append(tokens)
    train = set(streams[0])
    open_ended = UNK not in train and not train.issuperset(streams[1] + streams[2])
    min_count = 2 if open_ended else 1
    vocabulary = Vocabulary.build(streams[0], limit, min_count=min_count, require_unk=True)
    return _encoded(folder.resolve().name, vocabulary, streams)


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


def _running_text(name: str, text: str, limit: int | None) -> Corpus:
    tokens = sentence_tokens(text)
    if not any(any(map(str.isalnum, token)) for token in set(tokens) - {EOS, UNK}):
        raise CorpusError(f"{name} has no words{'' if text else ': it is empty'}; give a text")
    streams = _split_80_10_10(tokens)
    vocabulary = Vocabulary.build(
        streams[0], OWN_TEXT_LIMIT if limit is None else limit, min_count=2, require_unk=True
    )
    if len(vocabulary) < 3 or min(map(len, streams)) < 2:
        raise CorpusError(
            f"{name} is too small: with {len(tokens):,} tokens, of which 80% are for training, "
            "no word occurs twice there or a part stays empty; give more text"
        )
    return _encoded(name, vocabulary, streams)


def _split_80_10_10(tokens: list[str]) -> list[list[str]]:
    """Cut at the sentence ends nearest to 80% and 90%, or between words if sentences are few."""
    cuts = [len(tokens) * 8 // 10, len(tokens) * 9 // 10]
    ends = [place + 1 for place, token in enumerate(tokens) if token == EOS]
    first, second = (min(ends, key=lambda end: abs(end - cut)) for cut in cuts)
    if min(first, second - first, len(tokens) - second) < 2:
        first, second = cuts
    return [tokens[:first], tokens[first:second], tokens[second:]]


def _encoded(name: str, vocabulary: Vocabulary, streams: list[list[str]]) -> Corpus:
    train, valid, test = map(vocabulary.encode, streams)
    return Corpus(name, vocabulary, train, valid, test)
