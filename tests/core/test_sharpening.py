"""Posterior sharpening: against hand-worked numbers, finite differences and torch.distributions."""

import copy
import gc
import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.multiprocessing.reductions import StorageWeakRef

import bayesrnn
from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import absolute
from bayesrnn.core.kernel import compiled as kernel
from bayesrnn.core.kernel.compiled import load_kernel
from bayesrnn.core.noise import draw_seed, normal_noise
from bayesrnn.core.norms import total_norm
from bayesrnn.core.priors import Gaussian, ScaleMixture
from bayesrnn.core.sharpening import Sharpening
from bayesrnn.core.weights import Weights
from bayesrnn.errors import ConfigError

DTYPES = [torch.float32, torch.float64]  # the compiled loops, and torch operations


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def generator(seed=3):
    return torch.Generator().manual_seed(seed)


def noise_of(tensors, seed=3):
    """The noise that `sharpen(..., generator=generator(seed))` takes for weights like these."""
    like = [tensor.detach() if tensor.dim() else tensor.detach()[None] for tensor in tensors]
    noise = normal_noise(like, draw_seed(generator(seed))).tensors
    return [eps.reshape(tensor.shape) for eps, tensor in zip(noise, tensors, strict=True)]


def set_eta(net, value):
    with torch.no_grad():
        for eta in net.eta_parameters():
            eta.fill_(value)


