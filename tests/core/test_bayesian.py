"""Bayesian around modules of all kinds. Recurrent ones have a file of their own."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import absolute
from bayesrnn.core.priors import Gaussian, ScaleMixture

from .tied import Tied, gaussian_kl

pytestmark = pytest.mark.usefixtures("seeded")


def plain_with(module, weights):
    """A copy of a module whose own parameters are set to `weights`."""
    twin = copy.deepcopy(module)
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            parameter.copy_(weights[name])
    return twin


MODULES = {
    "linear": (lambda: nn.Linear(3, 2), lambda: (torch.randn(5, 3),)),
    "stack": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
        lambda: (torch.randn(5, 3),),
    ),
    "convolution": (lambda: nn.Conv2d(2, 3, 3), lambda: (torch.randn(4, 2, 6, 6),)),
    "transposed": (lambda: nn.ConvTranspose1d(2, 3, 3), lambda: (torch.randn(4, 2, 6),)),
    "embedding": (lambda: nn.Embedding(9, 3), lambda: (torch.randint(9, (4, 5)),)),
    "bilinear": (lambda: nn.Bilinear(2, 3, 4), lambda: (torch.randn(5, 2), torch.randn(5, 3))),
    "attention": (
        lambda: nn.MultiheadAttention(4, 2),
        lambda: tuple(torch.randn(3, 5, 4) for _ in range(3)),
    ),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0),
        lambda: (torch.randn(3, 5, 4),),
    ),
    "normalised": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)),
        lambda: (torch.randn(5, 3),),
    ),
    "tied": (Tied, lambda: (torch.randint(7, (4, 5)),)),
    "weight norm": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)),
        lambda: (torch.randn(5, 3),),
    ),
}


@pytest.fixture(params=MODULES)
def module_and_inputs(request):
    make, inputs = MODULES[request.param]
    return make(), inputs()


def test_a_draw_runs_as_a_plain_module_with_these_weights(module_and_inputs):
    module, inputs = module_and_inputs
    net = Bayesian(module, sigma_init=0.2)
    weights = net.sample()
    expected = plain_with(module, weights)(*inputs)
    torch.testing.assert_close(net(*inputs, weights=weights), expected, rtol=0, atol=0)


def test_gradients_are_those_of_the_plain_module_by_the_chain_rule(module_and_inputs):
    module, inputs = module_and_inputs
    net = Bayesian(module, Gaussian(0.5), 0.2).double()
    inputs = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    weights = net.sample()
    twin = plain_with(module, weights)

    def loss_of(output):
        output = output[0] if isinstance(output, tuple) else output
        return (output.sin() * torch.linspace(0.5, 2, output.numel()).view_as(output)).sum()

    (loss_of(net(*inputs, weights=weights)) + 0.3 * weights.kl).backward()
    loss_of(twin(*inputs)).backward()
    for eps, name in zip(weights.noise.tensors, net.names, strict=True):
        loc, rho = net.module.get_parameter(name), net.rho.get_parameter(name)
        by_weight = twin.get_parameter(name).grad
        kl = gaussian_kl(net, name, 0.5)
        (kl_by_loc,) = torch.autograd.grad(kl, loc)
        sigma = net.sigmas()[name]
        # d KL / d sigma = sigma / prior^2 - 1 / sigma; d sigma / d rho = sigmoid(rho)
        by_sigma = by_weight * eps + 0.3 * (sigma / 0.25 - 1 / sigma)
        torch.testing.assert_close(loc.grad, by_weight + 0.3 * kl_by_loc, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(rho.grad, by_sigma * rho.sigmoid(), rtol=1e-9, atol=1e-11)


def test_in_evaluation_it_is_the_module_itself(module_and_inputs):
    module, inputs = module_and_inputs
    twin = copy.deepcopy(module).eval()
    net = Bayesian(module, sigma_init=0.2).eval()
    expected = twin(*inputs)
    torch.testing.assert_close(net(*inputs), expected, rtol=0, atol=0)
    torch.testing.assert_close(net(*inputs, weights=net.mean()), expected, rtol=0, atol=0)


def test_without_spread_it_is_exactly_the_plain_network(module_and_inputs):
    module, inputs = module_and_inputs
    with torch.no_grad():
        for parameter in module.parameters():
            parameter[parameter == 0] = 0.1  # some biases start at zero: 0 + 1e-30 is not 0
    twin = copy.deepcopy(module)
    net = Bayesian(module, sigma_init=1e-30, min_sigma=0.0)
    for _ in range(3):
        torch.testing.assert_close(net(*inputs), twin(*inputs), rtol=0, atol=0)


def test_training_draws_afresh_and_given_weights_hold():
    net = Bayesian(nn.Linear(3, 2), sigma_init=0.2)
    x = torch.randn(5, 3)
    assert not torch.equal(net(x), net(x))
    weights = net.sample()
    assert torch.equal(net(x, weights=weights), net(x, weights=weights))
    output = net(x, weights=weights)
    assert torch.equal(net.eval()(x, weights=weights), output)
    assert not torch.equal(net(x), output)


def test_the_spread_of_draws_is_sigma_about_the_mean():
    net = Bayesian(nn.Linear(3, 2), sigma_init=absolute(0.1, 0.4))
    draws = torch.stack([net.sample()["weight"].detach() for _ in range(500)])
    error = net.sigmas()["weight"] / 500**0.5
    assert ((draws.mean(0) - net.module.weight).abs() < 5 * error).all()
    # The standard error of a standard deviation is sigma / sqrt(2 n).
    assert ((draws.std(0) - net.sigmas()["weight"]).abs() < 5 * error / 2**0.5).all()


def test_the_generator_decides_and_the_global_one_is_left_alone():
    net = Bayesian(nn.Linear(30, 20))
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(1)
    first, second = net.sample(generator), net.sample(generator)
    again = net.sample(torch.Generator().manual_seed(1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first["weight"], again["weight"])
    assert torch.equal(first["bias"], again["bias"])
    assert not torch.equal(first["weight"], second["weight"])
    by_seed = net.sample(noise=net.noise(first.noise.seed))
    assert torch.equal(by_seed["weight"], first["weight"])


def test_initial_spread_comes_from_the_generator():
    def rho():
        generator = torch.Generator().manual_seed(1)
        return Bayesian(nn.Linear(3, 2), generator=generator).rho.get_parameter("weight")

    before = torch.get_rng_state()
    nn.Linear(3, 2)
    after_module = torch.get_rng_state()
    torch.set_rng_state(before)
    first = rho()
    assert torch.equal(torch.get_rng_state(), after_module)
    assert torch.equal(rho(), first)


def test_a_mirrored_draw_is_the_mirror_image_about_the_mean_of_now():
    net = Bayesian(nn.Linear(3, 2).double(), sigma_init=0.3)
    weights = net.sample()
    mirror = net.sample(noise=weights.noise.mirrored())
    torch.testing.assert_close(weights["weight"] + mirror["weight"], 2 * net.module.weight)
    with torch.no_grad():
        net.module.weight += 1.0
        net.rho.get_parameter("weight").fill_(-1.0)
    moved = net.sample(noise=weights.noise.mirrored())
    sigma = F.softplus(torch.tensor(-1.0, dtype=torch.float64)) + net.min_sigma
    expected = net.module.weight - sigma * weights.noise.tensors[0]
    torch.testing.assert_close(moved["weight"], expected)
    # And back: the mirror's mirror is the draw.
    again = net.sample(noise=moved.noise.mirrored())
    torch.testing.assert_close(again["weight"] + moved["weight"], 2 * net.module.weight)


def test_kl_is_the_sum_over_all_weights_each_once():
    net = Bayesian(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).double(), Gaussian(0.7), 0.2)
    expected = sum(gaussian_kl(net, name, 0.7) for name in net.names)
    torch.testing.assert_close(net.sample().kl, expected.detach(), rtol=1e-12, atol=0)
    assert len(net.names) == 4


# The module stays what it was


def test_several_arguments_and_keywords():
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, first, second, *, power=1, offset=None):
            result = self.scale * first + second**power
            return {"out": result if offset is None else result + offset, "power": power}

    net = Bayesian(Mixer(), sigma_init=0.2)
    first, second = torch.randn(3), torch.randn(3)
    weights = net.sample()
    assert weights["scale"].shape == ()
    found = net(first, second, weights=weights, power=2, offset=1.0)
    torch.testing.assert_close(found["out"], weights["scale"] * first + second**2 + 1.0)
    assert found["power"] == 2
    found = net.eval()(first, second=second, power=3)
    torch.testing.assert_close(found["out"], 2.0 * first + second**3)
    found["out"].sum().backward()
    assert net.module.scale.grad.shape == ()


def test_the_wrapped_module_is_used_as_it_is():
    module = nn.Linear(3, 2)
    before = dict(vars(module))
    parameters = dict(module.named_parameters())
    values = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    net = Bayesian(module, sigma_init=0.2)
    (net(torch.randn(5, 3)).sum() + net.kl()).backward()
    assert net.module is module
    assert type(module) is nn.Linear
    assert vars(module).keys() == before.keys()
    assert "forward" not in vars(module)
    for name, parameter in module.named_parameters():
        assert parameter is parameters[name]
        assert torch.equal(parameter, values[name])
        assert isinstance(parameter, nn.Parameter)


def test_hooks_of_the_module_run():
    module, seen = nn.Linear(3, 2), []
    module.register_forward_hook(lambda *args: seen.append("hook"))
    net = Bayesian(module, sigma_init=0.2)
    net(torch.randn(1, 3))
    net.eval()(torch.randn(1, 3))
    assert seen == ["hook", "hook"]


def test_an_error_inside_the_module_leaves_its_parameters_in_place():
    module = nn.Linear(3, 2)
    weight = module.weight
    net = Bayesian(module, sigma_init=0.2)
    with pytest.raises(RuntimeError):
        net(torch.randn(5, 4))
    assert module.weight is weight


def test_buffers_are_kept_and_updated():
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    net = Bayesian(module, sigma_init=0.2)
    x = torch.randn(50, 3)
    weights = net.sample()
    net(x, weights=weights)
    hidden = F.linear(x, weights["0.weight"], weights["0.bias"])
    torch.testing.assert_close(module[1].running_mean, 0.1 * hidden.mean(0).detach())
    assert module[1].num_batches_tracked == 1
    state = net.state_dict()
    assert {"loc.1.running_mean", "loc.1.running_var", "loc.1.num_batches_tracked"} <= set(state)
    other = Bayesian(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    other.load_state_dict(state)
    assert torch.equal(other.eval()(x), net.eval()(x))


def test_state_round_trip(module_and_inputs):
    module, _ = module_and_inputs
    net = Bayesian(module, sigma_init=absolute(0.1, 0.2))
    state = {name: value.clone() for name, value in net.state_dict().items()}
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1.0)
    net.load_state_dict(state, strict=True)
    for name, value in net.state_dict().items():
        assert torch.equal(value, state[name])
    own = {f"loc.{name}" for name, _ in module.named_parameters()}
    spread = {f"rho.{name}" for name in net.names}
    assert own | spread <= set(state)
    assert {name for name, _ in net.named_parameters()} == own | spread


def test_double_precision_and_back():
    net = Bayesian(nn.Linear(3, 2), sigma_init=0.2).to(torch.float64)
    weights = net.sample()
    assert {weights["weight"].dtype, weights.kl.dtype} == {torch.float64}
    assert net.sigmas()["bias"].dtype == torch.float64
    (net(torch.randn(5, 3).double(), weights=weights).sum() + weights.kl).backward()
    assert all(parameter.grad.dtype == torch.float64 for parameter in net.parameters())
    assert net.float().sample()["weight"].dtype == torch.float32


def test_a_copy_is_whole_and_independent():
    net = Bayesian(Tied(), sigma_init=0.2)
    twin = copy.deepcopy(net)
    words = torch.arange(7)
    drawn = [each.sample(noise=each.noise(1))["hidden.weight"] for each in (net, twin)]
    assert torch.equal(*drawn)
    before = net.eval()(words)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    assert torch.equal(net(words), before)
    assert not torch.equal(twin.eval()(words), before)
    assert twin.module.output.weight is twin.module.embedding.weight
    twin.load_state_dict(net.state_dict(), strict=True)
    assert set(twin.state_dict()) == set(net.state_dict())
    assert torch.equal(twin(words), before)


def test_weights_drawn_without_gradient():
    net = Bayesian(nn.Linear(3, 2), sigma_init=0.2)
    with torch.no_grad():
        weights = net.sample()
    assert not weights["weight"].requires_grad
    assert not weights.kl.requires_grad


def test_the_mean_is_differentiable_and_free():
    net = Bayesian(nn.Linear(3, 2), sigma_init=0.2)
    mean = net.mean()
    assert mean["weight"] is net.module.weight
    net(torch.ones(1, 3), weights=mean).sum().backward()
    torch.testing.assert_close(net.module.weight.grad, torch.ones(2, 3))
    assert net.rho.get_parameter("weight").grad is None


def test_any_optimiser_sees_means_and_spreads():
    net = Bayesian(nn.Linear(3, 2), sigma_init=0.2)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    weights = net.sample()
    (net(torch.randn(5, 3), weights=weights).square().sum() + weights.kl).backward()
    optimiser.step()
    for old, new in zip(before, net.parameters(), strict=True):
        assert not torch.equal(old, new)


def test_printing_names_the_priors():
    text = str(Bayesian(nn.Linear(3, 2), {"weight": Gaussian(0.5), "*": ScaleMixture()}))
    assert "Gaussian(sigma=0.5)" in text
    assert "ScaleMixture" in text


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(3, 3),
        Tied,
        lambda: nn.LSTM(3, 3),
    ],
    ids=["linear", "tied", "lstm"],
)
def test_nothing_of_a_draw_stays_with_the_network(make):
    net = Bayesian(make(), sigma_init=0.2)
    x = torch.arange(5) if isinstance(net.module, Tied) else torch.randn(4, 2, 3)
    gc.collect()
    gc.disable()
    try:
        for backward in (True, False, True):
            weights = net.sample()
            held = [StorageWeakRef(weight.untyped_storage()) for weight in weights.values()]
            output = net(x, weights=weights)
            output = output[0] if isinstance(output, tuple) else output
            loss = output.sum() + weights.kl
            if backward:
                loss.backward()
            del weights, output, loss
            assert all(reference.expired() for reference in held)
    finally:
        gc.enable()
