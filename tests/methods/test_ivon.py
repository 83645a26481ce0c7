"""ivon: the posterior that it finds, and the draw that the training loop comes in between."""

import copy
import math
import sys

import pytest
import torch
from torch import nn

from bayesrnn.errors import ConfigError, MissingExtraError
from bayesrnn.methods import METHODS
from bayesrnn.methods import ivon as module
from bayesrnn.methods.base import Hints, KLScale, Outcome
from bayesrnn.methods.ivon import IvonOptions
from bayesrnn.random import RandomStreams

pytest.importorskip("ivon", reason="the extra `ivon` brings ivon-opt")

KL_SCALE = KLScale(epoch=0.01, minibatch=1.0)


def make(network, lr=0.05, share=KL_SCALE.epoch, seed=0, deterministic=(), **options):
    method = METHODS["ivon"](IvonOptions(**options), RandomStreams(seed))
    net = method.build(network, Hints(deterministic))
    return method, net, method.optimiser(net, lr, KLScale(share, 1.0))


def train(method, net, optimiser, objective, steps):
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = method.loss(net, objective, KL_SCALE)
        loss.total.backward()
        optimiser.step()
        losses.append(loss.total.item())
    return losses


def test_on_a_quadratic_it_finds_the_best_mean_field_posterior():
    """For a Gaussian posterior with precision P, that has the same mean and variances 1 / P_ii."""
    prior_sigma, noise_sigma = 0.5, 0.5
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(50, 3, generator=generator) * torch.tensor([1.0, 0.5, 2.0])
    x[:, 1] += 0.5 * x[:, 0]
    y = x @ torch.tensor([1.0, -1.0, 0.3]) + noise_sigma * torch.randn(50, generator=generator)
    precision = x.T @ x / noise_sigma**2 + torch.eye(3) / prior_sigma**2
    mean = torch.linalg.solve(precision, x.T @ y) / noise_sigma**2
    best = precision.diag().rsqrt()

    def objective(network):
        return Outcome((network(x).squeeze() - y).square().mean() / (2 * noise_sigma**2), None)

    options = {"prior_sigma": prior_sigma, "hess_init": 2.0, "beta2": 0.995}
    method, net, optimiser = make(nn.Linear(3, 1, bias=False), lr=0.1, share=1 / len(x), **options)
    sigmas, means = [], []
    for part in range(16):
        train(method, net, optimiser, objective, 100)
        found = method.mean_module(net).weight.detach()[0].clone()
        if part >= 6:
            means.append(found)
            sigmas.append(net.sigmas()["weight"][0])
    torch.testing.assert_close(torch.stack(sigmas).mean(0), best, rtol=0.1, atol=0)
    error = (torch.stack(means).mean(0) - mean).abs()
    assert bool((error < 0.5 * precision.inverse().diag().sqrt()).all()), error


