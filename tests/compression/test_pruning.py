"""Pruned copies of networks."""

import copy

import pytest
import torch
from torch import nn

from bayesrnn.compression.pruning import prune, without
from bayesrnn.compression.ranking import Ranking, magnitude, signal_to_noise
from bayesrnn.core.bayesian import Bayesian
from bayesrnn.errors import ConfigError
from bayesrnn.tasks.lm.model import LanguageModel

WORDS = torch.arange(12).view(6, 2)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(3)


def language_model(generator, tied=False, cell="lstm"):
    module = LanguageModel(12, 5, 2, cell, tied)
    module.initialise(None, generator)
    return Bayesian(module, deterministic=("output.bias",), generator=generator)


def by_hand(net, fraction, per_tensor=False):
    """The mean weights with zeros, without the code of the copy."""
    kept = Ranking(signal_to_noise(net), per_tensor).kept(fraction)
    return {name: net.module.get_parameter(name).detach() * kept[name] for name in net.names}


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("per_tensor", [False, True])
@torch.no_grad()
def test_outputs_are_those_of_a_module_masked_by_hand(generator, cell, tied, per_tensor):
    net = language_model(generator, tied, cell).eval()
    found = prune(net, 0.6, per_tensor)
    ours = copy.deepcopy(net.module)
    for name, weight in by_hand(net, 0.6, per_tensor).items():
        ours.get_parameter(name).copy_(weight)
    torch.testing.assert_close(found.module(WORDS), ours(WORDS), rtol=0, atol=0)
    assert not torch.allclose(found.module(WORDS)[0], net(WORDS)[0])
    assert (found.module.output.weight is found.module.embedding.weight) == tied
    assert found.kept.keys() == set(net.names)
    assert found.dropped == pytest.approx(0.6, abs=0.01)


def test_the_network_stays_as_it_is(generator):
    net = language_model(generator)
    weights = net.sample(generator)
    (net(WORDS, weights=weights)[0].sum() + weights.kl).backward()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    gradients = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    module = prune(net, 1.0).module
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1.0)
    assert gradients
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    left = [p.grad for p in net.parameters() if p.grad is not None]
    assert all(torch.equal(old, new) for old, new in zip(gradients, left, strict=True))
    assert all(parameter.grad is None for parameter in module.parameters())
    assert all(parameter.is_leaf for parameter in module.parameters())


def test_none_and_all(generator):
    net = language_model(generator, tied=True)
    full, empty = prune(net, 0), prune(net, 1)
    assert (full.dropped, empty.dropped) == (0, 1)
    for name, parameter in net.module.named_parameters():
        assert torch.equal(full.module.get_parameter(name), parameter)
        if name in net.names:
            assert not empty.module.get_parameter(name).any()
    assert torch.equal(empty.module.output.bias, net.module.output.bias)  # it is not Bayesian
    with pytest.raises(ConfigError, match="from 0 to 1"):
        prune(net, 1.5)


def test_the_copy_can_be_trained(generator):
    module = prune(language_model(generator), 0.5).module.train()
    module(WORDS)[0].square().sum().backward()
    trained = [name for name, p in module.named_parameters() if p.grad is not None]
    assert trained == [name for name, p in module.named_parameters() if p.requires_grad]


def test_what_is_certain_outlives_what_is_large():
    net = Bayesian(nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        net.module.weight.copy_(torch.tensor([[2.0, 1.0]]))
        net.rho.weight.copy_(torch.tensor([[2.0, -5.0]]))
    assert prune(net, 0.5).module.weight.tolist() == [[0.0, 1.0]]
    by_size = Ranking(magnitude(net.mean())).kept(0.5)
    assert without(net.module, by_size).weight.tolist() == [[2.0, 0.0]]


def test_dropped_weights_are_zero_whatever_they_were():
    layer = nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[float("inf"), -1.0, float("nan")]]))
    found = without(layer, {"weight": torch.tensor([[False, False, False]])})
    assert found.weight.tolist() == [[0.0, 0.0, 0.0]]
    assert not torch.signbit(found.weight).any()


def test_masks_that_do_not_fit_are_refused():
    layer = nn.Linear(3, 1)
    with pytest.raises(ConfigError, match="mask for other, but no such weight; there are: weight"):
        without(layer, {"other": torch.ones(3, dtype=torch.bool)})
    with pytest.raises(ConfigError, match=r"shape \(3,\), but the weight has \(1, 3\)"):
        without(layer, {"weight": torch.ones(3, dtype=torch.bool)})
