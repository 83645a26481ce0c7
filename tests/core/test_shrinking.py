"""Sharpening that shrinks: against torch.distributions, closed forms and finite differences."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.priors import Gaussian
from bayesrnn.core.sharpening import Sharpening
from bayesrnn.core.shrinking import shrink
from bayesrnn.core.weights import Weights
from bayesrnn.core.widths import WidthSGD
from bayesrnn.errors import ConfigError

from .sharpened import data, generator, model, nll, noise_of

pytestmark = pytest.mark.usefixtures("seeded")

SHRINKING = Sharpening(0.3, form="shrinking")


def double(*shape):
    return torch.randn(*shape, dtype=torch.double)


def literal(phi, g, h, tau, eps):
    """theta, KL and the slope of the noise, written out with torch.distributions."""
    s = tau.exp()
    v = 1 / (1 / s + h)
    q, p = Normal(phi - v * g, v.sqrt()), Normal(phi, s.sqrt())
    return phi - v * g + v.sqrt() * eps, kl_divergence(q, p).sum(), (v.sqrt() * eps * g).sum()


def test_the_draw_and_its_kl_are_those_of_torch_distributions():
    phi, g, h, tau = double(4, 3), 3 * double(4, 3), double(4, 3).square(), double(())
    (theta,), kl, slope = shrink([phi], [g], [h], [tau], 7)
    v = 1 / (1 / tau.exp() + h)
    eps = (theta - phi + v * g) / v.sqrt()
    expected = literal(phi, g, h, tau, eps)
    torch.testing.assert_close(kl, expected[1])
    torch.testing.assert_close(slope, expected[2])
    many = shrink([torch.zeros(40_000).double()], [g.new_zeros(())], [h[0, 0]], [tau], 3)[0][0]
    z = many / v[0, 0].sqrt()
    assert abs(z.mean().item()) < 5 / math.sqrt(40_000)
    assert abs(z.square().mean().item() - 1) < 5 * math.sqrt(2 / 40_000)


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_gradients_by_everything_against_finite_differences(weight):
    """Of loss + w KL, but for the first-order part of the noise, whose mean is 0.

    That part is left out of the gradients by sigma0 and the curvature.
    """
    inputs = [double(4, 3), 2 * double(4, 3), double(4, 3).square() + 0.1, double(()) - 1]
    target = double(4, 3)
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    (theta,), kl, _ = shrink(*([leaf] for leaf in leaves), 7)
    (2 * (theta - target).pow(4).sum() + weight * kl).backward()
    v = 1 / (1 / inputs[3].exp() + inputs[2])
    eps = ((theta - inputs[0] + v * inputs[1]) / v.sqrt()).detach()

    def value(place, moved):
        now = [moved if number == place else tensor for number, tensor in enumerate(inputs)]
        theta, kl, _ = literal(*now, eps)
        slope = literal(inputs[0], inputs[1], *now[2:], eps)[2] if place > 1 else 0.0
        return 2 * (theta - target).pow(4).sum() + weight * (kl - slope)

    for place, leaf in enumerate(leaves):
        direction = torch.randn_like(leaf)
        up, down = (value(place, inputs[place] + step * direction) for step in (1e-6, -1e-6))
        found = (leaf.grad * direction).sum()
        torch.testing.assert_close(found, (up - down) / 2e-6, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("order", ["first", "second"])
@pytest.mark.parametrize("clip", [None, 1.5])
def test_gradients_of_a_network(order, clip):
    """Against autograd through the formulas, from the loss down to loc, rho and tau."""
    net, (x, y) = model(sharpening=SHRINKING, deterministic="output.bias"), data()
    net.shrinking.observe([torch.randn_like(t) for t in net.to_sharpen(net.mean()).values()])
    second, noise = order == "second", net.noise(5)
    phi = net.sample(noise=noise)
    theta = net.sharpen(
        phi, nll(net(x, weights=phi), y), generator=generator(), clip=clip, second_order=second
    )
    assert set(theta) == {*phi, "output.bias"}
    # (The moving mean has seen g by now: the curvature of both is the same.)
    found = nll(net(x, weights=theta), y) + 0.6 * theta.minibatch_kl + 0.1 * theta.kl
    found.backward()
    parameters = [p for p in net.parameters() if p.grad is not None]
    gradients = [p.grad.clone() for p in parameters]
    assert {id(p) for p in net.tau_parameters()} < {id(p) for p in parameters}

    phi = net.sample(noise=noise)
    tensors = net.to_sharpen(phi)
    g = torch.autograd.grad(
        nll(net(x, weights=phi), y),
        list(tensors.values()),
        create_graph=second,
        materialize_grads=True,
    )
    hs = net.shrinking.curvatures(g)
    if clip is not None:
        norm = sum(each.square().sum() for each in g).sqrt()
        g = [each * torch.clamp(clip / norm, max=1) for each in g]
    moved, kl, slope = {}, 0.0, 0.0
    eps = noise_of([tensor.detach() for tensor in tensors.values()])
    for (name, tensor), one, h, e in zip(tensors.items(), g, hs, eps, strict=True):
        tau = net.shrinking.tau.get_parameter(name)
        moved[name], more, _ = literal(tensor, one, h, tau, e)
        kl = kl + more
        slope = slope + literal(tensor.detach(), one.detach(), h, tau, e)[2]
    theta = Weights({**phi, **moved}, minibatch_kl=kl)
    expected = nll(net(x, weights=theta), y) + 0.6 * (kl - slope) + 0.1 * phi.kl
    torch.testing.assert_close(found, expected + 0.6 * slope)
    for one, other in zip(gradients, torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(one, other)


def test_of_a_quadratic_loss_the_bound_is_the_exact_marginal_likelihood():
    count, phi, target, h, s = 50_000, 0.4, 1.1, 3.0, 0.5
    phis = torch.full((count,), phi).double()
    thetas, kl, slope = shrink(
        [phis], [h * (phis - target)], [torch.full_like(phis, h)], [phis.new_tensor(s).log()], 1
    )
    after = h * (thetas[0] - target).square() / 2
    # -log of the integral of exp(-loss) N(phi, s), by completing the square.
    exact = (math.log1p(s * h) + h * (phi - target) ** 2 / (1 + s * h)) / 2
    error = after.std().item() / math.sqrt(count)
    assert (after.mean() + kl / count).item() == pytest.approx(exact, abs=4 * error)
    # Without its first-order part the estimate is the same, with a fraction of the variance.
    assert ((after.sum() - slope + kl) / count).item() == pytest.approx(exact, abs=2 * error)


class Drifting(nn.Module):
    """A number for each of many series; minibatches are noisy means of it."""

    def __init__(self, series):
        super().__init__()
        self.level = nn.Parameter(torch.zeros(series, dtype=torch.double))

    def forward(self, means, count):
        return count * (means - self.level).square().sum() / 2


@pytest.mark.parametrize("drift", [0.0, 0.1])
def test_sigma0_learns_how_far_a_minibatch_is_from_the_mean(drift):
    """Where nothing drifts, sigma0 falls towards 0 and nothing is gained.

    Else it becomes the drift, and the gain is what exact inference gains.
    """
    series, count = 400, 100
    net = Bayesian(
        Drifting(series), Gaussian(), deterministic=(), sigma_init=0.01, sharpening=SHRINKING
    )
    source = generator()
    optimiser = torch.optim.Adam(net.tau_parameters(), lr=0.1)
    gains = []
    for step in range(400):
        spread = math.sqrt(drift**2 + 1 / count)
        means = spread * torch.randn(series, generator=source, dtype=torch.double)
        phi = net.mean()
        before = net(means, count, weights=phi)
        curvature = {"level": torch.full_like(means, count)}
        theta = net.sharpen(phi, before, generator=source, curvature=curvature)
        bound = net(means, count, weights=theta) + theta.minibatch_kl
        gains.append((before - bound + theta.noise_slope).item() / series)
        optimiser.zero_grad()
        bound.backward()
        optimiser.step()
        if step == 250:
            optimiser.param_groups[0]["lr"] = 0.01
    sigma0 = net.tau_parameters()[0].exp().sqrt().item()
    gain = sum(gains[-100:]) / 100
    # Each series: log N(mean; 0, d^2 + 1/n) against log N(mean; 0, 1/n), in the mean.
    ratio = 1 + drift**2 * count
    best = (ratio - 1 - math.log(ratio)) / 2
    assert gain == pytest.approx(best, abs=0.012)
    if drift:
        assert sigma0 == pytest.approx(drift, rel=0.1)
    else:
        assert sigma0 < 0.03


def test_the_moving_mean_learns_in_training_alone_and_is_kept():
    net, (x, y) = model(sharpening=SHRINKING), data()

    def gradient():
        loss = nll(net(x, weights=net.mean()), y)
        return torch.autograd.grad(loss, list(net.mean().values()), materialize_grads=True)

    expected = [g.square() for g in gradient()]
    for mode in (False, True, True):
        net.train(mode)
        mean = net.mean()
        net.sharpen(mean, nll(net(x, weights=mean), y))
        assert (net.shrinking.seen.item() > 0) == mode
    for found, wanted in zip(net.shrinking.curvatures(gradient()), expected, strict=True):
        torch.testing.assert_close(found, wanted)
    twin = model(sharpening=SHRINKING)
    twin.load_state_dict(net.state_dict())
    net.eval(), twin.eval()
    draws = [
        each.sharpen(each.mean(), nll(each(x, weights=each.mean()), y), generator=generator())
        for each in (net, twin)
    ]
    for name, tensor in draws[0].items():
        assert torch.equal(tensor, draws[1][name])


def test_only_the_tensors_that_are_named_move():
    sharpening = Sharpening(0.3, form="shrinking", names="*bias*")
    net, (x, y) = model(sharpening=sharpening, deterministic="output.bias"), data()
    phi = net.sample()
    theta = net.sharpen(phi, nll(net(x, weights=phi), y))
    moved = {name for name in theta if name not in phi or not torch.equal(phi[name], theta[name])}
    assert moved == {"lstm.bias_ih_l0", "lstm.bias_hh_l0", "output.bias"}
    assert len(net.tau_parameters()) == 3
    (nll(net(x, weights=theta), y) + theta.minibatch_kl).backward()
    WidthSGD(net.tau_parameters()).step()


def test_rows_of_padding_stay():
    module = nn.Sequential(nn.Embedding(5, 2, padding_idx=1), nn.Linear(2, 2)).double()
    net = Bayesian(module, Gaussian(), 0.1, sharpening=SHRINKING)
    phi = net.sample()
    loss = net(torch.arange(5), weights=phi).square().sum()
    theta = net.sharpen(phi, loss)
    assert torch.equal(theta["0.weight"][1], phi["0.weight"][1])
    assert (theta["0.weight"][0] != phi["0.weight"][0]).all()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"form": "other"}, "form is 'other'"),
        ({"form": "shrinking", "eta_init": 0.1}, "literal form"),
        ({"names": ("a",)}, "shrinking form"),
        ({"form": "shrinking", "momentum": 0.0}, "momentum is 0"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused(wrong, words):
    with pytest.raises(ConfigError, match=words):
        Sharpening(**wrong)


def test_mistakes_are_named():
    (x, y), net = data(), model(sharpening=SHRINKING)
    mean = net.mean()

    def sharpen(net, **options):
        return net.sharpen(mean, nll(net(x, weights=mean), y), **options)

    with pytest.raises(ConfigError, match="fits no parameter"):
        model(sharpening=Sharpening(form="shrinking", names=("nothing",)))
    with pytest.raises(ConfigError, match="given for nothing"):
        sharpen(net, curvature={"nothing": y})
    with pytest.raises(ConfigError, match="has the shape"):
        sharpen(net, curvature={"output.bias": y})
    with pytest.raises(ConfigError, match="belongs to the shrinking form"):
        sharpen(model(), curvature={})
    with pytest.raises(ConfigError, match="shrinking form alone"):
        sharpen(model()).noise_slope  # noqa: B018
    theta = sharpen(net)
    with pytest.raises(ConfigError, match="sharpened already"):
        net.sharpen(theta, nll(net(x, weights=theta), y))
