import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from bayesrnn.core.init import absolute
from bayesrnn.errors import BayesRNNError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.lm.likelihood import likelihood, target_log_probs
from bayesrnn.tasks.lm.model import LanguageModel
from bayesrnn.uncertainty.likelihood import Likelihood

VOCABULARY = 7


def make_model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LanguageModel(VOCABULARY, 5, 2).double()
        model.initialise(0.8, torch.Generator().manual_seed(0))
    return model.eval()


def text(length):
    return torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(length))


def by_hand(network, stream):
    """Word by word: the log-probability of the next word, from the softmax of the logits."""
    state, found = None, []
    with torch.no_grad():
        for word, target in pairwise(stream):
            logits, state = network(word.view(1, 1), state)
            found.append(F.log_softmax(logits[0, 0], 0)[target])
    return torch.stack(found)


def make_method(name):
    kind = METHODS[name]
    method = kind(kind.options_type(), RandomStreams(0))
    return method, method.build(make_model(), Hints(sigma_init={"*": absolute(0.3)}))


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 40), st.integers(1, 50))
def test_one_stream_is_the_text_word_by_word_whatever_the_unroll(length, unroll):
    model, stream = make_model(), text(length)
    found = target_log_probs(model, stream, streams=1, unroll=unroll)
    assert found.shape == (length - 1,)
    torch.testing.assert_close(found, by_hand(model, stream), rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 40), st.integers(1, 45), st.integers(1, 12))
def test_several_streams_score_every_token_in_order(length, streams, unroll):
    model, stream = make_model(), text(length)
    found = target_log_probs(model, stream, streams, unroll)
    # Parts of nearly equal length, the longer ones first, each from a zero state.
    short, extra = divmod(length - 1, streams)
    expected, start = [], 0
    for part in range(streams):
        stop = start + short + (part < extra)
        if stop > start:
            expected.append(by_hand(model, stream[start : stop + 1]))
        start = stop
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-12, atol=1e-12)


def test_no_gradients_are_kept():
    assert not target_log_probs(make_model(), text(9)).requires_grad


def test_progress_counts_every_token():
    for streams, unroll in [(1, 4), (3, 2), (20, 35)]:
        counted = []
        target_log_probs(make_model(), text(12), streams, unroll, counted.append)
        assert sum(counted) == 11


def test_the_mean_network_scores_like_the_model():
    stream = text(30)
    expected = -by_hand(make_model(), stream).mean().item()
    for name in METHODS:
        method, net = make_method(name)
        found = likelihood(method, net, stream)
        assert found.tokens == 29
        assert found.nll == pytest.approx(expected, rel=1e-12)
        assert found.perplexity == pytest.approx(math.exp(expected), rel=1e-12)


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("samples", [1, 2, 5])
def test_draws_are_averaged_as_probabilities(samples, streams):
    method, net = make_method("bbb")
    stream = text(20)
    found = likelihood(
        method, net, stream, samples, torch.Generator().manual_seed(4), streams, unroll=6
    )
    generator = torch.Generator().manual_seed(4)
    probabilities = []
    for _ in range(samples):
        weights = net.sample(generator)
        plain = make_model()
        with torch.no_grad():
            for name, weight in weights.items():
                plain.get_parameter(name).copy_(weight)
        short, extra = divmod(19, streams)
        lengths = [short + (part < extra) for part in range(streams)]
        starts = [sum(lengths[:part]) for part in range(streams)]
        parts = [
            by_hand(plain, stream[start : start + length + 1]).exp()
            for start, length in zip(starts, lengths, strict=True)
        ]
        probabilities.append(torch.cat(parts))
    mean = torch.stack(probabilities).mean(0)
    assert found.tokens == 19
    assert found.nll == pytest.approx(-mean.log().mean().item(), rel=1e-12)
    if samples > 1:  # not the mean of the logs, which is always worse
        logs = -torch.stack(probabilities).log().mean().item()
        assert found.nll < logs - 1e-3


def test_the_average_of_draws_is_at_least_as_good_as_their_mean_log():
    method, net = make_method("dropout")
    stream = text(25)

    def draws(count):
        generator = torch.Generator().manual_seed(1)
        return likelihood(method, net, stream, count, generator, unroll=7).nll

    generator = torch.Generator().manual_seed(1)
    each = [likelihood(method, net, stream, 1, generator, unroll=7).nll for _ in range(4)]
    assert len(set(each)) == 4
    assert draws(1) == each[0]
    assert draws(4) < sum(each) / 4  # Jensen


def test_plain_has_nothing_to_average():
    method, net = make_method("plain")
    stream = text(25)
    mean = likelihood(method, net, stream).nll
    assert likelihood(method, net, stream, samples=3).nll == pytest.approx(mean, rel=1e-12)


def test_the_generator_decides_and_the_global_one_is_left_alone():
    before = torch.get_rng_state()
    for name in METHODS:
        method, net = make_method(name)
        runs = [
            likelihood(method, net, text(15), 2, torch.Generator().manual_seed(seed)).nll
            for seed in (0, 0, 1)
        ]
        assert runs[0] == runs[1]
        # With as many draws as networks are kept, all of them are read whatever the seed.
        assert (runs[0] == runs[2]) == (not method.draws_differ and method.members(net) <= 2)
        # Without a generator the result is still reproducible.
        default = [likelihood(method, net, text(15), 2).nll for _ in range(2)]
        assert default[0] == default[1]
    assert torch.equal(torch.get_rng_state(), before)


def test_evaluation_does_not_train():
    for name in METHODS:
        method, net = make_method(name)
        before = {key: value.clone() for key, value in net.state_dict().items()}
        likelihood(method, net, text(15), 2)
        likelihood(method, net, text(15))
        assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
        assert all(parameter.grad is None for parameter in net.parameters())


@pytest.mark.parametrize("length", [0, 1])
def test_a_text_without_predictions(length):
    method, net = make_method("plain")
    with pytest.raises(BayesRNNError):
        likelihood(method, net, text(length))
    with pytest.raises(BayesRNNError):
        target_log_probs(net, text(length))


def test_perplexity():
    assert Likelihood(math.log(50.0), 3).perplexity == pytest.approx(50.0)
    assert Likelihood(1e4, 3).perplexity == math.inf
