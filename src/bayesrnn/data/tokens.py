"""How a text is cut into what a model predicts: words, characters or byte pairs."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, Protocol

from bayesrnn.data.text import detokenize, known_tokens
from bayesrnn.data.vocabulary import EOS, UNK, Vocabulary
from bayesrnn.errors import CorpusError, MissingExtraError

WORD, CHARACTER, BYTE_PAIR = "word", "character", "bpe"
TOKENS: Final = (WORD, CHARACTER, BYTE_PAIR)

#: What one token is called, in the singular.
UNITS: Final = {WORD: "word", CHARACTER: "character", BYTE_PAIR: "token"}

#: Byte pairs of a text when no number is given.
DEFAULT_BYTE_PAIRS: Final = 8_000
#: A vocabulary of byte pairs has at least every byte, and the end of a line.
_BYTES: Final = 256

#: Letters of scripts that are written without spaces: Thai, Lao, Burmese, Khmer, Japanese, Chinese.
_WITHOUT_SPACES: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
)
#: Such letters in a word, on average, from which on it is no word but a sentence.
_SENTENCE_LIKE: Final = 6


class Tokeniser(Protocol):
    """Cuts text as a trained model knows it, and puts tokens together again."""

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text, as the vocabulary has them; `<eos>` after sentences or lines."""

    def text(self, tokens: Iterable[str]) -> str:
        """Tokens as a reader expects them."""

    def shown(self, token: str) -> str:
        """A single token as it is shown."""


def make_tokeniser(kind: str, vocabulary: Vocabulary) -> Tokeniser:
    """The tokeniser of a kind for a vocabulary that was built from such tokens."""
    if kind == WORD:
        return WordTokeniser(vocabulary)
    return CharacterTokeniser() if kind == CHARACTER else BytePairTokeniser(vocabulary)


class WordTokeniser:
    """Words and signs, lower-cased in running text; text with spaces between words as it is."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def tokens(self, text: str) -> list[str]:
        """As running or as pre-tokenised text, whichever has more known words."""
        return known_tokens(text, self._vocabulary)

    def text(self, tokens: Iterable[str]) -> str:
        """Capitals are put where a sentence begins, unless the vocabulary has its own."""
        return detokenize(tokens, capitals=not self._has_capitals)

    def shown(self, token: str) -> str:
        """The word."""
        return token

    @cached_property
    def _has_capitals(self) -> bool:
        # Of the Penn Treebank, all is in lower case but the N that stands for numbers.
        words = self._vocabulary.words
        return sum(word != word.lower() for word in words) > len(words) / 100


class CharacterTokeniser:
    """Every character is a token, and the end of a line is `<eos>`. Nothing is changed."""

    def tokens(self, text: str) -> list[str]:
        """The characters."""
        return [token for line in _lines(text) for token in (*line, EOS)]

    def text(self, tokens: Iterable[str]) -> str:
        """The characters one after the other."""
        return "".join("\n" if token == EOS else token for token in tokens).strip("\n")

    def shown(self, token: str) -> str:
        """A space has a sign of its own."""
        return visible_spaces(token)


class BytePairTokeniser:
    """Parts of words that were learnt from the training text; the end of a line is `<eos>`.

    The tokens are sequences of bytes in UTF-8, each byte written as the printable character that
    byte-level tokenisers give it. The vocabulary has the 256 bytes first, then what was merged from
    those before, in the order in which it was: that is all there is to know (Sennrich et al. 2016).
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._made = _tokenizer(vocabulary)

    def tokens(self, text: str) -> list[str]:
        """The byte pairs of each line."""
        found = self._made.encode_batch(_lines(text), add_special_tokens=False)
        return [token for line in found for token in (*line.tokens, EOS)]

    def text(self, tokens: Iterable[str]) -> str:
        """The bytes as text; those that are none become the sign for that."""
        lines: list[list[str]] = [[]]
        for token in tokens:
            if token == EOS:
                lines.append([])
            else:
                lines[-1].append(token)
        return "\n".join(map(self._decoded, lines)).strip("\n")

    def shown(self, token: str) -> str:
        """The text that its bytes are, or the token itself where they are a part of a character."""
        if token in (EOS, UNK):
            return token
        text = self._decoded([token])
        return token if "\N{REPLACEMENT CHARACTER}" in text else visible_spaces(text)

    def _decoded(self, tokens: Sequence[str]) -> str:
        return str(self._made.decoder.decode(list(tokens)))


