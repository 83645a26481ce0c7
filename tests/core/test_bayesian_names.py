"""Which weights of a module are Bayesian, by name: tied ones, deterministic ones, patterns."""

import copy

import pytest
import torch
from torch import nn
from torch.distributions import Normal
from torch.nn import functional as F

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import absolute, relative
from bayesrnn.core.priors import Gaussian, Prior, ScaleMixture
from bayesrnn.errors import ConfigError

from .tied import Tied, gaussian_kl

pytestmark = pytest.mark.usefixtures("seeded")


# Tied weights


def test_tied_weights_are_drawn_and_charged_once():
    net = Bayesian(Tied().double(), Gaussian(0.7), 0.2)
    assert net.names == ("embedding.weight", "hidden.weight", "hidden.bias", "output.bias")
    weights = net.sample()
    assert set(weights) == set(net.names)
    expected = sum(gaussian_kl(net, name, 0.7) for name in net.names)
    torch.testing.assert_close(weights.kl, expected.detach(), rtol=1e-12, atol=0)
    # Both uses see the draw: the input rows and the output matrix are the same tensor.
    words = torch.arange(7)
    e = weights["embedding.weight"]
    hidden = F.linear(e, weights["hidden.weight"], weights["hidden.bias"]).tanh()
    expected = hidden @ e.T + weights["output.bias"]
    torch.testing.assert_close(net(words, weights=weights), expected)


def test_state_of_tied_weights_holds_each_once_and_loads_back():
    net, other = Bayesian(Tied(), sigma_init=0.2), Bayesian(Tied(), sigma_init=0.5)
    state = net.state_dict()
    names = ["embedding.weight", "hidden.weight", "hidden.bias", "output.bias"]
    assert set(state) == {f"{part}.{name}" for part in ("loc", "rho") for name in names}
    kept = set(state)
    assert other.load_state_dict(state, strict=True) == ([], [])
    assert set(state) == kept  # the caller's mapping is left as it was
    words = torch.arange(7)
    assert torch.equal(other.eval()(words), net.eval()(words))
    assert other.module.output.weight is other.module.embedding.weight
    assert torch.equal(other.sigmas()["embedding.weight"], net.sigmas()["embedding.weight"])


def test_a_missing_or_foreign_entry_of_the_state_is_refused():
    net = Bayesian(Tied(), sigma_init=0.2)
    for name in ("loc.embedding.weight", "rho.embedding.weight"):
        state = net.state_dict()
        del state[name]
        with pytest.raises(RuntimeError, match=name):
            net.load_state_dict(state)
    with pytest.raises(RuntimeError, match="Unexpected"):
        net.load_state_dict({**net.state_dict(), "rho.extra": torch.zeros(1)})


def test_state_of_a_network_inside_another_module():
    net, other = (nn.Sequential(Bayesian(Tied()), nn.Linear(7, 2)) for _ in range(2))
    state = net.state_dict()
    assert "0.loc.output.weight" not in state
    assert "0.loc.embedding.weight" in state
    other.load_state_dict(state, strict=True)
    words = torch.arange(7)
    assert torch.equal(other.eval()(words), net.eval()(words))


def test_a_pattern_may_name_a_tied_weight_by_any_of_its_names():
    net = Bayesian(Tied(), deterministic=("output.weight",))
    assert "embedding.weight" not in net.names
    net = Bayesian(Tied(), {"output.weight": Gaussian(3.0), "*": ScaleMixture()}, relative(0.5))
    torch.testing.assert_close(
        net.sigmas()["embedding.weight"], torch.full((7, 4), 1.5), rtol=1e-5, atol=0
    )


def test_a_tied_word_matrix_is_grouped_by_word():
    prior = ScaleMixture(0.3, 0.5, 0.2)
    net = Bayesian(Tied().double(), {"embedding.*": prior, "*": Gaussian()}, 0.1)
    weights = net.sample()
    e, loc = weights["embedding.weight"].detach(), net.module.embedding.weight.detach()
    sigma = net.sigmas()["embedding.weight"]
    log_q = Normal(loc, sigma).log_prob(e).sum()
    log_p, zero = 0.0, loc.new_zeros(())
    for vector in e:
        wide = Normal(zero, zero + 0.5).log_prob(vector).sum().exp()
        narrow = Normal(zero, zero + 0.2).log_prob(vector).sum().exp()
        log_p += torch.log(0.3 * wide + 0.7 * narrow)
    rest = sum(gaussian_kl(net, name, 1.0) for name in net.names if name != "embedding.weight")
    torch.testing.assert_close(weights.kl, (log_q - log_p + rest).detach(), rtol=1e-12, atol=0)


def test_one_module_in_two_places_is_one_set_of_weights():
    shared = nn.Linear(3, 3).double()
    net = Bayesian(nn.Sequential(shared, nn.Tanh(), shared), Gaussian(), 0.2)
    assert net.names == ("0.weight", "0.bias")
    weights = net.sample()
    x = torch.randn(4, 3).double()
    layer = lambda x: F.linear(x, weights["0.weight"], weights["0.bias"])  # noqa: E731
    torch.testing.assert_close(net(x, weights=weights), layer(layer(x).tanh()))
    assert set(net.state_dict()) == {"loc.0.weight", "loc.0.bias", "rho.0.weight", "rho.0.bias"}
    net.load_state_dict(net.state_dict(), strict=True)


