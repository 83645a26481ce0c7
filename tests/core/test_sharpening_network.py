"""Posterior sharpening of a network: what its weights, state and graph are."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

import bayesrnn
from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.priors import Gaussian
from bayesrnn.core.sharpening import Sharpening
from bayesrnn.errors import ConfigError

from .sharpened import DTYPES, Model, data, generator, model, nll, noise_of, set_eta

pytestmark = pytest.mark.usefixtures("seeded")


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.output = nn.Linear(4, 7)
        self.output.weight = self.embedding.weight

    def forward(self, words):
        return self.output(self.embedding(words).tanh())


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
    assert theta.squared_gradients is None


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
