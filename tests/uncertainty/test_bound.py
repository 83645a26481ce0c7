"""The bound over minibatches, with a method whose bound is the likelihood plus a known number."""

import pytest
import torch
from torch.nn import functional as F

from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Bound, Bounded, Hints
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.lm.likelihood import likelihood, text_minibatches
from bayesrnn.tasks.lm.model import LanguageModel
from bayesrnn.tasks.mnist.model import MLP
from bayesrnn.uncertainty.bound import error_of_sum, example_minibatches, likelihood_bound

WORDS = 9
KL = 0.25


class Known(Bounded):
    """Bounds the loss of the network itself, at a price of KL a minibatch."""

    def bound(self, net, objective, generator):
        with torch.no_grad():
            nll, state = objective(net.eval())
        return Bound(nll.item(), KL, state)


@pytest.fixture
def model():
    made = LanguageModel(WORDS, 6, 2)
    made.initialise(0.5, torch.Generator().manual_seed(1))
    return made


@pytest.mark.parametrize(("streams", "unroll"), [(1, 1), (1, 100), (3, 5), (4, 1), (4, 100)])
def test_of_a_text(model, streams, unroll):
    """Each word counts once and the state is carried, as in the likelihood."""
    text = torch.randint(WORDS, (52,), generator=torch.Generator().manual_seed(2))
    plain = METHODS["plain"]
    expected = likelihood(
        plain(plain.options_type(), RandomStreams(0)), model, text, 0, None, streams
    )
    minibatches = list(text_minibatches(text, streams, unroll))
    seen = []
    found = likelihood_bound(Known(), model, minibatches, torch.Generator(), seen.append)
    assert found.tokens == sum(seen) == 51
    assert found.kl == pytest.approx(KL * len(minibatches) / 51)
    assert found.nll == pytest.approx(expected.nll + found.kl, rel=1e-5)
    assert found.standard_error == (0.0 if len(minibatches) > 1 else None)  # nothing was drawn


def test_of_examples():
    net = MLP(4, 3, hidden=5)
    net.initialise(torch.Generator().manual_seed(1))
    inputs = torch.randn(11, 4, generator=torch.Generator().manual_seed(2))
    labels = torch.arange(11) % 3
    minibatches = list(example_minibatches(inputs, labels, 4))
    assert [count for _, count in minibatches] == [4, 4, 3]
    found = likelihood_bound(Known(), net, minibatches, torch.Generator())
    with torch.no_grad():
        expected = F.cross_entropy(net(inputs), labels).item()
    assert found.nll == pytest.approx(expected + 3 * KL / 11, rel=1e-5)


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_of_a_sharpened_network_without_steps_or_noise(cell):
    """eta = 0 and hardly any noise: the bound is the likelihood of the mean, at no price."""
    module = LanguageModel(WORDS, 6, 2, cell)
    module.initialise(0.5, torch.Generator().manual_seed(1))
    kind = METHODS["sharpened"]
    method = kind(kind.options_type(sigma0=1e-9, eta_init=0.0), RandomStreams(0))
    net = method.build(module, Hints())
    text = torch.randint(WORDS, (40,), generator=torch.Generator().manual_seed(2))
    found = likelihood_bound(method, net, text_minibatches(text, 2, 7), torch.Generator())
    assert found.kl == 0
    assert found.nll == pytest.approx(likelihood(method, net, text, streams=2).nll, rel=1e-5)


def test_the_standard_error_is_that_over_seeds():
    """The same examples in each minibatch, so that only the draws differ between them."""
    module = MLP(4, 3, hidden=5)
    module.initialise(torch.Generator().manual_seed(1))
    kind = METHODS["sharpened"]
    method = kind(kind.options_type(sigma0=0.1), RandomStreams(0))
    net = method.build(module, Hints())
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(2)).repeat(20, 1)
    labels = (torch.arange(6) % 3).repeat(20)
    found = [
        likelihood_bound(
            method, net, example_minibatches(inputs, labels, 6), torch.Generator().manual_seed(seed)
        )
        for seed in range(40)
    ]
    over_seeds = torch.tensor([each.nll for each in found]).double().std().item()
    stated = sum(each.standard_error for each in found) / len(found)
    # The error of a standard deviation from 40 numbers is 11%.
    assert stated == pytest.approx(over_seeds, rel=0.45)


def test_the_standard_error_of_a_sum():
    """Against the sum of residuals of a fit by size; sizes alike give the textbook's formula."""
    values = [1.0, 4.0, 2.0, 5.0]
    expected = 2 * torch.tensor(values).std().item()
    assert error_of_sum(values, [3, 3, 3, 3]) == pytest.approx(expected)
    # Values that are as their sizes have no error.
    assert error_of_sum([1.0, 2.0, 3.0], [2, 4, 6]) == 0
    assert error_of_sum([1.0], [2]) is None