def learn_byte_pairs(text: str, limit: int | None) -> Vocabulary:
    """The vocabulary of at most `limit` byte pairs, `<eos>` counted, that describe a text best."""
    limit = DEFAULT_BYTE_PAIRS if limit is None else limit
    if limit < _BYTES + 1:
        raise CorpusError(
            f"a vocabulary limit of {limit} is too small for --tokens bpe: it has to hold the "
            f"{_BYTES} bytes and {EOS}, so give {_BYTES + 1} or more"
        )
    library = _library()
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(library.pre_tokenizers.ByteLevel.alphabet())
    trainer = library.trainers.BpeTrainer(
        vocab_size=limit - 1, min_frequency=2, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(_lines(text), trainer)
    numbers = made.get_vocab()
    return Vocabulary((*sorted(numbers, key=numbers.__getitem__), EOS))


class Spelling:
    """What it costs to spell words that a vocabulary lacks, letter by letter.

    A letter, or the end of the word, is as probable as it is frequent in the words of the
    vocabulary; one that they lack is any of all characters.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._counts = Counter(c for word in vocabulary.words for c in f"{word}\n")
        self._total = self._counts.total() + 1

    def nats(self, tokens: Iterable[str]) -> float:
        """The cost of those of the tokens that are outside the vocabulary."""
        unknown = Counter(token for token in tokens if token not in self._vocabulary)
        return sum(count * self._word(word) for word, count in unknown.items())

    def _word(self, word: str) -> float:
        cost = 0.0
        for character in f"{word}\n":
            count = self._counts.get(character, 0)
            cost += math.log(self._total / (count or 1)) + (not count) * math.log(sys.maxunicode)
        return cost


def lacks_spaces(tokens: Iterable[str]) -> bool:
    """Whether what was taken for words are whole sentences, in a script without spaces."""
    letters = words = every = 0
    for token in tokens:
        every += len(token)
        found = len(_WITHOUT_SPACES.findall(token)) if not token.isascii() else 0
        letters += found
        words += found > 0
    return letters > every / 5 and letters > _SENTENCE_LIKE * words


def visible_spaces(token: str) -> str:
    """The token with a sign for each space."""
    return token if token in (EOS, UNK) else token.replace(" ", "␣")


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _library() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise MissingExtraError(
            "--tokens bpe needs an extra: pip install 'bayesrnn[bpe]'"
        ) from None
    return tokenizers


def _tokenizer(vocabulary: Vocabulary) -> Any:
    library = _library()
    words = [word for word in vocabulary.words if word != EOS]
    ranks = {word: rank for rank, word in enumerate(words)}
    merges = [parts for word in words if len(parts := _merged_from(word, ranks)) == 2]
    made = library.Tokenizer(library.models.BPE(vocab=ranks, merges=merges))
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = library.decoders.ByteLevel()
    return made


def _merged_from(word: str, ranks: dict[str, int]) -> tuple[str, ...]:
    """What is left of the characters of a word by the merges that were known before it."""
    parts = list(word)
    while len(parts) > 2:
        pairs = [left + right for left, right in pairwise(parts)]
        best = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)))
        if ranks.get(best, len(ranks)) >= ranks[word]:
            break
        place = pairs.index(best)
        parts[place : place + 2] = [best]
    return tuple(parts)