# What stays deterministic, and patterns


def test_deterministic_and_frozen_parameters_stay_ordinary():
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    module[0].bias.requires_grad_(False)
    net = Bayesian(module, Gaussian(), 0.2, deterministic=("1.bias",))
    assert net.names == ("0.weight", "1.weight")
    weights = net.sample()
    assert set(weights) == set(net.sigmas()) == {"0.weight", "1.weight"}
    expected = gaussian_kl(net, "0.weight", 1.0) + gaussian_kl(net, "1.weight", 1.0)
    torch.testing.assert_close(weights.kl, expected.detach())
    x = torch.randn(5, 3)
    hidden = F.linear(x, weights["0.weight"], module[0].bias)
    expected = F.linear(hidden, weights["1.weight"], module[1].bias)
    torch.testing.assert_close(net(x, weights=weights), expected)
    net(x, weights=weights).sum().backward()
    # d sum / d bias of the last layer: one for each of the five rows.
    torch.testing.assert_close(module[1].bias.grad, torch.full((2,), 5.0))
    assert module[0].bias.grad is None
    assert "rho.1.bias" not in net.state_dict()


def test_deterministic_takes_patterns_and_a_single_string():
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    assert Bayesian(copy.deepcopy(module), deterministic="*.bias").names == (
        "0.weight",
        "1.weight",
    )
    assert Bayesian(module, deterministic=["0.*", "1.bias"]).names == ("1.weight",)


def test_the_first_pattern_that_fits_decides():
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).double()
    priors = {"0.weight": Gaussian(0.1), "*.weight": Gaussian(2.0), "*": Gaussian(1.0)}
    scales = {"1.*": 0.3, "*.bias": absolute(0.2), "*": relative(0.5)}
    net = Bayesian(module, priors, scales)
    sigmas = {name: sigma.flatten()[0].item() for name, sigma in net.sigmas().items()}
    expected = {"0.weight": 0.05, "0.bias": 0.2, "1.weight": 0.3, "1.bias": 0.3}
    assert sigmas == pytest.approx(expected, rel=1e-6)
    widths = {"0.weight": 0.1, "0.bias": 1.0, "1.weight": 2.0, "1.bias": 1.0}
    expected = sum(gaussian_kl(net, name, width) for name, width in widths.items())
    torch.testing.assert_close(net.sample().kl, expected.detach(), rtol=1e-12, atol=0)


def test_patterns_that_fit_nothing():
    with pytest.raises(ConfigError, match=r"deterministic names 'out\.bias'.*weight, bias"):
        Bayesian(nn.Linear(3, 2), deterministic=("out.bias",))
    with pytest.raises(ConfigError, match=r"prior names 'encoder\.\*'"):
        Bayesian(nn.Linear(3, 2), {"encoder.*": Gaussian(), "*": Gaussian()})


def test_weights_that_no_pattern_fits():
    with pytest.raises(ConfigError, match="no prior is given for bias"):
        Bayesian(nn.Linear(3, 2), {"weight": Gaussian()})
    with pytest.raises(ConfigError, match="no sigma_init is given for bias"):
        Bayesian(nn.Linear(3, 2), Gaussian(), {"weight": 0.1})
    # One that stays deterministic needs neither.
    Bayesian(nn.Linear(3, 2), {"weight": Gaussian()}, {"weight": 0.1}, deterministic=("bias",))


def test_nothing_left_to_be_bayesian():
    for module, deterministic in [
        (nn.Linear(3, 2), ("*",)),
        (nn.Linear(3, 2).requires_grad_(False), ()),
        (nn.Tanh(), ()),
    ]:
        with pytest.raises(ConfigError, match="no parameter is left"):
            Bayesian(module, deterministic=deterministic)


def test_a_spread_below_the_smallest_is_refused():
    with pytest.raises(ConfigError, match="min_sigma"):
        Bayesian(nn.Linear(3, 2), sigma_init=1e-6)
    Bayesian(nn.Linear(3, 2), sigma_init=1e-6, min_sigma=0.0)


def test_the_spread_starts_where_it_was_told_and_never_falls_below_the_floor():
    net = Bayesian(nn.Linear(3, 2).double(), sigma_init=0.1, min_sigma=0.02)
    torch.testing.assert_close(net.sigmas()["weight"], torch.full((2, 3), 0.1).double())
    with torch.no_grad():
        net.rho.get_parameter("weight").fill_(-100.0)
    torch.testing.assert_close(net.sigmas()["weight"], torch.full((2, 3), 0.02).double())
    weights = net.sample()
    spread = (weights["weight"] - net.module.weight) / weights.noise.tensors[0]
    torch.testing.assert_close(spread, torch.full((2, 3), 0.02).double())


def test_a_prior_of_ones_own_without_a_width_needs_an_absolute_spread():
    class Flat(Prior):
        def log_prob(self, weight, axis):
            return weight.sum() * 0

    with pytest.raises(ConfigError, match="absolute"):
        Bayesian(nn.Linear(3, 2), Flat())
    net = Bayesian(nn.Linear(3, 2).double(), Flat(), 0.2)
    weights = net.sample()
    # All that is left of the KL is log q.
    log_q = sum(
        Normal(net.module.get_parameter(name), net.sigmas()[name]).log_prob(weight).sum()
        for name, weight in weights.items()
    )
    torch.testing.assert_close(weights.kl, log_q)
