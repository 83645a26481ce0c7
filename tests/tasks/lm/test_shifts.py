import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bayesrnn.tasks.lm.shifts import (
    reversed_text,
    shuffled_text,
    text_with_random_words,
    text_with_unknown_words,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@given(st.lists(st.integers(0, 50), min_size=1))
def test_backwards(words):
    assert reversed_text(torch.tensor(words)).tolist() == words[::-1]


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(0, 5))
def test_shuffling_keeps_the_counts(words, seed):
    found = shuffled_text(torch.tensor(words), generator(seed)).tolist()
    assert sorted(found) == sorted(words)


def test_shuffling_is_random_and_can_be_repeated():
    text = torch.arange(100)
    one = shuffled_text(text, generator(1))
    assert torch.equal(one, shuffled_text(text, generator(1)))
    assert not torch.equal(one, shuffled_text(text, generator(2)))
    assert (one == text).sum() < 10


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9, 1.0])
def test_the_share_of_random_words(share):
    text = torch.full((20_000,), 3)
    found = text_with_random_words(text, share, 10, generator())
    # One random word in ten is the word that was there.
    assert (found != 3).double().mean().item() == pytest.approx(0.9 * share, abs=0.015)
    others = found[found != 3]
    if share:
        counts = others.bincount(minlength=10).double() / len(others)
        assert counts[3] == 0
        torch.testing.assert_close(
            counts[counts > 0], torch.full((9,), 1 / 9).double(), atol=0.02, rtol=0
        )


@pytest.mark.parametrize("share", [0.0, 0.8, 1.0])
def test_the_share_of_unknown_words(share):
    text = torch.arange(1, 20_001)
    found = text_with_unknown_words(text, share, 0, generator())
    assert (found == 0).double().mean().item() == pytest.approx(share, abs=0.015)
    assert torch.equal(found[found != 0], text[found != 0])
