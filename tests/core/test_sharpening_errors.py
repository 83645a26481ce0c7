"""What cannot be sharpened, and what is said about it."""

import math

import pytest
import torch
from torch import nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.sharpening import Sharpening
from bayesrnn.errors import ConfigError


@pytest.mark.parametrize("sigma0", [0.0, -0.1, math.nan, math.inf, 1e-300, 1e300])
def test_the_spread_has_to_be_positive(sigma0):
    with pytest.raises(ConfigError, match="sigma0 is"):
        Sharpening(sigma0)


@pytest.mark.parametrize("eta", [math.nan, math.inf, -math.inf])
def test_eta_has_to_be_finite(eta):
    with pytest.raises(ConfigError, match="eta_init is"):
        Sharpening(eta_init=eta)


def test_the_first_eta():
    assert Sharpening(0.3).first_eta == 0.3**2
    assert Sharpening(0.3, -0.5).first_eta == -0.5
    assert Sharpening(0.3, 0.0).first_eta == 0.0


def test_something_else_for_a_sharpening():
    for value in (0.02, "yes", 1, 0):
        with pytest.raises(ConfigError, match="it has to be True or a Sharpening"):
            Bayesian(nn.Linear(3, 2), sharpening=value)


@pytest.fixture
def linear():
    net = Bayesian(nn.Linear(3, 2), sigma_init=0.2, sharpening=True)
    return net, torch.randn(4, 3)


def test_a_plain_mean_has_no_kl_of_either_kind(linear):
    net, _ = linear
    with pytest.raises(ConfigError, match="posterior mean"):
        _ = net.mean().minibatch_kl


def test_sharpening_twice(linear):
    net, x = linear
    phi = net.sample()
    theta = net.sharpen(phi, net(x, weights=phi).square().sum())
    loss = net(x, weights=theta).square().sum()
    with pytest.raises(ConfigError, match="sharpened already"):
        net.sharpen(theta, loss)
    loss.backward()  # nothing was taken apart


def test_weights_of_another_network(linear):
    net, x = linear
    other = Bayesian(nn.Sequential(nn.Linear(3, 2)), sigma_init=0.2)
    phi = other.sample()
    with pytest.raises(ConfigError, match=r"belong to another network: they have 0\.weight"):
        net.sharpen(phi, other(x, weights=phi).sum())
    wider = Bayesian(nn.Linear(3, 5), sigma_init=0.2)
    phi = wider.sample()
    with pytest.raises(ConfigError, match="shapes do not fit"):
        net.sharpen(phi, wider(x, weights=phi).sum())


def test_a_loss_that_does_not_depend_on_the_weights(linear):
    net, x = linear
    phi, other = net.sample(), net.sample()
    for loss in (
        net(x, weights=other).sum(),  # another draw's
        net(x, weights=phi).sum().detach(),
        torch.tensor(1.0),
        phi.kl,
    ):
        with pytest.raises(ConfigError, match="does not depend on these weights"):
            net.sharpen(phi, loss)
    with torch.no_grad():
        loss = net(x, weights=phi).sum()
        without_graph = net.sample()
    with pytest.raises(ConfigError, match="no_grad"):
        net.sharpen(phi, loss)
    with pytest.raises(ConfigError, match="no_grad"):
        net.sharpen(without_graph, net(x, weights=without_graph).sum())


def test_a_loss_that_is_not_one_number(linear):
    net, x = linear
    phi = net.sample()
    with pytest.raises(ConfigError, match=r"\(4, 2\).*one number"):
        net.sharpen(phi, net(x, weights=phi))


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan])
def test_a_clip_that_leaves_nothing(linear, clip):
    net, x = linear
    phi = net.sample()
    with pytest.raises(ConfigError, match="clip is"):
        net.sharpen(phi, net(x, weights=phi).sum(), clip=clip)
