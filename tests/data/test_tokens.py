from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayesrnn.data.text import known_tokens, sentence_tokens, spelt_length
from bayesrnn.data.tokens import (
    BYTE_PAIR,
    CHARACTER,
    WORD,
    CharacterTokeniser,
    Spelling,
    lacks_spaces,
    learn_byte_pairs,
    make_tokeniser,
)
from bayesrnn.data.vocabulary import EOS, UNK, Vocabulary
from bayesrnn.errors import CorpusError, MissingExtraError

TEXT = "The cat saw the dog.\nThe dog saw the cat; the cat ran.\n" * 20

#: What a text file can hold once its line ends are LF.
any_text = st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]))


@given(any_text)
def test_characters_come_back_as_they_were(text):
    tokens = CharacterTokeniser().tokens(text)
    assert CharacterTokeniser().text(tokens) == text.strip("\n")
    assert len(tokens) == len(text) + (not text.endswith("\n") and bool(text))


def test_a_single_character_is_shown():
    tokeniser = make_tokeniser(CHARACTER, Vocabulary(("a", EOS)))
    assert [tokeniser.shown(token) for token in (" ", "a", EOS)] == ["␣", "a", EOS]


def test_byte_pairs_need_a_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'bayesrnn\[bpe\]'"):
        learn_byte_pairs(TEXT, None)
    with pytest.raises(MissingExtraError, match=r"bayesrnn\[bpe\]"):
        make_tokeniser(BYTE_PAIR, Vocabulary(("a", EOS)))


def test_byte_pairs_are_those_of_the_library():
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = learn_byte_pairs(TEXT, 300)
    assert vocabulary.words[-1] == EOS
    assert UNK not in vocabulary
    assert "Ġcat" in vocabulary
    reference = tokenizers.Tokenizer(tokenizers.models.BPE())
    reference.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=299,
        min_frequency=2,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    reference.train_from_iterator(TEXT.splitlines(), trainer)
    other = TEXT + "A new line, with Ünknown wörds.\n"
    expected = [t for line in other.splitlines() for t in (*reference.encode(line).tokens, EOS)]
    assert make_tokeniser(BYTE_PAIR, vocabulary).tokens(other) == expected


def test_every_text_can_be_written_in_byte_pairs():
    pytest.importorskip("tokenizers")
    tokeniser = make_tokeniser(BYTE_PAIR, vocabulary := learn_byte_pairs(TEXT, None))

    @given(any_text)
    def check(text: str) -> None:
        tokens = tokeniser.tokens(text)
        assert all(token in vocabulary for token in tokens)
        assert tokeniser.text(tokens) == text.strip("\n")

    check()
    assert tokeniser.shown("Ġcat") == "␣cat"
    assert tokeniser.shown(tokeniser.tokens("人")[0]) == "ä", "a part of a character"
    assert tokeniser.shown(EOS) == EOS
    with pytest.raises(CorpusError, match="a vocabulary limit of 256 is too small"):
        learn_byte_pairs(TEXT, 256)


def test_running_text_keeps_capitals_that_the_vocabulary_has():
    cased = Vocabulary(("The", "the", "President", "of", "France", ".", EOS, UNK))
    text = "The President of France."
    assert known_tokens(text, cased) == ["The", "President", "of", "France", ".", EOS]
    lower = Vocabulary(("the", "president", "of", "france", ".", EOS, UNK))
    assert known_tokens(text, lower) == sentence_tokens(text)
    words = make_tokeniser(WORD, cased)
    assert words.text(["of", "the", "President", EOS, "of"]) == "of the President\nof"
    assert make_tokeniser(WORD, lower).text(["of", "the", EOS, "of"]) == "Of the\nOf"
    assert words.shown("the") == "the"


def test_a_script_without_spaces_is_noticed():
    assert lacks_spaces(sentence_tokens("我们今天去北京看望老朋友和他的家人。" * 30))
    assert not lacks_spaces(["我们", "今天", "去", "北京", "看望", "老朋友", "。"])
    assert not lacks_spaces(sentence_tokens("He said 你好 and went. " * 30))
    assert not lacks_spaces(sentence_tokens(TEXT))
    assert not lacks_spaces([])


def test_the_length_of_a_text_in_words():
    assert spelt_length(["a", "cat", ",", EOS], spaced=True) == len("a cat , \n")
    assert spelt_length(["a", "cat", ",", "so", EOS]) == len("a cat, so") + 2


def test_what_an_unknown_word_costs_to_spell():
    spelling = Spelling(Vocabulary(("ab", "a")))
    # Letters and ends of "ab", "a": a twice, b once, the end twice; one more for all others.
    a, b, end = (math.log(6 / count) for count in (2, 1, 2))
    assert spelling.nats(["ab", "a"]) == 0
    assert spelling.nats(["ba", "ba", "a"]) == pytest.approx(2 * (a + b + end))
    assert spelling.nats(["x"]) == pytest.approx(math.log(6) + math.log(sys.maxunicode) + end)
