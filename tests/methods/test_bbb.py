import math
from itertools import combinations, pairwise

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import absolute, relative
from bayesrnn.core.priors import Gaussian, ScaleMixture
from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Drawn, Hints, KLScale, Outcome
from bayesrnn.methods.bbb import BayesByBackprop
from bayesrnn.methods.variational import PosteriorOptions
from bayesrnn.random import RandomStreams
from bayesrnn.training.optimisation import make_optimiser

HINTS = Hints(deterministic=("output.bias",), sigma_init={"*": absolute(0.1)})
KL_SCALE = KLScale(epoch=0.01, minibatch=1.0)


def make_method(seed=0, **options):
    return BayesByBackprop(PosteriorOptions(**options), RandomStreams(seed))


@pytest.fixture
def draws_of(objective):
    """The weights that a number of training steps run with, as one vector each."""

    def draws(method, net, count):
        seen = []

        def recorded(network):
            assert isinstance(network, Drawn)
            weights = network.weights.values()
            seen.append(torch.cat([weight.detach().flatten() for weight in weights]))
            return objective(network)

        for _ in range(count):
            method.loss(net, recorded, KL_SCALE)
        return seen

    return draws


def mean_of(net):
    return torch.cat([net.module.get_parameter(name).detach().flatten() for name in net.names])


def test_what_is_built(make_model):
    assert METHODS["bbb"] is BayesByBackprop
    net = make_method().build(make_model(), HINTS)
    assert isinstance(net, Bayesian)
    everything = {name for name, _ in net.module.named_parameters()}
    frozen = {"recurrent.bias_hh_l0", "recurrent.bias_hh_l1"}
    assert set(net.names) == everything - frozen - {"output.bias"}
    for sigma in net.sigmas().values():
        torch.testing.assert_close(sigma, torch.full_like(sigma, 0.1))


def test_sigma_scale_multiplies_the_hints(make_model):
    hints = Hints(sigma_init={"embedding.*": relative(0.5, 1.0), "*": absolute(0.1)})
    net = make_method(sigma_scale=0.3, prior="gaussian", prior_sigma1=2.0).build(
        make_model(), hints
    )
    sigma = net.sigmas()
    embedding = sigma["embedding.weight"]
    assert embedding.min() >= 0.3 * 0.5 * 2.0 * 0.999
    assert embedding.max() <= 0.3 * 1.0 * 2.0 * 1.001
    assert embedding.max() > 1.5 * embedding.min()
    torch.testing.assert_close(sigma["output.weight"], torch.full((9, 5), 0.03))


def test_without_hints_the_spread_is_relative_to_the_prior(make_model):
    net = make_method(prior="gaussian", prior_sigma1=2.0).build(make_model(), Hints())
    for sigma in net.sigmas().values():
        assert sigma.min() >= 0.5 * 0.999
        assert sigma.max() <= 1.0 * 1.001


def test_spreads_come_from_their_stream(make_model):
    hints = Hints(sigma_init={"*": absolute(0.1, 0.2)})
    first, same, other = (make_method(seed).build(make_model(), hints) for seed in (0, 0, 1))
    assert torch.equal(first.sigmas()["output.weight"], same.sigmas()["output.weight"])
    assert not torch.equal(first.sigmas()["output.weight"], other.sigmas()["output.weight"])


def test_the_recipes_prior_is_the_default():
    prior = PosteriorOptions().make_prior()
    assert isinstance(prior, ScaleMixture)
    expected = (0.25, math.exp(-1), math.exp(-7), "row")
    assert (prior.pi, prior.sigma1, prior.sigma2, prior.per) == expected
    prior = PosteriorOptions(
        prior_pi=0.5, prior_sigma1=2.0, prior_sigma2=0.1, prior_per="weight"
    ).make_prior()
    assert (prior.pi, prior.sigma1, prior.sigma2, prior.per) == (0.5, 2.0, 0.1, "weight")
    gaussian = PosteriorOptions(prior="gaussian", prior_sigma1=0.3).make_prior()
    assert isinstance(gaussian, Gaussian)
    assert gaussian.sigma == 0.3


@pytest.mark.parametrize("kl_weight", [1.0, 0.2])
def test_the_loss_is_nll_plus_the_share_of_the_kl(make_model, objective, kl_weight):
    method = make_method(prior="gaussian", prior_sigma1=0.5, kl_weight=kl_weight)
    net = method.build(make_model(), HINTS).double()
    loss = method.loss(net, objective, KLScale(0.03, 1.0))
    kl = sum(
        kl_divergence(Normal(net.module.get_parameter(name), sigma), Normal(0.0, 0.5)).sum()
        for name, sigma in net.sigmas().items()
    ).item()
    assert loss.terms.keys() == {"nll", "kl"}
    assert loss.terms["kl"] == pytest.approx(0.03 * kl_weight * kl, rel=1e-6)
    expected = loss.terms["nll"] + 0.03 * kl_weight * kl
    assert loss.total.item() == pytest.approx(expected, rel=1e-6)


