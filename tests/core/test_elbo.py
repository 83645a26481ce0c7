"""The loss of a minibatch, against torch.distributions and against an epoch charged by hand."""

import warnings

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F

import bayesrnn as br
from bayesrnn.errors import ConfigError


def generator(seed):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def net():
    net = br.Bayesian(nn.Linear(3, 2), prior=br.Gaussian(0.7), sigma_init=0.1)
    with torch.no_grad():
        for parameter in net.mean_parameters():
            parameter.uniform_(-0.5, 0.5, generator=generator(0))
    return net


@pytest.fixture
def data():
    return torch.randn(10, 3, generator=generator(1)), torch.arange(10) % 2


def exact_kl(net):
    """The KL divergence from the prior, by torch.distributions."""
    mean = net.mean()
    parts = [
        kl_divergence(Normal(mean[name], sigma), Normal(0.0, 0.7)).sum()
        for name, sigma in net.sigmas().items()
    ]
    return torch.stack(parts).sum()


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("reduced", [True, False])
def test_an_epoch_charges_the_kl_once(net, data, reduction, reduced):
    inputs, labels = data
    weights, losses, nlls = net.sample(generator(2)), [], []
    for part in (slice(0, 4), slice(4, 8), slice(8, 10)):  # the last one is smaller
        logits, size = net(inputs[part], weights=weights), len(labels[part])
        nll = F.cross_entropy(logits, labels[part], reduction=reduction if reduced else "none")
        loss = br.elbo(nll, weights, dataset_size=10, reduction=reduction, batch_size=size)
        losses.append(loss * (1 if reduction == "sum" else size))
        nlls.append(F.cross_entropy(logits, labels[part], reduction="sum"))
    torch.testing.assert_close(sum(losses), sum(nlls) + exact_kl(net))


def test_gradients_are_those_of_the_sum(net, data):
    inputs, labels = data
    weights = net.sample(generator(2))
    nll = F.cross_entropy(net(inputs, weights=weights), labels)
    loss = br.elbo(nll, weights, dataset_size=40, kl_weight=0.5)
    found = torch.autograd.grad(loss, net.weight_parameters(), retain_graph=True)
    by_nll = torch.autograd.grad(nll, net.weight_parameters(), retain_graph=True)
    rhos = list(net.rho.parameters())
    by_kl = [
        *(loc.detach() / 0.7**2 for loc in net.mean_parameters()),
        # d KL / d sigma = sigma / s^2 - 1 / sigma, and d sigma / d rho is a sigmoid.
        *(
            (s / 0.7**2 - 1 / s) * r.sigmoid()
            for s, r in zip(net.sigmas().values(), rhos, strict=True)
        ),
    ]
    for one, of_nll, of_kl in zip(found, by_nll, by_kl, strict=True):
        torch.testing.assert_close(one, of_nll + 0.5 / 40 * of_kl)


def test_sharpened_weights_are_charged_for_each_minibatch(data):
    net = br.Bayesian(nn.Linear(3, 2), sharpening=True, sigma_init=0.1)
    inputs, labels = data
    phi = net.sample(generator(2))
    by = F.cross_entropy(net(inputs, weights=phi), labels, reduction="sum")
    theta = net.sharpen(phi, by, generator=generator(3))
    nll = F.cross_entropy(net(inputs, weights=theta), labels, reduction="none")
    found = br.elbo(nll, theta, dataset_size=40, reduction="sum")
    torch.testing.assert_close(found, nll.sum() + theta.minibatch_kl + theta.kl * 10 / 40)
    with pytest.raises(ConfigError, match="the weights are sharpened"):
        br.elbo(nll.mean(), theta, dataset_size=40)


def test_a_kl_that_dwarfs_the_likelihood_is_told(net, data):
    inputs, labels = data
    weights = net.sample(generator(2))
    nll = F.cross_entropy(net(inputs, weights=weights), labels)
    with pytest.warns(UserWarning, match="dataset_size counts what nll counts"):
        br.elbo(nll / 1000, weights, dataset_size=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        br.elbo(nll, weights, dataset_size=100)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"reduction": "none"}, "'sum' or 'mean'"),
        ({"dataset_size": 0}, "above 0"),
        ({"reduction": "sum"}, r"batch_size=len\(x\)"),
    ],
)
def test_mistakes(net, given, match):
    with pytest.raises(ConfigError, match=match):
        br.elbo(torch.tensor(1.0), net.sample(), **{"dataset_size": 10, **given})
    with pytest.raises(ConfigError, match="nll has 3 numbers and batch_size is 4"):
        br.elbo(torch.ones(3), net.sample(), dataset_size=10, batch_size=4)


def test_the_kl_without_a_draw(net):
    torch.testing.assert_close(net.kl(), exact_kl(net))
    (net.kl() * 2).backward()
    for loc in net.mean_parameters():
        torch.testing.assert_close(loc.grad, 2 * loc.detach() / 0.7**2)


def test_training_without_the_kl_is_told_once_it_learns(net, data):
    inputs, labels = data
    loss = F.cross_entropy(net.train()(inputs), labels)
    with pytest.warns(UserWarning, match=r"without its KL divergence.*net\.sample\(\)"):
        loss.backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (F.cross_entropy(net(inputs), labels) + net.kl() / 10).backward()
        weights = net.sample()
        (F.cross_entropy(net(inputs, weights=weights), labels) + weights.kl / 10).backward()
        F.cross_entropy(net.eval()(inputs), labels).backward()


def test_what_is_bayesian_already_is_refused(net):
    for module in (net, nn.Sequential(net, nn.ReLU())):
        with pytest.raises(ConfigError, match=r"bayesrnn\.Bayesian already"):
            br.Bayesian(module)