def test_sigma_comes_from_the_hessian_and_the_prior(make_model, objective):
    method, net, optimiser = make(make_model(), prior_sigma=0.4, hess_init=0.7)
    ess = 1 / KL_SCALE.epoch
    assert optimiser.param_groups[0]["ess"] == ess
    method.draw(net, 0)
    expected = 1 / math.sqrt(ess * 0.7 + 1 / 0.4**2)
    for sigma in net.sigmas().values():
        torch.testing.assert_close(sigma, torch.full_like(sigma, expected), rtol=1e-5, atol=0)
    train(method, net, optimiser, objective, 5)
    (group,) = optimiser.param_groups
    sizes = [net.module.get_parameter(name).numel() for name in net.names]
    for seen in (lambda: method.draw(net, 0), net.state_dict):
        group["hess"].mul_(1.5)
        hessians = dict(zip(net.names, group["hess"].split(sizes), strict=True))
        seen()
        for name, sigma in net.sigmas().items():
            expected = (ess * hessians[name] + 1 / 0.4**2).rsqrt().view(sigma.shape)
            torch.testing.assert_close(sigma, expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("deterministic", [(), ("output.bias",)])
def test_all_trained_weights_are_learnt_and_frozen_ones_left_out(
    make_model, objective, words, deterministic
):
    method, net, optimiser = make(make_model(), deterministic=deterministic)
    trained = {name for name, weight in net.module.named_parameters() if weight.requires_grad}
    assert set(net.names) == trained - set(deterministic)
    learnt = [net.module.get_parameter(name) for name in (*net.names, *deterministic)]
    (group,) = optimiser.param_groups
    assert [id(p) for p in group["params"]] == [id(weight) for weight in learnt]
    assert not any(rho.requires_grad for rho in net.rho.parameters())
    before = net.module.output.bias.detach().clone()
    train(method, net, optimiser, objective, 2)
    assert not torch.equal(net.module.output.bias, before)
    sizes = [weight.numel() for weight in learnt]
    hessians = group["hess"].split(sizes)
    method.draw(net, 0)
    for sigma, hessian in zip(net.sigmas().values(), hessians, strict=False):
        delta = KL_SCALE.epoch / IvonOptions().prior_sigma ** 2
        expected = ((hessian + delta) / KL_SCALE.epoch).rsqrt().view(sigma.shape)
        torch.testing.assert_close(sigma, expected, rtol=1e-4, atol=0)


def test_the_gradient_is_that_at_a_draw_and_the_step_starts_from_the_mean(make_model, objective):
    """The first step in closed form: momentum is the gradient itself once it is debiased."""
    lr, beta2, hess, sigma_p = 0.05, 0.9, 0.5, 0.8
    method, net, optimiser = make(
        make_model(), lr, hess_init=hess, beta2=beta2, prior_sigma=sigma_p
    )
    before = [weight.detach().clone() for weight in optimiser.param_groups[0]["params"]]
    loss = method.loss(net, objective, KL_SCALE)
    drawn = [weight.detach().clone() for weight in optimiser.param_groups[0]["params"]]
    loss.total.backward()
    gradients = [weight.grad.clone() for weight in optimiser.param_groups[0]["params"]]
    reference = make_model()
    trained = [weight for weight in reference.parameters() if weight.requires_grad]
    for weight, value in zip(trained, drawn, strict=True):
        weight.data.copy_(value)
    expected = objective(reference.train())[0]
    assert loss.total.item() == pytest.approx(expected.item())
    optimiser.step()
    ess = 1 / KL_SCALE.epoch
    delta = 1 / (ess * sigma_p**2)
    for after, mean, draw, g in zip(
        optimiser.param_groups[0]["params"], before, drawn, gradients, strict=True
    ):
        noise = draw - mean
        assert noise.abs().max().item() > 0
        f = noise * g * (hess + delta) * ess
        h = (
            beta2 * hess
            + (1 - beta2) * f
            + 0.5 * (1 - beta2) ** 2 * (hess - f) ** 2 / (hess + delta)
        )
        step = lr * (hess + delta) * (g + delta * mean) / (h + delta)
        torch.testing.assert_close(after.detach(), mean - step, rtol=1e-4, atol=1e-6)


def test_the_draws_of_training_have_their_sigma(make_model, objective):
    method, net, optimiser = make(nn.Linear(300, 300), hess_init=0.5, prior_sigma=1.0)
    mean = torch.cat([p.detach().flatten() for p in optimiser.param_groups[0]["params"]])

    def nothing(network):
        return Outcome(network(torch.ones(300)).sum(), None)

    method.loss(net, nothing, KL_SCALE)
    drawn = torch.cat([p.detach().flatten() for p in optimiser.param_groups[0]["params"]])
    noise = (drawn - mean) * math.sqrt(0.5 / KL_SCALE.epoch + 1)
    assert abs(noise.mean().item()) < 4 / math.sqrt(len(noise))
    assert abs(noise.square().mean().item() - 1) < 4 * math.sqrt(2 / len(noise))


def test_a_step_that_never_comes_leaves_the_mean(make_model, objective, words):
    method, net, optimiser = make(make_model())
    train(method, net, optimiser, objective, 2)
    mean = {name: value.clone() for name, value in net.state_dict().items()}
    expected = method.mean(net)(words)[0]

    method.loss(net, objective, KL_SCALE)  # and no step
    assert not torch.equal(net.module.output.bias, mean["loc.output.bias"])
    for name, value in net.state_dict().items():
        assert torch.equal(value, mean[name]), name
    method.loss(net, objective, KL_SCALE)
    assert torch.equal(method.mean(net)(words)[0], expected)
    method.loss(net, objective, KL_SCALE)
    method.draw(net, 1)
    assert torch.equal(net.module.output.bias, mean["loc.output.bias"])
    # Two draws in a row are both around the mean.
    method.loss(net, objective, KL_SCALE)
    method.loss(net, objective, KL_SCALE)
    assert torch.equal(method.mean(net)(words)[0], expected)

    def broken(network):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        method.loss(net, broken, KL_SCALE)
    assert torch.equal(net.module.output.bias, mean["loc.output.bias"])


def test_a_weight_that_the_loss_does_not_touch_has_gradient_zero():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = nn.Linear(2, 1), nn.Linear(2, 1)

        def forward(self, x):
            return self.used(x)

    method, net, optimiser = make(Half(), prior_sigma=1.0)
    before = net.module.idle.weight.detach().clone()
    train(method, net, optimiser, lambda run: Outcome(run(torch.ones(4, 2)).sum(), None), 1)
    # The prior alone acts on it; see the update of the authors' optimiser.
    delta = KL_SCALE.epoch
    pulled = before * (1 - 0.05 * (1 + delta) * delta / (optimiser_hessian(optimiser)[-1] + delta))
    torch.testing.assert_close(method.mean_module(net).idle.weight.detach(), pulled)


def optimiser_hessian(optimiser):
    return optimiser.param_groups[0]["hess"]


@pytest.mark.parametrize("stop", [1, 3])
def test_resumed_it_goes_on_identically(stop, make_model, objective):
    method, net, optimiser = make(make_model())
    train(method, net, optimiser, objective, stop)
    saved = copy.deepcopy((net.state_dict(), optimiser.state_dict(), method.streams.state()))
    expected = train(method, net, optimiser, objective, 4)

    again, other, resumed = make(make_model())
    other.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    again.streams.restore(saved[2])
    assert resumed.current_step == stop
    assert train(again, other, resumed, objective, 4) == expected
    for name, value in net.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_a_network_that_was_loaded_predicts_as_it_did(make_model, objective, words):
    method, net, optimiser = make(make_model())
    train(method, net, optimiser, objective, 3)
    state = net.state_dict()
    expected = [method.mean(net)(words)[0], method.draw(net, 7)(words)[0]]
    assert not torch.equal(*expected)
    other = METHODS["ivon"](IvonOptions(), RandomStreams(0))
    loaded = other.build(make_model(), Hints())
    loaded.load_state_dict(state)
    assert torch.equal(other.mean(loaded)(words)[0], expected[0])
    assert torch.equal(other.draw(loaded, 7)(words)[0], expected[1])


def test_without_an_optimiser_there_is_no_loss(make_model, objective):
    method = METHODS["ivon"](IvonOptions(), RandomStreams(0))
    with pytest.raises(ConfigError, match="optimiser"):
        method.loss(method.build(make_model(), Hints()), objective, KL_SCALE)


def test_a_missing_package_is_told_by_the_name_of_the_extra(make_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "ivon", None)
    module._ivon_type.cache_clear()
    method = METHODS["ivon"](IvonOptions(), RandomStreams(0))
    with pytest.raises(MissingExtraError, match=r"bayesrnn\[ivon\]"):
        method.build(make_model(), Hints())


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"prior_sigma": 0.0}, "--prior-sigma"),
        ({"hess_init": -1.0}, "--hess-init"),
        ({"beta1": 1.0}, "--beta1"),
        ({"beta2": -0.1}, "--beta2"),
        ({"clip_radius": 0.0}, "--clip-radius"),
    ],
)
def test_options_that_cannot_work_are_refused(options, word):
    with pytest.raises(ConfigError, match=word):
        IvonOptions(**options)
