"""Files to text, text to tokens, and tokens back to readable text."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from bayesrnn.data.files import read_bytes
from bayesrnn.data.vocabulary import EOS, UNK, Vocabulary
from bayesrnn.errors import CorpusError

# fmt: off
_TITLES = frozenset({
    "capt", "col", "dr", "gen", "hon", "lt", "messrs", "mlle", "mme", "mr", "mrs", "ms", "prof",
    "rev", "sr", "st",
})
_ABBREVIATIONS = _TITLES | {"cf", "esq", "etc", "jr", "mt", "viz", "vol", "vs"}
# fmt: on
_CLOSERS = frozenset("\"')]}»")

# Typographic signs become plain ones; emphasis marks and invisible characters go.
_PLAIN = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2013": "--",
        "\u2014": "--",
        "\u2026": "...",
        "_": None,
        "\u00ad": None,
        "\u200b": None,
        "\ufeff": None,
    }
)


def read_text(path: Path) -> str:
    """Read a UTF-8 text file, plain or gzip, with LF line ends and without a byte order mark."""
    return decode_text(read_bytes(path), str(path))


def decode_text(data: bytes, source: str) -> str:
    """Turn the bytes of a text into text; `source` names them in an error."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise CorpusError(
            f"{source} starts with the mark of UTF-16 or UTF-32 at byte 0, but a text has to be "
            "UTF-8; save it as UTF-8 (for example: iconv -f UTF-16 -t UTF-8)"
        )
    if (place := data.find(b"\0")) >= 0:
        raise CorpusError(
            f"{source} has a NUL byte at byte {place:,}, so it is not plain text; "
            "give a UTF-8 text file"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{source} is not valid UTF-8: byte 0x{data[error.start]:02x} at byte "
            f"{error.start:,}; save it as UTF-8 (for example: iconv -f CP1252 -t UTF-8)"
        ) from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def line_tokens(text: str) -> list[str]:
    """Split pre-tokenised text at white space; every line, also a blank one, ends with `<eos>`.

    This is how the Penn Treebank and WikiText-2 are counted. A line that already ends with
    `<eos>` does not get a second one.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    tokens: list[str] = []
    for line in lines:
        words = line.split()
        tokens += words
        if not words or words[-1] != EOS:
            tokens.append(EOS)
    return tokens


@functools.cache
def _token_pattern() -> re.Pattern[str]:
    """Build the pattern of one token; no alternative can backtrack, so a search is linear."""
    marks = "".join(c for c in map(chr, range(0x10000)) if unicodedata.category(c)[0] == "M")
    run = rf"\w[\w{marks}\u200c\u200d]*"  # letters and digits, with accents and vowel signs
    return re.compile(
        rf"{UNK}|{EOS}"
        r"|(?:[^\W\d_]\.){2,}"  # e.g. i.e. U.S.
        rf"|{run}(?:(?:['-]|(?<=\d)[.,](?=\d)){run})*"  # word, don't, o'clock, well-known, 1,000.5
        r"|-{2,}|\.{2,}"  # dash, ellipsis
        r"|[^\w\s]"  # any other sign
    )


def sentence_tokens(text: str, *, lower: bool = True) -> list[str]:
    """Split running text into lower-cased words and signs, with `<eos>` after every sentence.

    Hard-wrapped lines are joined; a blank line ends a paragraph and with it the sentence. A full
    stop ends a sentence unless it belongs to an abbreviation or an initial. `!`, `?` and `...`
    end one unless a lower-case word follows ("Indeed!" said she). Closing quotes and brackets
    that touch the sign stay in its sentence, and a sign that touches a word on both sides
    (example.org) ends nothing.
    """
    tokens: list[str] = []
    sign = ""  # what may have ended the sentence
    known: dict[str, _Cut] = {}
    for line in text.translate(_PLAIN).splitlines():
        words = line.split()
        if not words:
            _close(tokens)
            sign = ""
            continue
        for word in words:
            if word.isalnum():  # nothing to cut
                if sign and (sign == "." or not word[0].islower()):
                    _close(tokens)
                sign = ""
                tokens.append(word.lower() if lower else word)
                continue
            # What has signs comes again and again, so that it is cut once.
            cut = known.get(word)
            if cut is None:
                if len(known) >= _MOST_KNOWN:
                    known.clear()
                cut = known[word] = _cut(word, lower)
            if sign and (sign == "." or not cut.is_lower):
                _close(tokens)
            if cut.ends_first:
                _close(tokens)
            tokens += cut.tokens
            sign = cut.sign
    _close(tokens)
    return tokens


#: Words whose cuts are kept.
_MOST_KNOWN = 100_000


class _Cut(NamedTuple):
    """What stands between two spaces, cut into tokens.

    is_lower: whether it begins with a lower-case letter. ends_first: whether it begins with the
    mark of an end. sign: at its end, the one that may end the sentence.
    """

    tokens: tuple[str, ...]
    is_lower: bool
    ends_first: bool
    sign: str


def _close(tokens: list[str]) -> None:
    if tokens and tokens[-1] != EOS:
        tokens.append(EOS)


def _cut(text: str, lower: bool) -> _Cut:
    tokens: list[str] = []
    sign, end, first = "", -1, ""
    for match in _token_pattern().finditer(text):
        word, touches = match[0], match.start() == end
        first = first or word
        if sign and not (touches and word in _CLOSERS):
            if not touches and (sign == "." or not word[0].islower()):
                _close(tokens)
            sign = ""
        if word == EOS:
            _close(tokens)
            continue
        end = match.end()
        if word == "." and touches and _takes_full_stop(text, match.start(), tokens[-1]):
            tokens[-1] += "."
            continue
        if word[:2] in ("--", ".."):
            word = "--" if word[0] == "-" else "..."
        tokens.append(word.lower() if lower else word)
        if word in (".", "!", "?", "..."):
            sign = word
    return _Cut(tuple(tokens), first[:1].islower(), first == EOS, sign)


def known_tokens(text: str, vocabulary: Vocabulary) -> list[str]:
    """Tokenise as running text or as pre-tokenised text, whichever has more known words.

    Running text keeps its capitals where more words are known with them.
    """
    candidates = (sentence_tokens(text), line_tokens(text), sentence_tokens(text, lower=False))
    return max(
        candidates, key=lambda tokens: sum(t in vocabulary for t in tokens) / max(len(tokens), 1)
    )


def spelt_length(tokens: Iterable[str], *, spaced: bool = False) -> int:
    """How many characters tokens are, with a space between words and one sign for `<eos>`.

    Signs such as a comma touch the word before them, unless the text has spaces there (`spaced`).
    """
    return sum(
        1 if token == EOS else len(token) + (spaced or token not in _JOINS_LEFT) for token in tokens
    )


def _takes_full_stop(line: str, stop: int, word: str) -> bool:
    """Tell whether the word that touches the full stop at `stop` is an abbreviation or initial."""
    word = word.lower()
    initial = len(word) == 1 and word != "i" and line[stop - 1].isupper()
    return word in _ABBREVIATIONS or initial


_JOINS_LEFT = frozenset([*".,;:!?)]}»%'", "...", "n't"])
_JOINS_RIGHT = frozenset([*"([{«$£€"])
_JOINS_BOTH = {"--": "--", "-": "-", "@-@": "-", "@,@": ",", "@.@": "."}


def detokenize(tokens: Iterable[str], *, capitals: bool = True, sentence_break: str = "\n") -> str:
    """Write tokens as a reader expects them: spaces only where they belong.

    `<eos>` becomes `sentence_break`. With `capitals`, sentences, titles and "I" get theirs.
    Straight double quotes open and close in turn; one at the start of a sentence opens, one at its
    end closes.
    """
    words = list(tokens)
    pieces: list[str] = []
    glued, start, quoted = True, True, False  # no space next; sentence start; inside quotes
    title = False  # the word before was one
    for place, word in enumerate(words):
        if word == EOS:
            pieces.append(sentence_break)
            glued, start = True, True
            continue
        last = place + 1 == len(words) or words[place + 1] == EOS
        left = word in _JOINS_LEFT or (word[:1] == "'" and len(word) <= 3)
        right = word in _JOINS_RIGHT
        if word in _JOINS_BOTH:
            word, left, right = _JOINS_BOTH[word], True, True
        elif word == '"':
            quoted = (start or not quoted) and not (last and not start)
            left, right = not quoted, quoted
        if not (glued or left):
            pieces.append(" ")
        spoken = any(map(str.isalnum, word))
        if capitals and spoken and word != UNK:
            after_title, title = title, word.endswith(".") and word[:-1] in _TITLES
            if start or title or after_title or word == "i" or word.startswith("i'"):
                word = word[0].upper() + word[1:]
        pieces.append(word)
        glued, start = right, start and not spoken
    return "".join(pieces).strip()
