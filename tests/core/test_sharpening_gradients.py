"""The gradients of posterior sharpening, against finite differences and autograd."""

import pytest
import torch
from torch import nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.kernel import compiled as kernel
from bayesrnn.core.kernel.compiled import load_kernel
from bayesrnn.core.norms import total_norm
from bayesrnn.core.priors import Gaussian, ScaleMixture
from bayesrnn.core.sharpening import Sharpening
from bayesrnn.core.weights import Weights

from .sharpened import DTYPES, data, generator, model, nll, noise_of

pytestmark = pytest.mark.usefixtures("seeded")


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
    assert theta.squared_gradients is None
    (nll(net(x, weights=theta), y) + theta.minibatch_kl + theta.kl / 7).backward()
    parameters = kinds(net)
    norm = total_norm([p.grad for kind in ("loc", "rho") for p in parameters[kind]])
    assert sum(theta.squared_gradients) == pytest.approx(norm**2, rel=1e-4)
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
def test_without_the_compiled_loops_all_is_the_same(monkeypatch):
    net, (x, y) = model(torch.float32), data(torch.float32)
    noise = net.noise(5)
    results = []
    for load in (load_kernel, lambda: None):
        monkeypatch.setattr(kernel, "load_kernel", load)
        net.zero_grad()
        phi = net.sample(noise=noise)
        theta = net.sharpen(phi, nll(net(x, weights=phi), y), generator=generator())
        theta.minibatch_kl.backward()
        values = [theta.minibatch_kl, *theta.values(), *(e.grad for e in net.eta_parameters())]
        results.append([value.detach() for value in values])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
