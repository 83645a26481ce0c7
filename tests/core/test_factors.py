"""The posterior tensor by tensor."""

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import absolute
from bayesrnn.core.priors import Gaussian, ScaleMixture

pytestmark = pytest.mark.usefixtures("seeded")


def network(prior):
    module = nn.Sequential(nn.Embedding(9, 3, padding_idx=2), nn.Linear(3, 4))
    return Bayesian(module, prior, absolute(0.1, 0.5))


def test_the_divergence_of_each_tensor_is_that_of_normal_distributions():
    net = network({"0.*": Gaussian(0.7), "*": Gaussian(1.3)})
    found = net.factors()
    assert list(found) == list(net.names)
    for name, factor in found.items():
        loc, sigma = net.module.get_parameter(name), net.sigmas()[name]
        if name == "0.weight":  # the padding row is not drawn
            rows = [row for row in range(9) if row != 2]
            loc, sigma = loc[rows], sigma[rows]
        prior = Normal(0.0, 0.7 if name.startswith("0.") else 1.3)
        expected = kl_divergence(Normal(loc, sigma), prior).sum()
        torch.testing.assert_close(torch.tensor(factor.kl), expected.detach())
        torch.testing.assert_close(factor.loc, loc.detach())
        torch.testing.assert_close(factor.sigma, sigma)


def test_the_divergences_of_a_draw_add_up_to_what_it_is_charged():
    net = network(ScaleMixture())
    found = net.factors(torch.Generator().manual_seed(3))
    charged = net.sample(torch.Generator().manual_seed(3)).kl.item()
    assert sum(factor.kl for factor in found.values()) == pytest.approx(charged, rel=1e-5)
    assert len({factor.kl for factor in found.values()}) == len(net.names)
