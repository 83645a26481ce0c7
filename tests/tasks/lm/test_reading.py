"""Texts read by many draws, against reading them word by word with each draw."""

import math
import weakref
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical

from bayesrnn.core.init import absolute
from bayesrnn.errors import CorpusError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.lm import reading
from bayesrnn.tasks.lm.likelihood import likelihood
from bayesrnn.tasks.lm.model import LanguageModel
from bayesrnn.tasks.lm.reading import Averaging, readings, word_metrics
from bayesrnn.uncertainty.draws import Draws

VOCABULARY = 7
RANDOM = ("bbb", "sharpened")


def make(name):
    kind = METHODS[name]
    method = kind(kind.options_type(), RandomStreams(0))
    model = LanguageModel(VOCABULARY, 5, 2).double()
    model.initialise(0.8, torch.Generator().manual_seed(0))
    return method, method.build(model, Hints(sigma_init={"*": absolute(0.4)}))


def make_draws(name, samples, seed=3):
    return Draws(*make(name), samples, torch.Generator().manual_seed(seed))


def text(length, seed=0):
    return torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed))


def by_hand(network, stream):
    """The distribution before each word but the first, one word at a time."""
    state, found = None, []
    with torch.no_grad():
        for word, _ in pairwise(stream):
            logits, state = network(word.view(1, 1), state)
            found.append(logits[0, 0])
    return Categorical(logits=torch.stack(found))


def expected(members, stream, temperature=1.0):
    """All figures from the distributions of the draws, by their definitions."""
    mean = torch.stack([member.probs for member in members]).mean(0)
    aleatoric = torch.stack([member.entropy() for member in members]).mean(0)
    whole = Categorical(probs=mean)
    if temperature != 1:
        whole = Categorical(logits=mean.log() / temperature)
        aleatoric = whole.entropy()
    corners = torch.nn.functional.one_hot(stream[1:], VOCABULARY)
    return {
        "entropy": whole.entropy(),
        "aleatoric": aleatoric,
        "nll": -whole.log_prob(stream[1:]),
        "confidence": whole.probs.amax(-1),
        "correct": whole.probs.argmax(-1) == stream[1:],
        "brier": (whole.probs - corners).square().sum(-1),
    }


