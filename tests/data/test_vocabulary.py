from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bayesrnn.data.vocabulary import (
    EOS,
    UNK,
    VOCABULARY_FILE,
    Vocabulary,
    read_vocabulary,
    vocabulary_text,
)
from bayesrnn.errors import CorpusError

TOKENS = st.lists(st.sampled_from(["a", "b", "c", "d", "e", EOS, UNK]), max_size=60)


def test_order_is_by_frequency_then_alphabet():
    vocabulary = Vocabulary.build(["b", "a", "c", "c", EOS])
    assert vocabulary.words == ("c", EOS, "a", "b")


def test_limit_cuts_and_unk_counts_for_what_it_replaces():
    vocabulary = Vocabulary.build(["a", "a", "a", "b", "b", "c", "d", "e"], limit=3)
    assert vocabulary.words == (UNK, "a", EOS)
    assert vocabulary.decode(vocabulary.encode(["a", "b", "zebra"])) == ["a", UNK, UNK]


def test_limit_that_cuts_nothing_adds_no_unk():
    assert Vocabulary.build(["a", "b"], limit=3).words == ("a", "b", EOS)
    assert UNK in Vocabulary.build(["a"], require_unk=True)


def test_rare_words_are_left_out():
    assert set(Vocabulary.build(["a", "a", "b"], min_count=2).words) == {"a", EOS, UNK}


@given(TOKENS, st.none() | st.integers(3, 8), st.integers(1, 3), st.booleans())
def test_every_built_vocabulary_covers_its_text(tokens, limit, min_count, require_unk):
    vocabulary = Vocabulary.build(tokens, limit, min_count=min_count, require_unk=require_unk)
    assert limit is None or len(vocabulary) <= limit
    assert EOS in vocabulary
    assert UNK in vocabulary or not require_unk
    ids = vocabulary.encode(tokens)
    assert ids.dtype == torch.long
    assert ids.shape == (len(tokens),)
    decoded = vocabulary.decode(ids)
    assert all(new in (old, UNK) for old, new in zip(tokens, decoded, strict=True))
    counts = torch.bincount(ids, minlength=len(vocabulary))
    assert counts.tolist() == sorted(counts.tolist(), reverse=True)


def test_unknown_word_without_unk_is_an_error():
    with pytest.raises(CorpusError, match="'zebra' is not in the vocabulary"):
        Vocabulary(("a", EOS)).encode(["zebra"])


@pytest.mark.parametrize("number", [-1, 2])
def test_number_outside_is_an_error(number):
    with pytest.raises(CorpusError, match="numbers 0 to 1"):
        Vocabulary(("a", "b")).decode([number])


def test_impossible_vocabularies_are_errors():
    with pytest.raises(CorpusError, match="at least one word"):
        Vocabulary(())
    with pytest.raises(CorpusError, match="'a' 2 times"):
        Vocabulary(("a", "b", "a"))
    with pytest.raises(CorpusError, match="give 3 or more"):
        Vocabulary.build(["a"], limit=2)


def test_equal_words_make_equal_vocabularies():
    assert Vocabulary(("a", "b")) == Vocabulary(("a", "b"))
    assert Vocabulary(("a", "b")) != Vocabulary(("b", "a"))
    assert hash(Vocabulary(("a",))) == hash(Vocabulary(("a",)))


@pytest.mark.parametrize("words", [("a",), ("<eos>", "it's", "é", "a b", " "), ("\r", "\u2028")])
def test_words_survive_the_file(words):
    text = vocabulary_text(Vocabulary(words))
    assert text.count("\n") == len(words)
    assert read_vocabulary({VOCABULARY_FILE: text}).words == words