def test_one_draw_is_held_over_the_minibatch(make_model, objective):
    method = make_method()
    net = method.build(make_model(), HINTS)

    def twice(network):
        first, second = objective(network), objective(network)
        assert first.nll == second.nll
        return second

    losses = {method.loss(net, twice, KL_SCALE).terms["nll"] for _ in range(4)}
    assert len(losses) == 4


def test_draws_are_mirrored_in_the_order_a_b_minus_a_minus_b(make_model, draws_of):
    method = make_method()
    net = method.build(make_model(), HINTS).double()
    drawn = draws_of(method, net, 8)
    mean = mean_of(net)
    mirrored = {(0, 2), (1, 3), (4, 6), (5, 7)}
    for first, second in combinations(range(8), 2):
        both = drawn[first] + drawn[second]
        assert torch.allclose(both, 2 * mean) == ((first, second) in mirrored)
        assert not torch.allclose(drawn[first], drawn[second])


def carried_loss(order):
    """The mean loss of a minibatch whose state was left behind by the one before.

    theta is noise, the state h <- theta + c h with c = 0.2, and the loss (theta + c h)^2. What is
    returned is its distance from that of independent noise, 1 + c^2 / (1 - c^2).
    """
    c, generator = 0.2, torch.Generator().manual_seed(0)
    fresh = torch.randn(len(set(order)), 400_000, generator=generator, dtype=torch.double)
    state = torch.randn(400_000, generator=generator, dtype=torch.double) / math.sqrt(1 - c**2)
    losses = []
    for name in order:
        theta = fresh["ab".index(name.lower())] * (1 if name.islower() else -1)
        losses.append((theta + c * state).square().mean())
        state = theta + c * state
    return torch.stack(losses).mean().item() - (1 + c**2 / (1 - c**2))


def test_the_order_takes_most_of_the_bias_away_that_a_carried_state_brings():
    # In the order +a -a each second minibatch has a bias of -2c; in ours it is -2c^2.
    assert carried_loss("aA") == pytest.approx(-0.2, abs=0.005)
    assert carried_loss("abAB") == pytest.approx(-0.04, abs=0.005)


def test_without_antithetic_each_draw_has_its_own_noise(make_model, draws_of):
    method = make_method(antithetic=False)
    net = method.build(make_model(), HINTS).double()
    drawn = draws_of(method, net, 4)
    mean = mean_of(net)
    for first, second in pairwise(drawn):
        assert not torch.allclose(first + second, 2 * mean)
    assert method.state() is None


@pytest.mark.parametrize("stop", [0, 1, 2, 3, 4])
def test_a_restored_method_draws_what_would_have_come_next(make_model, draws_of, stop):
    method = make_method()
    net = method.build(make_model(), HINTS)
    draws_of(method, net, stop)
    streams, state = method.streams.state(), method.state()
    assert (state is None) == (stop % 4 == 0)
    expected = draws_of(method, net, 5)

    resumed = make_method()
    resumed.build(make_model(), HINTS)
    resumed.streams.restore(streams)
    resumed.restore(state)
    assert resumed.state() == state
    for one, other in zip(draws_of(resumed, net, 5), expected, strict=True):
        assert torch.equal(one, other)


def test_a_checkpoint_from_the_middle_of_a_pair_goes_on(make_model, draws_of):
    # Earlier checkpoints held one seed, whose mirror image came next.
    method = make_method()
    net = method.build(make_model(), HINTS).double()
    (first,) = draws_of(method, net, 1)
    streams, (seed,) = method.streams.state(), method.state()["seeds"]
    resumed = make_method()
    resumed.streams.restore(streams)
    resumed.restore(seed)
    drawn, mean = draws_of(resumed, net, 5), mean_of(net)
    torch.testing.assert_close(first + drawn[0], 2 * mean)
    torch.testing.assert_close(drawn[1] + drawn[3], 2 * mean)
    torch.testing.assert_close(drawn[2] + drawn[4], 2 * mean)


def test_the_state_is_plain_numbers(make_model, draws_of):
    method = make_method()
    draws_of(method, method.build(make_model(), HINTS), 2)
    state = method.state()
    assert state["mirroring"] is True
    assert all(type(seed) is int and 0 <= seed < 2**63 for seed in state["seeds"])
    assert len(set(state["seeds"])) == 2


def test_a_drawn_network_holds_its_weights(make_model, words):
    method = make_method()
    net = method.build(make_model(), HINTS)
    first, second = method.draw(net, 1), method.draw(net, 2)
    drawn = net.sample(noise=net.noise(1))
    output = first(words, None)[0]
    assert torch.equal(first(words, None)[0], output)
    assert not torch.equal(second(words, None)[0], output)
    # The draw is the posterior's: a plain model with these weights gives the same.
    model = make_model()
    with torch.no_grad():
        for name, weight in drawn.items():
            model.get_parameter(name).copy_(weight)
    assert torch.equal(model(words, None)[0], output)


