"""Draws whose noise has a factor, and networks at a temperature, for every method."""

import pytest
import torch
from torch import nn

from bayesrnn.core.init import absolute
from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, KLScale
from bayesrnn.nn.temperature import at_temperature
from bayesrnn.random import RandomStreams
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.scaling import Scaling

HINTS = Hints(deterministic=("output.bias",), sigma_init={"*": absolute(0.1)})
NOISELESS = ("plain", "sgld", "psgld", "ensemble")


def make(name, model, **options):
    kind = METHODS[name]
    method = kind(kind.options_for(options)(**options), RandomStreams(0))
    return method, method.build(model, HINTS)


def draws(method, net, **scaling):
    return Draws(method, net, 2, torch.Generator().manual_seed(3), Scaling(**scaling))


@pytest.mark.parametrize("name", METHODS)
def test_a_factor_of_0_on_the_noise_gives_the_mean(name, make_model, words):
    method, net = make(name, make_model())
    assert method.noise_can_change == (name not in NOISELESS)
    if name in NOISELESS:
        with pytest.raises(ConfigError, match="no noise"):
            method.set_noise(net, 0.5)
        return
    mean = method.mean(net)(words)[0]
    first = draws(method, net)[0](words)[0]
    assert torch.equal(draws(method, net, noise=1.0)[0](words)[0], first)
    torch.testing.assert_close(draws(method, net, noise=1e-9)[0](words)[0], mean)
    assert method.noise_factor == 1  # for all others, nothing has changed
    method.set_noise(net, 1e-9)
    torch.testing.assert_close(method.draw(net, seed=5)(words)[0], mean)


@pytest.mark.parametrize("name", METHODS)
def test_a_temperature_divides_the_logits_of_each_network(name, make_model, words):
    method, net = make(name, make_model())
    for number in (0, 1):
        plain = draws(method, net)[number](words)[0]
        hot = draws(method, net, temperature=2.0)[number](words)[0]
        torch.testing.assert_close(hot, plain / 2)
    mean = draws(method, net, temperature=2.0).mean()(words)[0]
    assert torch.equal(mean, method.mean(net)(words)[0])
    hot = draws(method, net, mean_temperature=0.5).mean()(words)[0]
    torch.testing.assert_close(hot, mean * 2)


def test_snapshots_are_copies_that_have_the_temperature_too(make_model, words):
    method, net = make("sgld", make_model())
    net.keep(limit=2)
    net.keep(limit=2)
    plain = draws(method, net)[1](words)[0]
    torch.testing.assert_close(draws(method, net, temperature=2.0)[1](words)[0], plain / 2)
    mean = draws(method, net, mean_temperature=2.0).mean()(words)[0]
    torch.testing.assert_close(mean, plain / 2)


def test_the_temperature_is_no_weight_and_is_taken_back(make_model):
    model = make_model()
    assert not any("temperature" in name for name in model.state_dict())
    with at_temperature(model, 3.0):
        assert model.temperature == 3
    assert model.temperature == 1


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.5])
def test_the_factor_of_a_posterior_is_on_sigma(factor, make_model):
    method, net = make("bbb", make_model())
    seen = []
    net.forward = lambda *args, weights: seen.append(weights)
    method.draw(net, seed=7)()
    method.set_noise(net, factor)
    method.draw(net, seed=7)()
    for name, weight in net.mean().items():
        expected = weight + factor * (seen[0][name] - weight)
        torch.testing.assert_close(seen[1][name], expected)
    assert torch.equal(seen[0].noise.squares * factor**2, seen[1].noise.squares)


@pytest.mark.parametrize("name", ["dropout", "variational-dropout"])
@pytest.mark.parametrize(("factor", "rate"), [(0.5, 0.3), (1.5, 0.9), (2.0, 0.95)])
def test_the_factor_of_dropout_is_on_the_rate(name, factor, rate):
    layer = nn.Sequential(nn.Dropout(), nn.Linear(1, 1))
    method, net = make(name, layer, dropout=0.6)
    method.set_noise(net, factor)
    with torch.no_grad():
        net[1].weight.fill_(1.0)
        net[1].bias.zero_()
        kept = method.draw(net, seed=1)(torch.ones(20_000, 1))
    kept = kept[:, 0] if name == "dropout" else draw_many(method, net)
    assert (kept == 0).double().mean().item() == pytest.approx(rate, abs=0.02)
    assert kept.max().item() == pytest.approx(1 / (1 - rate))
    assert net[0].p == 0.6


def draw_many(method, net):
    """One number from each of many draws: a draw has the same mask for all of a batch."""
    with torch.no_grad():
        return torch.stack([method.draw(net, seed)(torch.ones(1, 1))[0, 0] for seed in range(2000)])


def test_dropconnect_drops_another_share_of_its_weights():
    method, net = make("dropconnect", nn.Linear(20_000, 1, bias=False), weight_dropout=0.5)
    nn.init.ones_(net.weight)
    method.set_noise(net, 0.4)
    kept = method.draw(net, seed=1)(torch.ones(1, 20_000)).item() / 20_000
    seen = method.draw(net, seed=1)(torch.eye(20_000)[:200]).detach()
    assert kept == pytest.approx(1, abs=0.02)
    assert seen.max().item() == pytest.approx(1 / 0.8)


def test_an_ensemble_passes_the_factor_on(make_model, words):
    method, net = make("ensemble", make_model(), base="bbb", members=2, side_by_side=True)
    assert method.noise_can_change
    method.set_noise(net, 1e-9)
    for number, member in enumerate(net.members):
        torch.testing.assert_close(method.draw(net, seed=number)(words)[0], member.module(words)[0])


def test_training_does_not_know_the_factor(make_model, objective):
    losses = []
    for factor in (1.0, 0.1):
        method, net = make("bbb", make_model())
        method.set_noise(net, factor)
        losses.append(method.loss(net, objective, KLScale(0.01, 1.0)).total.item())
    assert losses[0] == losses[1]
