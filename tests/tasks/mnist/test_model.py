import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.mnist.model import MLP


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def linear_layers(model):
    return [layer for layer in model.modules() if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_by_hand(layers):
    model = MLP(7, 3, hidden=5, layers=layers).double()
    x = torch.randn(6, 7).double()
    *hidden, output = linear_layers(model)
    assert len(hidden) == layers
    units = x
    for layer in hidden:
        units = (units @ layer.weight.T + layer.bias).clamp_min(0)
    torch.testing.assert_close(model(x), units @ output.weight.T + output.bias)
    assert model(x).shape == (6, 3)


def test_the_default_is_the_network_of_the_paper():
    # 784 x 400, 400 x 400 and 400 x 10 weights, and their biases.
    count = sum(parameter.numel() for parameter in MLP(784, 10).parameters())
    assert count == 784 * 400 + 400 + 400 * 400 + 400 + 400 * 10 + 10


def test_initialisation():
    model = MLP(300, 50, hidden=200, layers=3)
    model.initialise(torch.Generator().manual_seed(0))
    *hidden, output = linear_layers(model)
    for layer in (*hidden, output):
        variance = (1 if layer is output else 2) / layer.in_features
        n = layer.weight.numel()
        assert abs(layer.weight.mean()) < 5 * math.sqrt(variance / n)
        # The variance of the squares of normal numbers is twice their mean squared.
        error = 5 * variance * math.sqrt(2 / n)
        assert layer.weight.square().mean().item() == pytest.approx(variance, abs=error)
        # A normal, not a uniform, and not cut: kurtosis 3, whose deviation is sqrt(24 / n).
        kurtosis = layer.weight.pow(4).mean().item() / variance**2
        assert kurtosis == pytest.approx(3, abs=5 * math.sqrt(96 / n))
        assert (layer.bias == 0).all()


def test_he_keeps_the_scale_through_many_layers():
    model = MLP(500, 500, hidden=500, layers=10)
    model.initialise(torch.Generator().manual_seed(0))
    size = model(torch.randn(200, 500)).square().mean().item()
    assert 0.25 < size < 1  # the last layer halves what rectifiers left: E[relu^2] = 1/2 var


def test_initialisation_comes_from_the_generator():
    def made(seed):
        model = MLP(4, 3, 5)
        model.initialise(torch.Generator().manual_seed(seed))
        return model.state_dict()

    one, same, other = made(3), made(3), made(4)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["output.weight"], other["output.weight"])
    model = MLP(4, 3, 5)
    before = torch.get_rng_state()
    model.initialise(torch.Generator().manual_seed(3))
    assert torch.equal(torch.get_rng_state(), before)


def test_gradients_reach_every_weight():
    model = MLP(7, 3, hidden=20)
    model.initialise(torch.Generator().manual_seed(0))
    F.cross_entropy(model(torch.randn(30, 7)), torch.arange(30) % 3).backward()
    assert all(p.grad is not None and (p.grad != 0).any() for p in model.parameters())


def test_gradients_against_finite_differences():
    model = MLP(3, 2, hidden=4).double()
    x = torch.randn(5, 3).double()
    names, values = zip(*model.named_parameters(), strict=True)

    def run(*weights):
        return torch.func.functional_call(model, dict(zip(names, weights, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, values)


def test_dropout_stands_after_each_hidden_layer_and_does_nothing_until_a_rate_is_set():
    model = MLP(7, 3, hidden=20, layers=2)
    x = torch.randn(6, 7)
    assert torch.equal(model.train()(x), model.eval()(x))
    assert [type(layer) for layer in model.hidden] == [nn.Linear, nn.ReLU, nn.Dropout] * 2
    for dropout in (layer for layer in model.hidden if isinstance(layer, nn.Dropout)):
        dropout.p = 0.5
        assert not torch.equal(model.train()(x), model(x))
        assert torch.equal(model.eval()(x), model(x))
        dropout.p = 0.0


def test_the_dropout_method_finds_its_place():
    kind = METHODS["dropout"]
    net = kind(kind.options_type(), RandomStreams(0)).build(MLP(7, 3), Hints())
    assert [m.p for m in net.modules() if isinstance(m, nn.Dropout)] == [0.5, 0.5]


def test_a_posterior_over_its_weights():
    model = MLP(4, 3, hidden=6).double()
    model.initialise(torch.Generator().manual_seed(0))
    net = Bayesian(model, generator=torch.Generator().manual_seed(1))
    x, y = torch.randn(5, 4).double(), torch.tensor([0, 1, 2, 0, 1])
    torch.testing.assert_close(net.eval()(x), model(x))
    weights = net.sample(torch.Generator().manual_seed(2))
    drawn = net(x, weights=weights)
    hidden = (x @ weights["hidden.0.weight"].T + weights["hidden.0.bias"]).relu()
    hidden = (hidden @ weights["hidden.3.weight"].T + weights["hidden.3.bias"]).relu()
    torch.testing.assert_close(drawn, hidden @ weights["output.weight"].T + weights["output.bias"])
    (F.cross_entropy(drawn, y) + weights.kl / 10).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
