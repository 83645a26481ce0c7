"""Scores of predictions on data that were not trained on."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, MixtureSameFamily, Normal

from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints
from bayesrnn.random import RandomStreams, seeded
from bayesrnn.runs.held_out import Chunk, HeldOut, score
from bayesrnn.uncertainty.draws import Draws


@pytest.fixture
def drawn():
    """Draws of a small posterior; none for the mean."""
    method = METHODS["bbb"](METHODS["bbb"].options_type(), RandomStreams(1))
    torch.nn.init.normal_((module := nn.Linear(3, 5)).weight, generator=seeded(4))
    net = method.build(module, Hints())
    return lambda samples: Draws(method, net, samples, seeded(2))


def held_out(inputs, targets, outputs=lambda network, part: network(part)):
    """Two chunks, the first longer than the second; the state counts the chunks."""

    def chunk(part, wanted, number):
        def read(network, state):
            assert (state or 0) == number
            return outputs(network, part), number + 1

        return Chunk(read, wanted)

    parts = zip(inputs.split(7), targets.split(7), strict=True)
    return HeldOut([chunk(*part, number) for number, part in enumerate(parts)], targets)


@pytest.mark.parametrize("samples", [0, 3])
def test_classes_are_scored_by_their_averaged_probabilities(drawn, samples):
    inputs, targets = torch.randn(10, 3, generator=seeded(5)), torch.arange(10) % 5
    advanced = []
    found = score(drawn(samples), held_out(inputs, targets), advanced.append)
    with torch.no_grad():
        logits = torch.stack([network(inputs) for network in drawn(samples).networks()])
    average = Categorical(probs=logits.double().softmax(-1).mean(0))
    assert found.nll == pytest.approx(-average.log_prob(targets).mean().item(), rel=1e-5)
    assert found.entropy == pytest.approx(average.entropy().mean().item(), rel=1e-5)
    assert found.overconfidence == found.nll - found.entropy
    assert found.predictions == 10
    assert sum(advanced) == 10 * max(samples, 1)


@pytest.mark.parametrize("samples", [0, 3])
def test_numbers_are_scored_by_their_averaged_densities(drawn, samples):
    inputs, targets = torch.randn(10, 3, generator=seeded(5)), torch.linspace(-2, 2, 10)
    data = held_out(inputs, targets, lambda network, part: network(part)[:, :2])
    found = score(drawn(samples), data)
    with torch.no_grad():
        outputs = torch.stack([network(inputs)[:, :2] for network in drawn(samples).networks()], 1)
    mean, log_variance = outputs.double().unbind(-1)
    parts = Normal(mean, (log_variance / 2).exp())
    average = MixtureSameFamily(Categorical(torch.ones_like(mean)), parts)
    assert found.nll == pytest.approx(-average.log_prob(targets.double()).mean().item(), rel=1e-6)
    assert found.entropy is found.overconfidence is None


def test_the_constant_prediction_is_the_best_there_is():
    labels = torch.tensor([0, 0, 0, 2])
    frequencies = Categorical(probs=torch.tensor([0.75, 0.0, 0.25]))
    expected = -frequencies.log_prob(labels).mean().item()
    assert HeldOut([], labels).base_nll() == pytest.approx(expected)
    numbers = torch.tensor([1.0, 2.0, 6.0])
    normal = Normal(3.0, math.sqrt(14 / 3))
    expected = -normal.log_prob(numbers).mean().item()
    assert HeldOut([], numbers).base_nll() == pytest.approx(expected)
