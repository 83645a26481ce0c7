"""Where other libraries define the same thing as we do, theirs and ours are the same numbers."""

import math

import pytest
import torch
from bayesian_torch.layers import LinearReparameterization
from blitz.modules import BayesianLSTM
from blitz.modules.weight_sampler import PriorWeightDistribution, TrainableRandomDistribution
from torch import nn
from torchbayesian.bnn import BayesianModule

from bayesrnn import Bayesian, Gaussian, ScaleMixture


def made(module, prior, sigma=0.3):
    """Our network in float64, with other standard deviations for each weight.

    Without a floor below them, which the others do not have.
    """
    generator = torch.Generator().manual_seed(1)
    net = Bayesian(module.double(), prior, sigma_init=sigma, min_sigma=0.0)
    with torch.no_grad():
        for rho in net.rho.parameters():
            rho.add_(torch.randn(rho.shape, generator=generator, dtype=torch.double) / 2)
    return net


def gradients(net):
    return {
        name: (net.loc.get_parameter(name).grad, net.rho.get_parameter(name).grad)
        for name in net.names
    }


def assert_same_gradients(found, expected, tolerance=1e-9):
    assert found.keys() == expected.keys()
    for name, pair in found.items():
        for mine, theirs in zip(pair, expected[name], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


@pytest.fixture
def linear():
    torch.manual_seed(1)
    return nn.Linear(7, 5)


# blitz: a mixture for each weight, estimated from one draw


def of_blitz(net, weights, pi, sigma1, sigma2):
    """Its KL of our draw, and the gradients of it."""
    prior = PriorWeightDistribution(pi, sigma1, sigma2)
    found, samplers = 0.0, {}
    for name, noise in zip(net.names, weights.noise.tensors, strict=True):
        loc, rho = net.loc.get_parameter(name), net.rho.get_parameter(name)
        sampler = TrainableRandomDistribution(loc.detach().clone(), rho.detach().clone())
        sampler.sample()
        sampler.w = sampler.mu + sampler.sigma * noise  # as it draws, with our noise
        found = found + sampler.log_posterior() - prior.log_prior(sampler.w)
        samplers[name] = sampler
    found.backward()
    return found.detach(), {name: (s.mu.grad, s.rho.grad) for name, s in samplers.items()}


def test_the_kl_of_a_mixture_is_that_of_blitz(linear):
    pi, sigma1, sigma2 = 0.25, math.exp(-1), math.exp(-2)
    net = made(linear, ScaleMixture(pi, sigma1, sigma2, per="weight"), sigma=0.05)
    weights = net.sample(torch.Generator().manual_seed(2))
    weights.kl.backward()
    expected, by = of_blitz(net, weights, pi, sigma1, sigma2)
    # It adds 1e-6 to the density, which is some tenths.
    torch.testing.assert_close(weights.kl.detach(), expected, rtol=1e-5, atol=1e-4)
    assert_same_gradients(gradients(net), by, tolerance=1e-3)


def test_a_draw_is_held_over_the_sequence_as_in_blitz():
    """Its LSTM is a loop over time in Python, with one bias where torch has two."""
    torch.manual_seed(1)
    net = made(nn.LSTM(4, 3, batch_first=True), Gaussian(1.0))
    theirs = BayesianLSTM(4, 3)
    drawn = net.sample(torch.Generator().manual_seed(2))
    bias = drawn["bias_ih_l0"] + drawn["bias_hh_l0"]
    theirs.sample_weights = lambda: (drawn["weight_ih_l0"].T, drawn["weight_hh_l0"].T, bias)
    inputs = torch.randn(2, 6, 4, dtype=torch.double)
    state = torch.randn(2, 2, 3, dtype=torch.double)
    found, (hidden, cell) = net(inputs, (state[:1], state[1:]), weights=drawn)
    expected, (last_hidden, last_cell) = theirs(inputs, (state[0], state[1]))
    for mine, other in ((found, expected), (hidden[0], last_hidden), (cell[0], last_cell)):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)
    means = list(net.loc.parameters())
    mine, other = (
        torch.autograd.grad(out.square().sum(), means, retain_graph=True)
        for out in (found, expected)
    )
    torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-12)


# bayesian-torch: a Gaussian, in closed form, as a mean over the weights of a tensor


def test_the_kl_of_a_gaussian_is_that_of_bayesian_torch(linear):
    net = made(linear, Gaussian(0.75))
    # What it calls the variance of the prior is its standard deviation.
    theirs = LinearReparameterization(7, 5, prior_mean=0.0, prior_variance=0.75).double()
    parameters = {
        name: (getattr(theirs, f"mu_{name}"), getattr(theirs, f"rho_{name}")) for name in net.names
    }
    expected = 0.0
    for name, (mu, rho) in parameters.items():
        with torch.no_grad():
            mu.copy_(net.loc.get_parameter(name))
            rho.copy_(net.rho.get_parameter(name))
        prior = getattr(theirs, f"prior_{name}_mu"), getattr(theirs, f"prior_{name}_sigma")
        expected = expected + mu.numel() * theirs.kl_div(mu, nn.functional.softplus(rho), *prior)
    expected.backward()
    found = net.sample(torch.Generator().manual_seed(2)).kl
    found.backward()
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=1e-12, atol=0)
    by = {name: (mu.grad, rho.grad) for name, (mu, rho) in parameters.items()}
    assert_same_gradients(gradients(net), by)


# torchbayesian: the same module, made Bayesian from outside as ours is


def language_model():
    parts = {"embedding": nn.Embedding(13, 6), "recurrent": nn.LSTM(6, 6, 2)}
    return nn.ModuleDict({**parts, "output": nn.Linear(6, 13)}).double()


def test_the_kl_of_a_language_model_is_that_of_torchbayesian():
    torch.manual_seed(1)
    net = made(language_model(), Gaussian(0.75))
    prior = ("NORMAL", {"mu": 0.0, "sigma": 0.75})
    theirs = BayesianModule(language_model(), prior=prior, dtype=torch.double)
    posteriors = {
        f"{owner}.{name}": reparametrization.variational_posterior
        for owner, module in theirs.module.named_modules()
        for name, reparametrization in getattr(module, "reparametrizations", {}).items()
    }
    assert posteriors.keys() == set(net.names)
    with torch.no_grad():
        for name, posterior in posteriors.items():
            posterior.mu.copy_(net.loc.get_parameter(name))
            posterior.rho.copy_(net.rho.get_parameter(name))
    expected = theirs.kl_divergence()
    expected.backward()
    found = net.sample(torch.Generator().manual_seed(2)).kl
    found.backward()
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=1e-12, atol=0)
    by = {name: (posterior.mu.grad, posterior.rho.grad) for name, posterior in posteriors.items()}
    assert_same_gradients(gradients(net), by)
