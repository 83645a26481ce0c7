"""The prior's pull on the means as a natural step of its own, beside any optimiser."""

import pytest
import torch
from torch import nn

from bayesrnn import Bayesian, FittedGaussian, Gaussian, Prior, ScaleMixture
from bayesrnn.errors import ConfigError

PRIORS = {
    "gaussian": Gaussian(0.3),
    **{per: FittedGaussian(per) for per in ("tensor", "row", "column", "weight")},
}


class Laplace(Prior):
    """A prior that gives nothing but its density."""

    def log_prob(self, weight, axis):
        return torch.distributions.Laplace(0.0, 0.1).log_prob(weight).sum()


def network(prior, dtype=torch.float32):
    torch.manual_seed(0)
    return Bayesian(nn.Linear(5, 3).to(dtype), prior, sigma_init={"*": 0.2})


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_without_the_pull_the_kl_has_a_gradient_by_the_widths_alone(prior):
    net, x = network(prior), torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    found = {}
    for pull in (True, False):
        net.zero_grad()
        weights = net.sample(noise=net.noise(3), pull=pull)
        (net(x, weights=weights).square().sum() + 0.7 * weights.kl).backward()
        found[pull] = [weights.kl.item(), *(p.grad.clone() for p in net.rho.parameters())]
    assert found[False][0] == found[True][0]
    for with_it, without in zip(*found.values(), strict=True):
        assert with_it == without if isinstance(with_it, float) else torch.equal(with_it, without)
    by_means = [p.grad.clone() for p in net.module.parameters()]
    length = sum(g.square().sum() for g in by_means).item()
    assert weights.squared_gradients.by_loc == pytest.approx(length, rel=1e-6)
    net.zero_grad()
    net(x, weights=net.sample(noise=net.noise(3))).square().sum().backward()
    for alone, parameter in zip(by_means, net.module.parameters(), strict=True):
        torch.testing.assert_close(alone, parameter.grad)


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_a_short_pull_is_the_natural_gradient(prior):
    """sigma^2 times the gradient by the means of -E[log p], by autograd in float64."""
    net, rate = network(prior, torch.double), 1e-6
    before = {name: p.detach().clone() for name, p in net.module.named_parameters()}
    sigmas = net.sigmas()
    net.pull(net.sample(pull=False), rate)
    for name, loc in before.items():
        loc.requires_grad_()
        term = net._terms[name]
        (-term.prior.expected_log_prob(loc, sigmas[name], term.axis)).backward()
        moved = loc.detach() - net.module.get_parameter(name).detach()
        torch.testing.assert_close(
            moved / rate, sigmas[name].square() * loc.grad, rtol=1e-4, atol=0
        )


def test_a_mean_that_data_say_nothing_of_shrinks_by_the_stated_share():
    net = network(Gaussian(0.2))  # sigma is 0.2, too: lambda sigma^2 = 1
    before = net.module.weight.detach().clone()
    for _ in range(10):
        net.pull(net.sample(pull=False), 0.05)
    torch.testing.assert_close(net.module.weight, before / 1.05**10)
    net.pull(net.sample(pull=False), 1e9)
    assert net.module.weight.abs().max() < 1e-8, "the longest step ends at the prior's mean"


def test_with_natural_steps_of_the_likelihood_it_ends_at_the_exact_posterior():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 5, generator=generator, dtype=torch.double)
    y = torch.randn(40, 1, generator=generator, dtype=torch.double)
    exact = torch.linalg.solve(x.T @ x + torch.eye(5).double() / 0.3**2, x.T @ y)
    net = Bayesian(nn.Linear(5, 1, bias=False).double(), Gaussian(0.3), sigma_init=0.1)
    variance, rate = net.sigmas()["weight"].square(), 0.5
    for _ in range(300):
        net.zero_grad()
        ((y - net.module(x)).square().sum() / 2).backward()
        with torch.no_grad():
            net.module.weight -= rate * variance * net.module.weight.grad
        net.pull(net.sample(pull=False), rate)
    torch.testing.assert_close(net.module.weight.T, exact)


def test_adam_follows_a_prior_that_hardly_counts_and_not_this_step():
    """Of a network that data say nothing of: 100 steps of 0.001 from means of about 0.1."""
    lengths = []
    for pull in (True, False):
        net, charged = network(FittedGaussian()), 1e-6
        start = net.module.weight.detach().norm()
        means = torch.optim.Adam(net.module.parameters(), lr=1e-3)
        for _ in range(100):
            means.zero_grad()
            weights = net.sample(torch.Generator().manual_seed(0), pull=pull)
            (charged * weights.kl).backward()
            means.step()
            if not pull:
                net.pull(weights, 2 * charged)
        lengths.append((net.module.weight.norm() / start).item())
    assert lengths[0] < 0.7
    assert 1 - 2 * 100 * 1e-6 < lengths[1] < 1


def test_what_is_never_drawn_stays():
    net = Bayesian(nn.Embedding(4, 3, padding_idx=1), FittedGaussian("row"), sigma_init=0.1)
    with torch.no_grad():
        net.module.weight.fill_(0.5)
    net.pull(net.sample(pull=False), 1.0)
    assert (net.module.weight[1] == 0.5).all()
    variance, expected = 0.01, 3 * (0.25 + 0.01)
    precision = (3 + 2) / (expected + 2 * 1e-4)
    torch.testing.assert_close(
        net.module.weight[[0, 2, 3]], torch.full((3, 3), 0.5 / (1 + precision * variance))
    )
    single = nn.Module()
    single.number = nn.Parameter(torch.tensor(2.0))
    net = Bayesian(single, Gaussian(1.0), sigma_init=0.5)
    net.pull(net.sample(pull=False), 4.0)
    assert single.number.item() == pytest.approx(1.0)


@pytest.mark.parametrize("prior", [ScaleMixture(), Laplace()])
def test_priors_without_expected_squares_are_refused(prior):
    net = network(prior)
    for ask in (lambda: net.pull(net.sample(), 0.1), lambda: net.sample(pull=False)):
        with pytest.raises(ConfigError, match="cannot pull the means by a step of its own"):
            ask()


def test_it_needs_a_draw():
    net = network(Gaussian(1.0))
    with pytest.raises(ConfigError, match="these weights are no draw"):
        net.pull(net.mean(), 0.1)
