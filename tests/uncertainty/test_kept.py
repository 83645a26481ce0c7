"""Draws that stay in memory, against draws that are made for each prediction."""

import copy

import pytest
import torch
from torch import nn

import bayesrnn as br
from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.lm.model import LanguageModel
from bayesrnn.uncertainty.draws import Draws


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def net():
    module = LanguageModel(40, 6, 1)
    module.initialise(0.3, seeded(0))
    return br.Bayesian(module, sigma_init=0.3)


@pytest.mark.parametrize("samples", [1, 4, 5])
def test_predictions_are_those_of_fresh_draws(net, samples):
    words = torch.arange(12).view(6, 2)
    kept = br.KeptDraws(net, samples, seeded(3))
    assert len(kept) == samples
    for text in (words, words[:2] + 20):
        expected = br.predict(net, text, samples=samples, generator=seeded(3))
        found = br.predict(kept, text, samples=samples)
        assert torch.equal(found.mean, expected.mean)
        assert torch.equal(found.total, expected.total)
    assert net.training


def test_draws_of_a_network_that_was_trained_on_are_refused(net):
    kept = br.KeptDraws(net, 2)
    with torch.no_grad():
        net.module.output.bias.add_(1)
    with pytest.raises(ConfigError, match="changed since"):
        br.predict(kept, torch.zeros(1, 1, dtype=torch.long), samples=2)


def test_what_cannot_be_kept_is_refused(net):
    with pytest.raises(ConfigError, match="of a Linear"):
        br.KeptDraws(nn.Linear(2, 2))
    with pytest.raises(ConfigError, match="samples is 0"):
        br.KeptDraws(net, 0)
    with pytest.raises(ConfigError, match="3 draws are asked for, and 2 were kept"):
        br.predict(br.KeptDraws(net, 2), torch.zeros(1, 1, dtype=torch.long), samples=3)


def draws_of(name, net):
    method = METHODS[name](METHODS[name].options_type(), RandomStreams(1))
    if name == "dropout":
        net = copy.deepcopy(net.module)
        net.output_dropout.p = 0.5
    return Draws(method, net, 3, seeded(2))


@torch.no_grad()
@pytest.mark.parametrize("name", ["bbb", "dropout"])
def test_draws_of_a_run_say_the_same_when_kept(name, net):
    words = torch.arange(12).view(6, 2)
    size = sum(weight.numel() for weight in net.module.parameters()) * 4 / 2**20
    anew, kept = draws_of(name, net.eval()), draws_of(name, net).keep(2.5 * size)
    for _ in range(2):
        for number in range(3):
            assert torch.equal(anew[number](words)[0], kept[number](words)[0])
    same = [kept[number] is kept[number] for number in range(3)]
    assert same == ([True, True, False] if name == "bbb" else [False] * 3)