def assert_metrics(found, wanted):
    for name, value in wanted.items():
        torch.testing.assert_close(getattr(found, name), value, rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize("chunk", [1, 40, 1 << 20])
@pytest.mark.parametrize("name", RANDOM)
def test_every_averaging_by_its_definition(name, chunk, monkeypatch):
    monkeypatch.setattr("bayesrnn.tasks.lm.reading._CHUNK", chunk)
    draws, texts = make_draws(name, 5), [text(30, 1), text(30, 2), text(17, 3)]
    averagings = [
        Averaging(0),
        Averaging(1),
        Averaging(3),
        Averaging(5),
        Averaging(0, 1.7),
        Averaging(5, 0.6),
    ]
    found = word_metrics(draws, texts, averagings, VOCABULARY)
    assert list(found) == averagings
    for place, stream in enumerate(texts):
        members = [by_hand(draws[number], stream) for number in range(5)]
        alone = [by_hand(draws.mean(), stream)]
        for averaging in averagings:
            drawn = members[: averaging.samples] if averaging.samples else alone
            assert_metrics(found[averaging][place], expected(drawn, stream, averaging.temperature))


@settings(deadline=None, max_examples=25)
@given(st.integers(3, 40), st.integers(3, 40), st.integers(1, 2), st.integers(1, 200))
def test_streams_cut_each_text_and_put_it_together_again(length, other, streams, chunk):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("bayesrnn.tasks.lm.reading._CHUNK", chunk)
        draws, texts = make_draws("plain", 1), [text(length, 1), text(other, 2)]
        found = word_metrics(draws, texts, [Averaging(0)], VOCABULARY, streams)[Averaging(0)]
    for figures, stream in zip(found, texts, strict=True):
        # Every part starts anew, with the last word of the part before it.
        places = torch.arange(len(stream) - 1).tensor_split(streams)
        parts = [stream[int(part[0]) : int(part[-1]) + 2] for part in places if len(part)]
        log_probs = [by_hand(draws.mean(), part).log_prob(part[1:]) for part in parts]
        torch.testing.assert_close(figures.nll, -torch.cat(log_probs), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("samples", [0, 4])
def test_the_same_seed_gives_the_likelihood_of_an_evaluation(name, samples):
    method, net = make(name)
    stream = text(50)
    there = likelihood(method, net, stream, samples, torch.Generator().manual_seed(3))
    draws = Draws(method, net, samples, torch.Generator().manual_seed(3))
    figures = word_metrics(draws, [stream], [Averaging(samples)], VOCABULARY)[Averaging(samples)][0]
    assert figures.nll.mean().item() == pytest.approx(there.nll, rel=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_information_is_never_negative_and_zero_for_one_draw(name):
    draws = make_draws(name, 6)
    averagings = [Averaging(0), Averaging(1), Averaging(2), Averaging(6)]
    found = word_metrics(draws, [text(60)], averagings, VOCABULARY)
    assert all((found[averaging][0].information >= 0).all() for averaging in averagings)
    for averaging in averagings[:2]:
        assert (found[averaging][0].information == 0).all()
    several = found[Averaging(6)][0].information
    if not draws.differing(6):  # plain; and those that keep networks, before they have any
        assert name in ("plain", "sgld", "psgld", "ensemble")
        assert (several == 0).all()
    else:
        # Before the first word the state is zero: what is dropped of the recurrent weights alone
        # does not matter yet.
        assert (several[name == "dropconnect" :] > 1e-4).all()


def test_networks_that_agree_have_no_information_whatever_rounding_says():
    class Agreeing:
        def __init__(self, dtype):
            self.logits = 3 * torch.randn(50, 1, 999, dtype=dtype)

        def __getitem__(self, number):
            return lambda words, state: (self.logits[: len(words)], state)

        def differing(self, samples):
            return samples

    for dtype in (torch.float, torch.double):
        draws = Agreeing(dtype)
        found = word_metrics(draws, [torch.randint(999, (51,))], [Averaging(2), Averaging(7)], 999)
        assert (found[Averaging(7)][0].information == 0).all()
        assert found[Averaging(7)][0].entropy.dtype is dtype


def test_dropout_without_a_rate_is_read_once():
    kind = METHODS["dropout"]
    method = kind(kind.options_type(dropout=0.0), RandomStreams(0))
    assert not method.draws_differ
    assert Draws(method, make("plain")[1], 4, torch.Generator()).differing(4) == 0


def test_where_all_draws_are_the_same_only_the_mean_is_read():
    draws, stream = make_draws("plain", 20), text(12)
    seen = [reading.samples for reading in readings(draws, stream[:, None], [5, 20], VOCABULARY)]
    assert seen == [0]
    assert [draws.differing(samples) for samples in (0, 1, 20)] == [0, 0, 0]


@pytest.mark.parametrize("name", RANDOM)
def test_draws_can_be_had_again_and_differ_from_each_other(name):
    draws, stream = make_draws(name, 3), text(8)
    first = [by_hand(draws[number], stream).logits for number in (0, 1, 2)]
    again = [by_hand(draws[number], stream).logits for number in (2, 1, 0)][::-1]
    for one, two in zip(first, again, strict=True):
        assert torch.equal(one, two)
    assert not torch.allclose(first[0], first[1])
    assert not torch.allclose(first[1], first[2])
    assert len(draws) == 3


def test_only_one_set_of_weights_is_alive(monkeypatch):
    """However many draws there are: each is let go before the next is made."""
    draws, stream = make_draws("bbb", 8), text(30)
    alive, most = [], []
    method = draws._method
    original = type(method).draw

    def draw(self, net, seed):
        network = original(self, net, seed)
        most.append(sum(reference() is not None for reference in alive))
        alive.append(weakref.ref(network))
        return network

    monkeypatch.setattr(type(method), "draw", draw)
    monkeypatch.setattr("bayesrnn.tasks.lm.reading._CHUNK", 70)
    word_metrics(draws, [stream], [Averaging(8)], VOCABULARY)
    assert len(most) > 20
    assert max(most) <= 1


def test_the_progress_counts_every_word_of_every_network():
    told = []
    draws, texts = make_draws("bbb", 3), [text(21, 1), text(21, 2)]
    word_metrics(draws, texts, [Averaging(0), Averaging(3)], VOCABULARY, advance=told.append)
    assert sum(told) == 4 * 2 * 20


def test_texts_that_are_too_short():
    draws = make_draws("plain", 1)
    with pytest.raises(CorpusError, match=r"1 token\(s\).*at least 2"):
        word_metrics(draws, [text(20), text(1)], [Averaging(0)], VOCABULARY)
    with pytest.raises(CorpusError, match="fewer streams"):
        word_metrics(draws, [text(5)], [Averaging(0)], VOCABULARY, streams=5)


def test_scaling_keeps_the_order():
    probs = torch.tensor([[0.7, 0.2, 0.1, 0.0]])
    flat = reading.scaled(probs, 2.0)
    roots = probs.sqrt()
    torch.testing.assert_close(flat, roots / roots.sum())
    assert 0 < flat[0, 3] < 1e-18  # the root of the smallest float


def test_a_word_that_no_draw_thought_possible_has_a_large_but_finite_loss():
    class Certain:
        def mean(self):
            return lambda words, state: (torch.tensor([0.0, -1e4]).expand(*words.shape, 2), state)

        def differing(self, samples):
            return 0

    found = word_metrics(Certain(), [torch.tensor([0, 1, 0])], [Averaging(0)], 2)[Averaging(0)][0]
    assert found.nll[0].item() == pytest.approx(-math.log(torch.finfo().tiny))
    assert found.nll[1].item() == 0
    assert found.entropy.tolist() == [0, 0]
