"""Posterior sharpening against hand-worked numbers and torch.distributions; and clipping."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.norms import total_norm
from bayesrnn.core.priors import Gaussian
from bayesrnn.core.sharpening import Sharpening

from .sharpened import DTYPES, data, generator, model, nll, noise_of, set_eta

pytestmark = pytest.mark.usefixtures("seeded")


def line(dtype, outputs=1):
    """y = w x for x = 1, 2 and y = 3, 5 under Gaussian noise of width 1/2; one w per output."""
    net = Bayesian(
        nn.Linear(1, outputs, bias=False).to(dtype),
        Gaussian(),
        0.2,
        sharpening=Sharpening(sigma0=0.1, eta_init=0.01),
    )
    x = torch.tensor([[1.0], [2.0]], dtype=dtype)
    y = torch.tensor([[3.0], [5.0]], dtype=dtype)

    def loss(weights):
        log_prob = Normal(net(x, weights=weights), y.new_tensor(0.5)).log_prob(y)
        return -log_prob.sum()

    return net, loss


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_weight_by_hand(dtype):
    net, loss = line(dtype)
    with torch.no_grad():
        net.module.weight.fill_(2.0)
    mean = net.mean()
    sharpened = net.sharpen(mean, loss(mean), generator=generator())
    # g = -sum x (y - w x) / 0.5^2 = -(1 * 1 + 2 * 1) / 0.25 = -12, so w moves by 0.01 * 12 = 0.12,
    # at a price of 0.12^2 / (2 * 0.1^2) = 0.72 nats.
    (eps,) = noise_of([mean["weight"]])
    torch.testing.assert_close(sharpened["weight"].detach(), 2.12 + 0.1 * eps)
    assert sharpened.minibatch_kl.item() == pytest.approx(0.72, rel=1e-6)
    assert sharpened.minibatch_kl.dtype is dtype
    # With the loss 7 theta + 3 KL: d/dphi = 7; d/deta = g (3 eta g / sigma0^2 - 7)
    # = -12 (3 * 0.01 * -12 / 0.01 - 7) = -12 * -43 = 516.
    (7 * sharpened["weight"].sum() + 3 * sharpened.minibatch_kl).backward()
    assert net.module.weight.grad.item() == pytest.approx(7.0)
    (eta,) = net.eta_parameters()
    assert eta.grad.item() == pytest.approx(516.0, rel=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sharpened_draws_scatter_about_the_shifted_draw(dtype):
    count = 40_000
    net, loss = line(dtype, outputs=count)
    phi = net.sample()
    theta = net.sharpen(phi, loss(phi))
    w = phi["weight"].detach()
    g = -((3 - w) + 2 * (5 - 2 * w)) / 0.25
    z = ((theta["weight"].detach() - (w - 0.01 * g)) / 0.1).double()
    # Five standard errors of each moment.
    assert abs(z.mean().item()) < 5 / math.sqrt(count)
    assert abs(z.square().mean().item() - 1) < 5 * math.sqrt(2 / count)
    assert abs(z.pow(4).mean().item() - 3) < 5 * math.sqrt(96 / count)
    together = torch.stack([z.flatten(), phi.noise.tensors[0].flatten().double()])
    assert abs(torch.corrcoef(together)[0, 1].item()) < 5 / math.sqrt(count)
    expected = (0.01 * g.double()).square().sum().item() / (2 * 0.1**2)
    assert theta.minibatch_kl.item() == pytest.approx(expected, rel=1e-5)


def test_the_kl_is_that_of_torch_distributions():
    net, (x, y) = model(), data()
    phi = net.sample()
    g = torch.autograd.grad(nll(net(x, weights=phi), y), list(phi.values()), materialize_grads=True)

    def flat(tensors):
        return torch.cat([tensor.detach().flatten() for tensor in tensors])

    start, shift = flat(phi.values()), flat(g) * flat(net.eta_parameters())
    q, p = (Normal(loc, torch.full_like(loc, 0.3)) for loc in (start - shift, start))
    exact = kl_divergence(q, p).sum()
    source, ratios = generator(), []
    for _ in range(400):
        theta = net.sharpen(phi, nll(net(x, weights=phi), y), generator=source)
        torch.testing.assert_close(theta.minibatch_kl.detach(), exact, rtol=1e-12, atol=0)
        value = flat(theta.values())
        ratios.append((q.log_prob(value) - p.log_prob(value)).sum())
    ratios = torch.stack(ratios)
    assert abs(ratios.mean() - exact) < 4 * ratios.std() / math.sqrt(400)
    # The log-ratio of two Gaussians of one width has the variance 2 KL.
    assert ratios.var().item() == pytest.approx(2 * exact.item(), rel=5 * math.sqrt(2 / 400))


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_eta_only_noise_is_added(dtype):
    sigma0 = 0.25  # a power of two: no rounding, in whatever order
    net, (x, y) = model(dtype, sharpening=Sharpening(sigma0)), data(dtype)
    set_eta(net, 0.0)
    phi = net.sample()
    theta = net.sharpen(phi, nll(net(x, weights=phi), y), generator=generator())
    for name, eps in zip(phi, noise_of(list(phi.values())), strict=True):
        assert torch.equal(theta[name], phi[name] + sigma0 * eps)
    assert theta.minibatch_kl.item() == 0
    (nll(net(x, weights=theta), y) + theta.minibatch_kl).backward()
    assert (net.eta.get_parameter("lstm.weight_hh_l0").grad != 0).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_noise_it_is_a_step_of_gradient_descent(dtype):
    net, (x, y) = model(dtype, sharpening=Sharpening(1e-12)), data(dtype)
    phi = net.sample()
    twin = copy.deepcopy(net.module)
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            parameter.copy_(phi[name])
    set_eta(net, 0.03)
    theta = net.sharpen(phi, nll(net(x, weights=phi), y))
    nll(twin(x), y).backward()
    torch.optim.SGD(twin.parameters(), lr=0.03).step()
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(theta[name], parameter)


def test_the_best_step_is_the_variance_of_the_sharpened_weights():
    # For a linear loss c'theta all is exact: the bound is eta^2 |c|^2 / (2 sigma0^2) - eta |c|^2
    # above that of the draw, lowest at eta = sigma0^2, where it is -sigma0^2 |c|^2 / 2.
    sigma0 = 0.05
    net = Bayesian(nn.Linear(4, 3).double(), Gaussian(), 0.2, sharpening=Sharpening(sigma0))
    assert all((eta == sigma0**2).all() for eta in net.eta_parameters())
    slopes = {name: torch.randn_like(phi) for name, phi in net.mean().items()}
    squares = sum(slope.square().sum() for slope in slopes.values()).item()

    def bound(eta):
        set_eta(net, eta)
        phi = net.sample(noise=net.noise(1))
        loss = sum((phi[name] * slope).sum() for name, slope in slopes.items())
        theta = net.sharpen(phi, loss, generator=generator())
        after = sum((theta[name] * slope).sum() for name, slope in slopes.items())
        return (after + theta.minibatch_kl).item()

    grid = [sigma0**2 * step for step in (-1, 0, 0.25, 0.5, 0.9, 1, 1.1, 1.5, 2, 3)]
    bounds = [bound(eta) for eta in grid]
    assert grid[bounds.index(min(bounds))] == sigma0**2
    assert bounds[5] - bounds[1] == pytest.approx(-(sigma0**2) * squares / 2, rel=1e-9)
    assert bounds[8] == pytest.approx(bounds[1], rel=1e-9)  # twice the step gains nothing


# Clipping


@pytest.mark.parametrize("order", ["first", "second"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_clipping_limits_the_norm_of_the_gradient(dtype, order):
    sharpening = Sharpening(1e-4)
    net, (x, y) = model(dtype, sharpening=sharpening), data(dtype)
    set_eta(net, 1.0)
    phi = net.sample()
    g = torch.autograd.grad(nll(net(x, weights=phi), y), list(phi.values()), materialize_grads=True)
    norm = total_norm(g)

    def shift(clip):
        loss = nll(net(x, weights=phi), y)
        options = {"clip": clip, "second_order": order == "second"}
        theta = net.sharpen(phi, loss, generator=generator(), **options)
        noise = noise_of(list(phi.values()))
        moves = [phi[n] + 1e-4 * eps - theta[n] for n, eps in zip(phi, noise, strict=True)]
        return [move.detach() for move in moves], theta.minibatch_kl.item()

    free, free_kl = shift(None)
    assert total_norm(free) == pytest.approx(norm, rel=1e-5)
    assert free_kl == pytest.approx(norm**2 / (2 * 1e-8), rel=1e-5)
    clipped, kl = shift(0.25 * norm)
    assert total_norm(clipped) == pytest.approx(0.25 * norm, rel=1e-5)
    # The KL is that of what was really shifted, and the direction stays.
    assert kl == pytest.approx(free_kl / 16, rel=1e-5)
    for short, long in zip(clipped, free, strict=True):
        torch.testing.assert_close(short, 0.25 * long, rtol=1e-4, atol=1e-6)
    unchanged, kl = shift(1.01 * norm)
    assert kl == free_kl
    assert all(torch.equal(one, other) for one, other in zip(unchanged, free, strict=True))


def test_a_gradient_of_zero_can_be_clipped():
    net = Bayesian(nn.Linear(3, 2).double(), sigma_init=0.2, sharpening=True)
    for second_order in (False, True):
        phi = net.sample()
        loss = 0 * net(torch.ones(1, 3).double(), weights=phi).square().sum()
        theta = net.sharpen(phi, loss, clip=1.0, second_order=second_order)
        assert theta.minibatch_kl.item() == 0
        (theta["weight"].sum() + theta.minibatch_kl).backward()
        assert all(parameter.grad.isfinite().all() for parameter in net.parameters())
