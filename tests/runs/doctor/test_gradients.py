"""Signal and noise of gradients, where they are known."""

import math

import pytest
import torch
from torch import nn

from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, Outcome
from bayesrnn.random import RandomStreams, seeded
from bayesrnn.runs.doctor.gradients import (
    GradientNoise,
    NoiseEstimate,
    gradient_noise,
    predictions_of,
    training_loss,
)


def estimate(gradients):
    found = NoiseEstimate()
    for gradient in gradients:
        found.add([gradient[:3], gradient[3:]])
    return found.found()


def test_signal_and_noise_are_told_apart():
    mean = torch.full((10_000,), 0.3)
    noise = torch.randn(16, 10_000, generator=seeded(1))
    found = estimate(mean + noise)
    assert found.signal == pytest.approx(0.3 * 100, rel=0.03)
    assert found.noise == pytest.approx(100, rel=0.03)
    assert found.minibatches == pytest.approx(1 / 0.09, rel=0.06)


def test_equal_gradients_have_no_noise_and_opposite_ones_no_signal():
    gradient = torch.arange(5.0)
    same = estimate([gradient, gradient])
    assert (same.signal, same.noise) == pytest.approx((math.sqrt(30), 0), abs=1e-6)
    assert same.minibatches == pytest.approx(0)
    opposite = estimate([gradient, -gradient])
    assert (opposite.signal, opposite.noise) == pytest.approx((0, math.sqrt(60)))
    assert opposite.minibatches == math.inf


def test_one_minibatch_says_nothing_of_noise():
    assert estimate([torch.ones(5)]) is None
    assert NoiseEstimate().found() is None
    assert GradientNoise(2.0, 6.0).minibatches == 9


class Minibatches(list):
    """Inputs, each a minibatch of two sequences with two predictions each."""

    sequences, steps = 2, 2

    def length(self, number):
        return 2.0


class Line:
    """A loss that is linear in the weights, and a state that counts minibatches."""

    def __init__(self, inputs):
        self.inputs = Minibatches(inputs)

    def minibatches(self, epoch):
        return self.inputs

    def objective(self, batch, state):
        def objective(network):
            assert batch is self.inputs[state or 0]
            return Outcome(network(batch).sum(), (state or 0) + 1)

        return objective


@pytest.fixture
def line():
    """A linear network of a method, the problem, and the gradients of its minibatches."""
    inputs = list(torch.randn(5, 1, 3, generator=seeded(6)))

    def make(name):
        method = METHODS[name](METHODS[name].options_type(), RandomStreams(1))
        net = method.build(nn.Linear(3, 1, bias=False), Hints())
        return method, net, Line(inputs)

    return make, torch.cat(inputs).double()


def test_noise_is_that_of_the_gradients_of_minibatches(line):
    make, gradients = line
    method, net, problem = make("plain")
    before = net.weight.detach().clone()
    advanced = []
    found = gradient_noise(method, net, problem, lambda: advanced.append(1))
    noise = gradients.var(0).sum()
    signal = gradients.mean(0).square().sum() - noise / 5
    assert found.keys() == {"weights"}
    assert found["weights"].noise == pytest.approx(noise.sqrt().item(), rel=1e-5)
    assert found["weights"].signal == pytest.approx(math.sqrt(max(signal, 0)), rel=1e-4)
    assert len(advanced) == 5
    assert torch.equal(net.weight, before)
    assert net.weight.grad is None


def test_the_loss_is_that_of_a_prediction(line):
    make, gradients = line
    method, net, problem = make("bbb")
    found = training_loss(method, net, problem, seed=3, advance=lambda: None)
    mean = net.module.weight.detach().double()
    draws = [net.sample(noise=net.noise(3 + n))["weight"].detach().double() for n in range(5)]
    assert found.mean == pytest.approx((gradients @ mean.T).sum().item() / 10, rel=1e-5)
    drawn = sum((row @ draw.T).item() for row, draw in zip(gradients, draws, strict=True))
    assert found.draws == pytest.approx(drawn / 10, rel=1e-4)
    assert found.predictions == predictions_of(problem.minibatches(0)) == 20