class Model(nn.Module):
    """A recurrent network with a scale without axes, and a weight that no input reaches."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4)
        self.output = nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.tensor(1.3))
        self.unused = nn.Parameter(torch.randn(3))

    def forward(self, x):
        return self.output(self.lstm(x)[0]) * self.scale


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.output = nn.Linear(4, 7)
        self.output.weight = self.embedding.weight

    def forward(self, words):
        return self.output(self.embedding(words).tanh())


def model(dtype=torch.float64, prior=None, sharpening=Sharpening(0.3), **options):  # noqa: B008
    module = Model().to(dtype)
    prior = Gaussian(0.7) if prior is None else prior
    net = Bayesian(module, prior, absolute(0.1, 0.3), sharpening=sharpening, **options)
    with torch.no_grad():
        for eta in net.eta_parameters():  # of either sign
            eta.copy_(0.05 * torch.randn_like(eta))
    return net


def data(dtype=torch.float64):
    return torch.randn(5, 2, 3, dtype=dtype), torch.randn(5, 2, 2, dtype=dtype)


def nll(output, target):
    return 2 * (output - target).square().sum()


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


# Known answers


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


# Gradients


def kinds(net):
    return {
        "loc": [net.module.get_parameter(name) for name in net.names],
        "rho": [net.rho.get_parameter(name) for name in net.names],
        "eta": net.eta_parameters(),
    }


def literal(net, x, y, noise, *, order, clip=None, gradient=None):
    """The loss with sharpening written out in torch operations; also the gradient it used.

    `gradient` holds g fixed at what it is given.
    """
    phi = net.sample(noise=noise)
    values = list(phi.values())
    if gradient is None:
        gradient = torch.autograd.grad(
            nll(net(x, weights=phi), y),
            values,
            create_graph=order == "second",
            materialize_grads=True,
        )
        if clip is not None:
            norm = sum(g.square().sum() for g in gradient).sqrt()
            gradient = [g * torch.clamp(clip / norm, max=1) for g in gradient]
    theta, kl, sigma0 = {}, 0.0, net.sharpening.sigma0
    for name, g, eps in zip(phi, gradient, noise_of(values), strict=True):
        shift = net.eta.get_parameter(name) * g
        theta[name] = phi[name] - shift + sigma0 * eps
        kl = kl + shift.square().sum() / (2 * sigma0**2)
    loss = nll(net(x, weights=Weights(theta)), y) + 0.6 * kl + 0.1 * phi.kl
    return loss, gradient


def sharpened_loss(net, x, y, noise, *, order, clip=None):
    phi = net.sample(noise=noise)
    theta = net.sharpen(
        phi,
        nll(net(x, weights=phi), y),
        generator=generator(),
        clip=clip,
        second_order=order == "second",
    )
    return nll(net(x, weights=theta), y) + 0.6 * theta.minibatch_kl + 0.1 * theta.kl


@pytest.mark.parametrize("clip", [None, 1.5])
@pytest.mark.parametrize("order", ["first", "second"])
def test_gradients_against_finite_differences(order, clip):
    # In first order g is a constant, so the function to differentiate has it fixed; in second order
    # g is computed anew wherever phi moves to.
    net, (x, y) = model(), data()
    noise = net.noise(5)
    loss, g = literal(net, x, y, noise, order="first", clip=clip)
    if clip is not None:
        assert total_norm(g) == pytest.approx(clip)
    found = sharpened_loss(net, x, y, noise, order=order, clip=clip)
    torch.testing.assert_close(found, loss, rtol=1e-12, atol=0)
    found.backward()

    def value():
        fixed = g if order == "first" else None
        return literal(net, x, y, noise, order="first", clip=clip, gradient=fixed)[0].item()

    step = 1e-5
    for parameters in kinds(net).values():
        for _ in range(3):
            directions = [torch.randn_like(parameter) for parameter in parameters]
            expected = sum(
                (d * p.grad).sum() for d, p in zip(directions, parameters, strict=True)
            ).item()
            values = []
            for sign in (1, -2, 1):
                with torch.no_grad():
                    for parameter, direction in zip(parameters, directions, strict=True):
                        parameter.add_(direction, alpha=sign * step)
                values.append(value())
            slope = (values[0] - values[1]) / (2 * step)
            assert slope == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("clip", [None, 1.5])
@pytest.mark.parametrize("order", ["first", "second"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("prior", [Gaussian(0.7), ScaleMixture(0.3, 0.5, 0.2)], ids=repr)
def test_gradients_against_autograd_through_the_formulas(prior, dtype, order, clip):
    net, (x, y) = model(dtype, prior, deterministic=("output.bias",)), data(dtype)
    noise = net.noise(5)
    gradients = []
    for function in (sharpened_loss, lambda *args, **kwargs: literal(*args, **kwargs)[0]):
        net.zero_grad()
        loss = function(net, x, y, noise, order=order, clip=clip)
        loss.backward()
        gradients.append([loss.detach(), *(parameter.grad for parameter in net.parameters())])
    tolerance = {"rtol": 1e-10, "atol": 1e-11}
    if dtype is torch.float32:
        tolerance = {"rtol": 1e-4, "atol": 1e-3}  # of gradients that reach hundreds
    torch.testing.assert_close(*gradients, **tolerance)


def test_first_and_second_order_differ_by_the_way_through_g():
    net, (x, y) = model(), data()
    gradients = {}
    for order in ("first", "second"):
        net.zero_grad()
        sharpened_loss(net, x, y, net.noise(5), order=order).backward()
        gradients[order] = {
            kind: [p.grad for p in parameters] for kind, parameters in kinds(net).items()
        }
    first, second = gradients["first"], gradients["second"]
    torch.testing.assert_close(first["eta"], second["eta"], rtol=1e-10, atol=1e-12)
    for kind in ("loc", "rho"):
        difference = total_norm([a - b for a, b in zip(first[kind], second[kind], strict=True)])
        assert difference > 0.01 * total_norm(first[kind])


def test_the_norm_of_the_gradient_leaves_eta_out():
    net, (x, y) = model(torch.float32), data(torch.float32)
    phi = net.sample()
    theta = net.sharpen(phi, nll(net(x, weights=phi), y))
    assert theta.squared_gradient is None
    (nll(net(x, weights=theta), y) + theta.minibatch_kl + theta.kl / 7).backward()
    parameters = kinds(net)
    norm = total_norm([p.grad for kind in ("loc", "rho") for p in parameters[kind]])
    assert theta.squared_gradient == pytest.approx(norm**2, rel=1e-4)
    assert total_norm([p.grad for p in parameters["eta"]]) > 0


def test_eta_may_be_frozen():
    net, (x, y) = model(), data()
    net.eta.get_parameter("output.weight").requires_grad_(False)
    sharpened_loss(net, x, y, net.noise(5), order="first").backward()
    assert net.eta.get_parameter("output.weight").grad is None
    assert net.eta.get_parameter("output.bias").grad is not None


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_in_any_layout(dtype):
    # A sum hands back one number expanded to all weights, a transposed use a transposed gradient.
    net = Bayesian(nn.Linear(3, 2).to(dtype), Gaussian(), 0.2, sharpening=Sharpening(0.1, 0.5))
    slopes = torch.randn(3, 2, dtype=dtype)
    phi = net.sample()
    loss = phi["bias"].sum() + (phi["weight"].t() * slopes).sum()
    theta = net.sharpen(phi, loss, generator=generator())
    noise = dict(zip(phi, noise_of(list(phi.values())), strict=True))
    expected = phi["weight"] - 0.5 * slopes.t() + 0.1 * noise["weight"]
    torch.testing.assert_close(theta["weight"], expected)
    torch.testing.assert_close(theta["bias"], phi["bias"] - 0.5 + 0.1 * noise["bias"])
    (theta["bias"].sum() + (theta["weight"].t() * slopes).sum()).backward()
    eta = net.eta
    torch.testing.assert_close(eta.get_parameter("weight").grad, -slopes.t().square())
    torch.testing.assert_close(eta.get_parameter("bias").grad, -torch.ones(2, dtype=dtype))
    torch.testing.assert_close(net.module.weight.grad, slopes.t().contiguous())


@pytest.mark.skipif(load_kernel() is None, reason="no C compiler here")
def test_without_the_compiled_loops_the_law_is_the_same(monkeypatch):
    # Other noise, but the same shift, and so the same KL and the same gradient by eta of the KL.
    net, (x, y) = model(torch.float32), data(torch.float32)
    noise = net.noise(5)
    results = []
    for load in (load_kernel, lambda: None):
        monkeypatch.setattr(kernel, "load_kernel", load)
        net.zero_grad()
        phi = net.sample(noise=noise)
        theta = net.sharpen(phi, nll(net(x, weights=phi), y), generator=generator())
        eps = noise_of(list(phi.values()))
        shifts = [theta[n] - 0.3 * e for n, e in zip(theta, eps, strict=True)]
        theta.minibatch_kl.backward()
        kl = theta.minibatch_kl.detach()
        results.append([kl, *(s.detach() for s in shifts), *(e.grad for e in net.eta_parameters())])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


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


# The network and its weights


def test_what_a_draw_cost_stays():
    net, (x, y) = model(), data()
    phi = net.sample()
    assert phi.minibatch_kl.item() == 0
    assert phi.minibatch_kl.dtype is torch.float64
    assert not phi.is_sharpened
    theta = net.sharpen(phi, nll(net(x, weights=phi), y))
    assert theta.kl is phi.kl
    assert theta.noise is phi.noise
    assert theta.is_sharpened
    assert list(theta) == list(phi)
    assert [t.shape for t in theta.values()] == [p.shape for p in phi.values()]


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_that_the_loss_does_not_use_only_get_noise(dtype):
    net, (x, y) = model(dtype), data(dtype)
    phi = net.sample()
    theta = net.sharpen(phi, nll(net(x, weights=phi), y), generator=generator())
    eps = dict(zip(phi, noise_of(list(phi.values())), strict=True))["unused"]
    torch.testing.assert_close(theta["unused"], phi["unused"] + 0.3 * eps)


def test_the_generator_decides_and_the_global_one_is_left_alone():
    net, (x, y) = model(torch.float32), data(torch.float32)
    phi = net.sample()
    before = torch.get_rng_state()
    source = generator()
    first, second, again = (
        net.sharpen(phi, nll(net(x, weights=phi), y), generator=each)["output.weight"]
        for each in (source, source, generator())
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    # Without one, torch's own gives noise that is fresh each time.
    loss = nll(net(x, weights=phi), y)
    third = net.sharpen(phi, loss)["output.weight"]
    fourth = net.sharpen(phi, nll(net(x, weights=phi), y))["output.weight"]
    assert not torch.equal(third, fourth)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_mean_can_be_sharpened(dtype):
    net, (x, y) = model(dtype), data(dtype)
    net.eval()
    mean = net.mean()
    theta = net.sharpen(mean, nll(net(x, weights=mean), y), generator=generator())
    twin = copy.deepcopy(net.module)
    nll(twin(x), y).backward()
    noise = noise_of(list(mean.values()))
    kl = 0.0
    for name, eps in zip(mean, noise, strict=True):
        parameter = twin.get_parameter(name)
        g = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        shift = net.eta.get_parameter(name) * g
        kl += shift.square().sum().item() / (2 * 0.3**2)
        expected = parameter - shift + 0.3 * eps
        torch.testing.assert_close(theta[name].detach(), expected.detach(), rtol=1e-4, atol=1e-5)
    assert theta.minibatch_kl.item() == pytest.approx(kl, rel=1e-4)
    with pytest.raises(ConfigError, match="posterior mean"):
        _ = theta.kl
    # The module's own run is the mean's too.
    same = net.sharpen(mean, nll(net(x), y), generator=generator())
    assert torch.equal(same["output.weight"], theta["output.weight"])
    theta["output.weight"].sum().backward()
    torch.testing.assert_close(net.module.output.weight.grad, torch.ones(2, 4, dtype=dtype))
    assert theta.squared_gradient is None


@pytest.mark.parametrize("second_order", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_without_gradient(dtype, second_order):
    net, (x, y) = model(dtype), data(dtype)
    options = {"second_order": second_order, "clip": 1.0}
    for phi in (net.sample(), net.mean()):
        loss = nll(net(x, weights=phi), y)
        with torch.no_grad():
            theta = net.sharpen(phi, loss, generator=generator(), **options)
            output = net(x, weights=theta)
        assert not any(tensor.requires_grad for tensor in theta.values())
        assert not theta.minibatch_kl.requires_grad
        assert not output.requires_grad
        loss = nll(net(x, weights=phi), y)
        expected = net.sharpen(phi, loss, generator=generator(), **options)
        assert all(torch.equal(theta[name], expected[name]) for name in theta)
        assert expected["output.weight"].requires_grad


def test_first_order_frees_the_first_pass_and_second_order_keeps_it():
    net, (x, y) = model(), data()
    phi = net.sample()
    loss = nll(net(x, weights=phi), y)
    net.sharpen(phi, loss)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    phi = net.sample()
    loss = nll(net(x, weights=phi), y)
    net.sharpen(phi, loss, second_order=True)
    loss.backward()


@pytest.mark.parametrize("second_order", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_of_a_sharpened_draw_outlives_it(dtype, second_order):
    net, (x, y) = model(dtype), data(dtype)
    gc.collect()
    gc.disable()
    try:
        for backward in (True, False):
            phi = net.sample()
            theta = net.sharpen(phi, nll(net(x, weights=phi), y), second_order=second_order)
            held = [StorageWeakRef(t.untyped_storage()) for t in (*phi.values(), *theta.values())]
            loss = nll(net(x, weights=theta), y) + theta.minibatch_kl + theta.kl
            if backward:
                loss.backward()
            assert not any(reference.expired() for reference in held)
            del phi, theta, loss
            assert all(reference.expired() for reference in held)
    finally:
        gc.enable()


def test_eta_is_part_of_the_state():
    net, other = model(), model()
    state = net.state_dict()
    names = {f"eta.{name}" for name in net.names}
    assert {name for name in state if name.startswith("eta.")} == names
    for name in net.names:
        assert state[f"eta.{name}"].shape == net.module.get_parameter(name).shape
    assert other.load_state_dict(state, strict=True) == ([], [])
    for one, another in zip(net.eta_parameters(), other.eta_parameters(), strict=True):
        assert torch.equal(one, another)
        assert isinstance(one, nn.Parameter)
    assert {id(eta) for eta in net.eta_parameters()} <= {id(p) for p in net.parameters()}
    twin = copy.deepcopy(net)
    set_eta(twin, 7.0)
    assert torch.equal(net.eta.get_parameter("scale"), state["eta.scale"])
    with pytest.raises(RuntimeError, match=r"eta\.scale"):
        net.load_state_dict(Bayesian(Model().double()).state_dict())


@pytest.mark.parametrize("sharpening", [None, False])
def test_without_sharpening_there_is_no_eta(sharpening):
    net = Bayesian(nn.Linear(3, 2), sharpening=sharpening)
    assert set(net.state_dict()) == {"loc.weight", "loc.bias", "rho.weight", "rho.bias"}
    assert net.eta_parameters() == []
    assert net.sharpening is None
    phi = net.sample()
    with pytest.raises(ConfigError, match="sharpening=True"):
        net.sharpen(phi, net(torch.ones(1, 3), weights=phi).sum())


def test_deterministic_weights_have_no_eta():
    net = Bayesian(nn.Linear(3, 2), deterministic=("bias",), sharpening=True)
    assert len(net.eta_parameters()) == 1
    assert "eta.bias" not in net.state_dict()


@pytest.mark.parametrize("dtype", DTYPES)
def test_tied_weights_have_one_eta_and_the_gradient_of_both_uses(dtype):
    net = Bayesian(Tied().to(dtype), Gaussian(), 0.2, sharpening=Sharpening(0.1, 0.3))
    names = {name for name in net.state_dict() if name.startswith("eta.")}
    assert names == {"eta.embedding.weight", "eta.output.bias"}
    words = torch.tensor([0, 3, 3, 5])
    slopes = torch.randn(4, 7, dtype=dtype)
    phi = net.sample()
    loss = (net(words, weights=phi) * slopes).sum()
    theta = net.sharpen(phi, loss, generator=generator())
    e = phi["embedding.weight"].detach()
    by_output = slopes.t() @ e[words].tanh()
    by_input = torch.zeros_like(e).index_add(0, words, (slopes @ e) * (1 - e[words].tanh() ** 2))
    eps = noise_of(list(phi.values()))[0]
    expected = e - 0.3 * (by_output + by_input) + 0.1 * eps
    torch.testing.assert_close(theta["embedding.weight"].detach(), expected)
    other = Bayesian(Tied().to(dtype), sharpening=True)
    assert other.load_state_dict(net.state_dict(), strict=True) == ([], [])


def test_eta_moves_with_the_network():
    net = Bayesian(nn.Linear(3, 2), sigma_init=0.2, sharpening=True).to(torch.float64)
    assert {eta.dtype for eta in net.eta_parameters()} == {torch.float64}
    phi = net.sample()
    theta = net.sharpen(phi, net(torch.ones(1, 3).double(), weights=phi).square().sum())
    assert {theta["weight"].dtype, theta.minibatch_kl.dtype} == {torch.float64}


def test_weights_in_another_memory_layout():
    module = nn.Conv2d(4, 3, 2).to(memory_format=torch.channels_last)
    net = Bayesian(module, sigma_init=0.2, sharpening=Sharpening(0.1, 0.5))
    x = torch.randn(2, 4, 5, 5)
    phi = net.sample()
    (g, _) = torch.autograd.grad(net(x, weights=phi).square().sum(), list(phi.values()))
    theta = net.sharpen(phi, net(x, weights=phi).square().sum(), generator=generator())
    eps = noise_of(list(phi.values()))[0]
    expected = phi["weight"] - 0.5 * g + 0.1 * eps
    torch.testing.assert_close(theta["weight"], expected, rtol=1e-4, atol=1e-4)
    net(x, weights=theta).square().sum().backward()
    assert net.eta.get_parameter("weight").grad.shape == (3, 4, 2, 2)


def test_eta_is_learnt_from_nothing():
    net, (x, y) = model(sharpening=Sharpening(0.1)), data()
    set_eta(net, 0.0)
    optimiser = torch.optim.Adam(net.eta_parameters(), lr=5e-4)

    def bound(source):
        phi = net.sample(source)
        theta = net.sharpen(phi, nll(net(x, weights=phi), y), generator=source)
        return nll(net(x, weights=theta), y) + theta.minibatch_kl

    def average():
        source = generator(1)
        return sum(bound(source).item() for _ in range(30)) / 30

    before, source = average(), generator(2)
    for _ in range(40):
        optimiser.zero_grad()
        bound(source).backward()
        optimiser.step()
    assert average() < before - 1


def test_printing_names_the_sharpening():
    assert "sharpening=Sharpening(sigma0=0.05" in str(
        Bayesian(nn.Linear(3, 2), sharpening=Sharpening(0.05))
    )
    assert "sharpening" not in str(Bayesian(nn.Linear(3, 2)))
    assert bayesrnn.Sharpening is Sharpening
