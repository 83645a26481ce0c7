"""Which words of the validation text a language model is calibrated by."""

from types import SimpleNamespace

import pytest
import torch

from bayesrnn.tasks.lm import calibrate

LENGTH = 74_000


@pytest.fixture
def seen(monkeypatch):
    """The places of the words that were scored, in a text in which each word is its own place."""
    places = []

    def recorded(logits, targets, temperatures):
        places.extend(targets.tolist())
        return torch.zeros(len(temperatures), len(targets))

    monkeypatch.setattr(calibrate, "tempered_log_probs", recorded)
    return places


def score(length, whole=False):
    run = SimpleNamespace(device=torch.device("cpu"))
    return calibrate.text_score(run, SimpleNamespace(valid=torch.arange(length)), whole)


def network(words, state):
    return torch.zeros(*words.shape, 1), state


def test_temperatures_are_fitted_to_more_words_and_none_that_the_verdict_is_on(seen):
    known = score(LENGTH)
    known.score(network, [1.0])
    assert len(set(seen)) == len(seen) == 4000
    seen.clear()
    known.longer(network, [1.0])
    assert len(set(seen)) == len(seen) == 20_000
    pieces = calibrate._ends(torch.arange(LENGTH))
    judged = {place for piece in pieces for place in piece.tolist()}
    assert len(judged) == 80 * 121
    assert not judged & set(seen)
    assert not known.whole


def test_of_a_short_text_there_are_no_more_words(seen):
    assert score(15_000).longer is None
    known = score(3000)
    known.score(network, [1.0])
    assert (sorted(seen), known.whole, known.longer) == (list(range(1, 3000)), True, None)


def test_the_whole_text_is_fitted_to_if_wanted(seen):
    known = score(15_000, whole=True)
    known.score(network, [1.0])
    assert (sorted(seen), known.whole, known.longer) == (list(range(1, 15_000)), True, None)
