"""The figures of single words, against whole readings of the text that are stacked."""

import numpy as np
import pytest
import torch
from torch.distributions import Categorical

from bayesrnn.core.init import absolute
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.lm.inspect import inspect_words
from bayesrnn.tasks.lm.likelihood import likelihood
from bayesrnn.tasks.lm.model import LanguageModel
from bayesrnn.uncertainty.draws import Draws

VOCABULARY, SAMPLES = 11, 6
DRAWING = ("dropout", "bbb", "sharpened")


def make_method(name):
    kind = METHODS[name]
    method = kind(kind.options_type(), RandomStreams(0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LanguageModel(VOCABULARY, 6, 2).double()
        model.initialise(0.8, torch.Generator().manual_seed(0))
        return method, method.build(model, Hints(sigma_init={"*": absolute(0.3)}))


def make_draws(name, samples=SAMPLES):
    return Draws(*make_method(name), samples, torch.Generator().manual_seed(4))


@pytest.fixture
def ids():
    return torch.randint(VOCABULARY, (24,), generator=torch.Generator().manual_seed(5))


def stacked(networks, ids):
    """The probabilities of all draws at once [draws, words + 1, vocabulary]."""
    with torch.no_grad():
        return torch.stack(
            [network(ids[:, None], None)[0][:, 0].softmax(-1) for network in networks]
        )


@pytest.mark.parametrize("name", DRAWING)
def test_against_whole_readings(name, ids):
    draws = make_draws(name)
    found = inspect_words(draws, ids, VOCABULARY, SAMPLES, 4)
    probs = stacked((draws[number] for number in range(SAMPLES)), ids)
    before, targets = probs[:, :-1], ids[1:]
    mean = before.mean(0)
    of_targets = before[:, torch.arange(len(targets)), targets]
    low, high = np.quantile(of_targets.numpy(), [0.05, 0.95], axis=0)
    total, aleatoric = Categorical(mean).entropy(), Categorical(before).entropy().mean(0)
    assert found.draws == SAMPLES
    for value, expected in (
        (found.probability, of_targets.mean(0)),
        (found.low, torch.from_numpy(low)),
        (found.high, torch.from_numpy(high)),
        (found.entropy, total),
        (found.aleatoric, aleatoric),
        (found.epistemic, total - aleatoric),
        (found.likeliest_probability, mean.max(-1).values),
    ):
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)
    assert found.likeliest.tolist() == mean.argmax(-1).tolist()
    assert (found.epistemic > 0).all()
    assert found.perplexity == pytest.approx(of_targets.mean(0).log().mean().neg().exp().item())
    after = probs[:, -1]
    numbers = after.mean(0).topk(4).indices
    assert found.following.tolist() == numbers.tolist()
    torch.testing.assert_close(found.following_probability, after.mean(0)[numbers])
    torch.testing.assert_close(found.following_spread, after.std(0)[numbers])


@pytest.mark.parametrize("name", ["plain", "bbb", "sharpened"])
@pytest.mark.parametrize("chunk", [1, 5 * VOCABULARY, 23 * VOCABULARY])
def test_chunks_do_not_matter(name, chunk, ids, monkeypatch):
    whole = inspect_words(make_draws(name), ids, VOCABULARY, SAMPLES, 3)
    monkeypatch.setattr("bayesrnn.tasks.lm.reading._CHUNK", chunk)
    found = inspect_words(make_draws(name), ids, VOCABULARY, SAMPLES, 3)
    for field, expected in vars(whole).items():
        torch.testing.assert_close(getattr(found, field), expected)


@pytest.mark.parametrize(("name", "samples"), [("plain", SAMPLES), ("bbb", 1), ("bbb", 0)])
def test_where_nothing_can_disagree(name, samples, ids):
    draws = make_draws(name)
    found = inspect_words(draws, ids, VOCABULARY, samples, 3)
    assert (found.epistemic == 0).all()
    assert found.low is None
    assert found.high is None
    assert found.following_spread is None
    assert found.draws == (0 if name == "plain" else samples)
    network = draws[0] if samples == 1 else draws.mean()
    probs = stacked([network], ids)[0]
    expected = probs[torch.arange(len(ids) - 1), ids[1:]]
    torch.testing.assert_close(found.probability, expected, rtol=1e-9, atol=1e-12)


def test_the_likelihood_is_that_of_the_evaluation(ids):
    method, net = make_method("bbb")
    whole = likelihood(method, net, ids, SAMPLES, torch.Generator().manual_seed(4))
    found = inspect_words(make_draws("bbb"), ids, VOCABULARY, SAMPLES, 1)
    assert found.perplexity == pytest.approx(whole.perplexity, rel=1e-6)


def test_progress_counts_every_word_of_every_draw(ids):
    read = []
    inspect_words(make_draws("bbb"), ids, VOCABULARY, SAMPLES, 1, read.append)
    assert sum(read) == SAMPLES * len(ids)


def test_no_more_words_follow_than_there_are(ids):
    found = inspect_words(make_draws("bbb"), ids, VOCABULARY, SAMPLES, 100)
    assert len(found.following) == VOCABULARY
    assert found.following_probability.sum().item() == pytest.approx(1)