def test_drawing_to_predict_does_not_disturb_training(make_model, draws_of):
    def run(with_samples):
        method = make_method()
        net = method.build(make_model(), HINTS)
        drawn = draws_of(method, net, 1)
        if with_samples:
            method.draw(net, 0)
        return drawn + draws_of(method, net, 3)

    for one, other in zip(run(False), run(True), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["sigma_scale", "kl_weight"])
def test_impossible_scales(name):
    with pytest.raises(ConfigError, match="--" + name.replace("_", "-")):
        PosteriorOptions(**{name: 0.0})


def test_impossible_priors_are_refused_at_once():
    with pytest.raises(ConfigError, match=r"--prior-pi is 1\.5; it has to be between 0 and 1"):
        PosteriorOptions(prior_pi=1.5)
    with pytest.raises(ConfigError, match="--prior-sigma2 is 0; it has to be above 0"):
        PosteriorOptions(prior_sigma2=0.0)
    with pytest.raises(ConfigError, match="--prior-sigma1 is -1; it has to be above 0"):
        PosteriorOptions(prior="gaussian", prior_sigma1=-1.0)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_widths_have_a_rate_of_their_own_under_any_optimiser(optimiser):
    method = make_method(sigma_lr=1.0)
    net = method.build(nn.Linear(3, 2), Hints())
    before = net.sigmas()
    groups, widths = method.parameter_groups(net), method.widths(net, 4)
    assert [group["lr"] for group in widths.param_groups] == [4.0]
    grouped = {id(parameter) for group in groups for parameter in group["params"]}
    assert grouped == set(map(id, net.module.parameters()))
    means = make_optimiser(optimiser, groups, 1e-4, 0.0)
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    for _ in range(20):
        loss = method.loss(
            net, lambda network: Outcome(network(x).square().mean(), None), KLScale(0.025, 0.25)
        )
        loss.total.backward()
        for each in (means, widths):
            each.step()
            each.zero_grad()
    for name, sigma in net.sigmas().items():
        assert 0.02 < (sigma / before[name]).log().abs().max() < 1


def test_widths_are_trained_like_the_means_unless_they_have_a_rate():
    method = make_method()
    net = method.build(nn.Linear(3, 2), Hints())
    (group,) = method.parameter_groups(net)
    assert set(map(id, group["params"])) == set(map(id, net.parameters()))
    assert method.widths(net, 4) is None


NATURAL = {"prior": "gaussian", "prior_sigma1": 0.5, "sigma_lr": 1.0, "prior_step": "natural"}


@pytest.mark.parametrize("name", ["bbb", "sharpened"])
def test_the_prior_pulls_by_a_step_of_its_own(name):
    """Twice the rate of the widths, times the share of the KL, lambda and sigma^2."""
    kind = METHODS[name]
    method = kind(kind.options_type(**NATURAL, kl_weight=0.3), RandomStreams(0))
    net = method.build(nn.Linear(3, 2), Hints())
    x = torch.ones(1, 3)
    loss = method.loss(net, lambda network: Outcome(0 * network(x).sum(), None), KL_SCALE)
    loss.total.backward()
    assert all((p.grad == 0).all() for p in net.module.parameters())
    assert all((p.grad != 0).all() for p in net.rho.parameters())
    before = {key: p.detach().clone() for key, p in net.module.named_parameters()}
    loss.pull(20.0)
    for key, parameter in net.module.named_parameters():
        share = 2 * 20 * 0.3 * KL_SCALE.epoch * net.sigmas()[key].square() / 0.5**2
        torch.testing.assert_close(parameter.detach(), before[key] / (1 + share))


def test_without_it_the_gradient_pulls(make_model, objective):
    method = make_method(prior="gaussian", sigma_lr=1.0)
    net = method.build(make_model(), HINTS)
    loss = method.loss(net, objective, KL_SCALE)
    before = mean_of(net)
    loss.pull(20.0)
    assert torch.equal(mean_of(net), before)


@pytest.mark.parametrize("wrong", [{"prior": "mixture"}, {"sigma_lr": 0.0}])
def test_a_natural_step_needs_the_prior_and_the_rate_for_it(wrong):
    with pytest.raises(ConfigError, match="--prior-step natural goes with --prior gaussian"):
        PosteriorOptions(**{**NATURAL, **wrong})


@pytest.mark.parametrize("options", [{"sigma_lr": 0.0}, {"sigma_lr": 1.0}, NATURAL])
def test_the_known_norm_is_that_of_what_is_clipped(options):
    method = make_method(**options)
    net = method.build(nn.Linear(3, 2), Hints(deterministic=("bias",)))
    loss = method.loss(
        net, lambda network: Outcome(network(torch.ones(1, 3)).sum(), None), KL_SCALE
    )
    loss.total.backward()
    clipped = [p.grad for group in method.parameter_groups(net) for p in group["params"]]
    expected = torch.cat([gradient.flatten() for gradient in clipped]).norm().item()
    assert loss.gradient_norm() == pytest.approx(expected, rel=1e-5)
