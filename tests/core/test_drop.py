"""Dropped weights: no mean, no noise, no cost; the others are charged as if alone."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.posterior import DROPPED_RHO
from bayesrnn.core.priors import FittedGaussian, Gaussian, ScaleMixture
from bayesrnn.errors import ConfigError

ROWS, COLUMNS = 5, 7
#: The axes of the groups of a linear layer's weight [out, in].
AXES = {"tensor": (0, 1), "row": (0,), "column": (1,), "weight": ()}


def network(prior, seed=0, **options):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = nn.Linear(COLUMNS, ROWS, bias=False)
        generator = torch.Generator().manual_seed(seed)
        return Bayesian(module, prior, {"*": 0.1}, generator=generator, **options)


def some(share=0.6, seed=1):
    """A mask that leaves out weights at random, and one unit whole."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(ROWS, COLUMNS, generator=generator) < share
    mask[:, 2] = True
    return mask


def gaussian_kl(loc, sigma, kept):
    """The KL divergence of what is left from N(0, 0.3^2), by torch.distributions."""
    return kl_divergence(Normal(loc, sigma), Normal(torch.zeros_like(loc), 0.3))[kept].sum()


def fitted_kl(per):
    """The bound of the KL divergence, group by group, of the weights that each group has left."""

    def kl(loc, sigma, kept, a=1.0, b=1e-4):
        total = -sigma[kept].log().sum()
        groups = torch.arange(ROWS * COLUMNS).view(ROWS, COLUMNS)
        if AXES[per]:
            groups = groups.amin(AXES[per], keepdim=True).expand(ROWS, COLUMNS)
        for group in groups.unique():
            here = kept & (groups == group)
            n = int(here.sum())
            squares = (loc[here] ** 2 + sigma[here] ** 2).sum()
            total = total - n / 2 - math.lgamma(a + n / 2) + math.lgamma(a) - a * math.log(b)
            total = total + (a + n / 2) * torch.log(b + squares / 2)
        return total

    return kl


CASES = {
    "gaussian": (Gaussian(0.3), gaussian_kl),
    **{f"fitted per {per}": (FittedGaussian(per), fitted_kl(per)) for per in AXES},
}


@pytest.mark.parametrize("case", CASES)
def test_the_kl_and_its_gradients_are_those_of_the_weights_that_are_left(case):
    prior, expected_kl = CASES[case]
    net, dropped = network(prior), some()
    net.drop({"weight": dropped})
    loc = net.module.weight.detach().double().requires_grad_()
    rho = net.rho.weight.detach().double().requires_grad_()
    expected = expected_kl(loc, nn.functional.softplus(rho) + net.min_sigma, ~dropped)
    found = net.sample().kl
    # What is left out of a float32 sum: log sigma of the dropped weights, to its last digit.
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)
    expected.backward()
    found.backward()
    for parameter, wanted in ((net.module.weight, loc.grad), (net.rho.weight, rho.grad)):
        torch.testing.assert_close(parameter.grad.double(), wanted, rtol=1e-4, atol=1e-4)
        assert parameter.grad[dropped].abs().max() < 1e-6


@pytest.mark.parametrize("per", ["row", "tensor", "weight"])
def test_an_estimate_by_a_draw_leaves_them_out_as_well(per):
    """log q - log p of the others; the squared noise of the dropped ones counts by its mean, 1."""
    pi, wide, narrow = 0.3, 0.5, 0.1
    net, dropped = network(ScaleMixture(pi, wide, narrow, per)), some()
    net.drop({"weight": dropped})
    noise = net.noise(3)
    kept, eps = ~dropped, noise.tensors[0].double()
    weights = net.sample(noise=noise)
    theta, sigma = weights["weight"].detach().double(), net.sigmas()["weight"].double()
    log_q = Normal(net.module.weight.detach().double(), sigma).log_prob(theta)[kept].sum()
    components = []
    for share, scale in ((pi, wide), (1 - pi, narrow)):
        log_p = torch.where(kept, Normal(0.0, scale).log_prob(theta), 0.0)
        log_p = log_p.sum(AXES[per]) if AXES[per] else log_p
        components.append(math.log(share) + log_p)
    log_p = torch.logaddexp(*components)
    expected = log_q - log_p.sum() + (dropped.sum() - eps[dropped].square().sum()) / 2
    torch.testing.assert_close(weights.kl.double(), expected, rtol=1e-4, atol=1e-3)


def test_they_have_neither_mean_nor_noise_and_stay_dropped():
    net, dropped = network(Gaussian()), some()
    net.drop({"weight": dropped})
    net.drop({"weight": torch.zeros_like(dropped)})
    assert torch.equal(net.dropped()["weight"], dropped)
    assert net.module.weight[dropped].abs().max() == 0
    assert (net.module.weight[~dropped] != 0).all()
    assert net.sample()["weight"][dropped].abs().max() < 10 * net.min_sigma
    assert net.sample()["weight"][~dropped].abs().min() > 10 * net.min_sigma


def test_a_network_that_is_loaded_knows_what_was_dropped():
    net = network(FittedGaussian())
    net.drop({"weight": some()})
    again = network(FittedGaussian(), seed=5)
    again.load_state_dict(net.state_dict())
    assert torch.equal(again.sample(noise=again.noise(1)).kl, net.sample(noise=net.noise(1)).kl)
    fresh = network(FittedGaussian(), seed=6)
    again.load_state_dict(fresh.state_dict())
    assert torch.equal(again.sample(noise=again.noise(1)).kl, fresh.sample(noise=fresh.noise(1)).kl)


def test_beside_a_row_of_padding():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Bayesian(nn.Embedding(6, 3, padding_idx=2), FittedGaussian("row"), 0.1)
    dropped = torch.zeros(6, 3, dtype=torch.bool)
    dropped[4] = dropped[0, 1] = True
    net.drop({"weight": dropped})
    sizes = net.factors()["weight"].term.sizes
    assert sizes.flatten().tolist() == [2, 3, 3, 0, 3]


def test_without_a_smallest_sigma():
    net, dropped = network(FittedGaussian(), min_sigma=0.0), some()
    net.drop({"weight": dropped})
    kl = net.sample().kl
    kl.backward()
    assert torch.isfinite(kl)
    assert (net.rho.weight[dropped] == DROPPED_RHO).all()


def test_only_what_is_bayesian_can_be_dropped():
    with pytest.raises(ConfigError, match=r"bias is no Bayesian parameter.*there are: weight"):
        network(Gaussian()).drop({"bias": torch.ones(3, dtype=torch.bool)})
