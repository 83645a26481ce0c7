"""Several networks given to `predict`: the mixture of their posteriors."""

import pytest
import torch
from torch import nn
from torch.distributions import Categorical

import bayesrnn as br
from bayesrnn.errors import ConfigError


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def linear(outputs, sigma, seed=0, shift=0.0):
    """A posterior over a linear map, its biases moved by `shift`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = nn.Linear(4, outputs)
    with torch.no_grad():
        module.bias += shift * torch.arange(1, outputs + 1)
    return br.Bayesian(module, sigma_init=sigma)


@pytest.fixture
def inputs():
    return torch.randn(7, 4, generator=seeded(1))


@torch.no_grad()
def test_draws_go_through_the_networks_in_turn(inputs):
    """Each network's draws still come in pairs of noise and its mirror image."""
    nets = [linear(5, 0.2 + number, number, shift=number) for number in range(3)]
    found = br.predict(nets, inputs, samples=8, generator=seeded(2))
    generator, noises, logits = seeded(2), {}, []
    for number in range(8):
        net = nets[number % 3]
        if number - 3 in noises:
            weights = net.sample(noise=noises.pop(number - 3).mirrored())
        else:
            weights = net.sample(generator)
            noises[number] = weights.noise
        logits.append(net(inputs, weights=weights).double())
    members = Categorical(logits=torch.stack(logits))
    total, aleatoric = Categorical(probs=members.probs.mean(0)).entropy(), members.entropy().mean(0)
    torch.testing.assert_close(found.mean.double(), members.probs.mean(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.epistemic.double(), total - aleatoric, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_variance_within_and_between_gaussian_posteriors(inputs):
    """Of linear networks both have a closed form."""
    nets = [linear(1, 0.1), linear(1, 0.3, shift=1.5)]
    found = br.predict(nets, inputs, samples=8000, generator=seeded(3), head=br.Regression())
    sigmas = [net.sigmas() for net in nets]
    squares = sum(sigma["weight"].square() for sigma in sigmas) / 2
    within = inputs.square() @ squares.T + sum(sigma["bias"].square() for sigma in sigmas) / 2
    between = (1.5 / 2) ** 2
    torch.testing.assert_close(found.epistemic, within + between, rtol=0.05, atol=0)
    mean = sum(net.eval()(inputs) for net in nets) / 2
    torch.testing.assert_close(found.mean, mean, rtol=0, atol=0.02)


@torch.no_grad()
def test_networks_of_all_kinds(inputs):
    """Those without anything random are run once each; every layer stays in its mode."""
    plain = [linear(5, 0.1, seed).module for seed in (1, 2, 3)]
    members = Categorical(logits=torch.stack([net(inputs) for net in plain]))
    for samples in (20, 2):
        found = br.predict(tuple(plain), inputs, samples=samples)
        torch.testing.assert_close(found.mean, members.probs.mean(0))
        torch.testing.assert_close(found.aleatoric, members.entropy().mean(0))
    dropping = nn.Sequential(nn.Dropout(0.5), plain[0]).train()
    nets = [linear(5, 0.4), dropping, nn.Sequential(nn.Dropout(0.2), plain[1])]
    before = [layer.training for net in nets for layer in net.modules()]
    first, again, other = (
        br.predict(nets, inputs, samples=7, generator=seeded(seed)).mean for seed in (4, 4, 5)
    )
    assert [layer.training for net in nets for layer in net.modules()] == before
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@torch.no_grad()
def test_one_that_is_not_random_stands_for_its_draws(inputs):
    nets = [linear(5, 1e-4), nn.Linear(4, 5)]
    found = br.predict(nets, inputs, samples=4)
    mean = sum(net.eval()(inputs).softmax(-1) for net in nets) / 2
    torch.testing.assert_close(found.mean, mean, rtol=0, atol=1e-3)


def test_equal_draws_of_one_network_are_refused(inputs):
    with pytest.raises(ConfigError, match=r"this Linear is random, so 2 draws .* samples=1"):
        br.predict([nn.Linear(4, 5)], inputs, samples=2)


@pytest.mark.parametrize(("count", "samples"), [(0, 20), (3, 2)])
def test_each_network_needs_a_draw(inputs, count, samples):
    with pytest.raises(ConfigError, match=f"samples is {samples}, and there are {count} networks"):
        br.predict([linear(5, 0.1)] * count, inputs, samples=samples)
