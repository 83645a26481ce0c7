"""The draw, the KL divergence and their gradients, against autograd through torch.distributions."""

import gc
import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.distributions import (
    Categorical,
    Independent,
    Laplace,
    MixtureSameFamily,
    Normal,
    kl_divergence,
)
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import absolute
from bayesrnn.core.kernel.reference import inverse_softplus, softplus
from bayesrnn.core.noise import normal_noise
from bayesrnn.core.posterior import PriorTerm, draw
from bayesrnn.core.priors import Gaussian, Prior, ScaleMixture, ScoredPrior


def exactly(*values):
    """Plain numbers would become single precision inside torch.distributions."""
    return torch.tensor(values, dtype=torch.float64).squeeze()


FLOOR = 0.03
PI, SIGMA1, SIGMA2 = 0.3, 0.5, 0.3

#: Every kind of weight, and the axis along which the weights that leave one unit lie.
AXES = {
    "scalar": 0,
    "vector": 0,
    "linear.weight": 0,
    "linear.bias": 0,
    "conv.weight": 0,
    "conv.bias": 0,
    "embedding.weight": 1,
    "bag.weight": 1,
    "up.weight": 1,
    "up.bias": 0,
    "lstm.weight_ih_l0": 0,
    "lstm.weight_hh_l0": 0,
    "lstm.bias_ih_l0": 0,
    "lstm.bias_hh_l0": 0,
}


class Everything(nn.Module):
    def __init__(self):
        super().__init__()
        self.scalar = nn.Parameter(torch.tensor(0.3))
        self.vector = nn.Parameter(torch.randn(5) / 2)
        self.linear = nn.Linear(3, 2)
        self.conv = nn.Conv2d(3, 2, (2, 1))
        self.embedding = nn.Embedding(6, 3)
        self.bag = nn.EmbeddingBag(4, 2)
        self.up = nn.ConvTranspose2d(3, 2, (1, 2))
        self.lstm = nn.LSTM(2, 2)


def everything(prior):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net = Bayesian(Everything().double(), prior, absolute(0.1, 0.4), min_sigma=FLOOR)
    assert set(net.names) == set(AXES)
    return net


def exact_kl(loc, sigma, theta, axis):
    return kl_divergence(Normal(loc, sigma), Normal(exactly(0.0), exactly(SIGMA1))).sum()


def sampled(log_prior):
    """log q(theta) - log p(theta), with q of torch.distributions."""
    return lambda loc, sigma, theta, axis: (
        Normal(loc, sigma).log_prob(theta).sum() - log_prior(theta, axis)
    )


def per_weight(theta, axis):
    shares = Categorical(exactly(PI, 1 - PI))
    parts = Normal(exactly(0.0, 0.0), exactly(SIGMA1, SIGMA2))
    return MixtureSameFamily(shares, parts).log_prob(theta).sum()


def of_groups(members):
    """The mixture of each group, written out: log(pi prod N(.; sigma1) + ... sigma2)."""
    total = 0.0
    for group in members:
        wide = math.log(PI) + sum(
            Normal(exactly(0.0), exactly(SIGMA1)).log_prob(value) for value in group
        )
        narrow = math.log(1 - PI) + sum(
            Normal(exactly(0.0), exactly(SIGMA2)).log_prob(value) for value in group
        )
        total = total + torch.log(wide.exp() + narrow.exp())
    return total


def per_row(theta, axis):
    theta = theta.reshape(1) if theta.dim() == 0 else theta
    others = [range(n) for place, n in enumerate(theta.shape) if place != axis]
    return of_groups(
        [theta[(*index[:axis], i, *index[axis:])] for i in range(theta.shape[axis])]
        for index in itertools.product(*others)
    )


def per_tensor(theta, axis):
    return of_groups([list(theta.flatten())])


def laplace(theta, axis):
    return Laplace(exactly(0.0), exactly(0.4)).log_prob(theta).sum()


class LaplacePrior(Prior):
    def log_prob(self, weight, axis):
        return Laplace(exactly(0.0), exactly(0.4)).log_prob(weight).sum()


class ScoredLaplacePrior(ScoredPrior, LaplacePrior):
    def score(self, weight, axis):
        return -weight.sign() / 0.4


CASES = {
    "gaussian": (Gaussian(SIGMA1), exact_kl),
    "weight": (ScaleMixture(PI, SIGMA1, SIGMA2, "weight"), sampled(per_weight)),
    "row": (ScaleMixture(PI, SIGMA1, SIGMA2, "row"), sampled(per_row)),
    "tensor": (ScaleMixture(PI, SIGMA1, SIGMA2, "tensor"), sampled(per_tensor)),
    "laplace without score": (LaplacePrior(), sampled(laplace)),
    "laplace with score": (ScoredLaplacePrior(), sampled(laplace)),
}


def data_loss(weights):
    """Some nonlinear function in which every weight plays a part of its own."""
    return sum(
        ((weight + 0.1 * number).sin() * torch.arange(1, weight.numel() + 1).view_as(weight)).sum()
        for number, weight in enumerate(weights.values())
    )


def ours(net, noise, kl_weight):
    net.zero_grad()
    weights = net.sample(noise=noise)
    (data_loss(weights) + kl_weight * weights.kl).backward()
    gradients = {name: value.grad for name, value in net.named_parameters()}
    return {name: weight.detach() for name, weight in weights.items()}, weights.kl, gradients


def by_autograd(net, noise, kl_weight, kl_of):
    leaves = {name: value.detach().clone() for name, value in net.named_parameters()}
    for leaf in leaves.values():
        leaf.requires_grad_()
    thetas, kl = {}, 0.0
    for name, eps in zip(net.names, noise.tensors, strict=True):
        loc, rho = leaves[f"loc.{name}"], leaves[f"rho.{name}"]
        sigma = F.softplus(rho) + FLOOR
        thetas[name] = loc + sigma * (noise.sign * eps.view_as(loc))
        kl = kl + kl_of(loc, sigma, thetas[name], AXES[name])
    (data_loss(thetas) + kl_weight * kl).backward()
    gradients = {name: leaf.grad for name, leaf in leaves.items()}
    return {name: theta.detach() for name, theta in thetas.items()}, kl, gradients


@pytest.mark.parametrize("case", CASES)
def test_draw_kl_and_gradients_against_autograd(case, set_block_size):
    prior, kl_of = CASES[case]
    net = everything(prior)
    fresh = net.noise(seed=3)
    settings = [(None, fresh, 0.7), (1, fresh.mirrored(), 0.7), (4, fresh.mirrored(), 0.0)]
    for block_size, noise, kl_weight in settings:
        if block_size is not None:
            set_block_size(block_size)
        found = ours(net, noise, kl_weight)
        expected = by_autograd(net, noise, kl_weight, kl_of)
        torch.testing.assert_close(found[0], expected[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(found[1], expected[1], rtol=1e-12, atol=0)
        torch.testing.assert_close(found[2], expected[2], rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("case", CASES)
def test_gradients_against_finite_differences(case, set_block_size):
    set_block_size(4)
    prior, _ = CASES[case]
    generator = torch.Generator().manual_seed(0)
    loc, rho = (torch.randn(3, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    noise = normal_noise([loc], 1)

    def both(loc, rho):
        (weight,), kl, _ = draw([loc], [rho], [PriorTerm(prior, 0)], noise, FLOOR)
        return weight, kl

    assert torch.autograd.gradcheck(both, (loc.requires_grad_(), rho.requires_grad_()))


@pytest.mark.parametrize("case", CASES)
def test_only_the_kl_or_only_the_data_may_be_in_the_loss(case):
    net = everything(CASES[case][0])
    noise = net.noise(seed=3)
    parameters = list(net.parameters())

    def gradients(make_loss):
        return torch.autograd.grad(make_loss(net.sample(noise=noise)), parameters)

    data = gradients(data_loss)
    kl = gradients(lambda weights: weights.kl)
    both = gradients(lambda weights: data_loss(weights) + 0.5 * weights.kl)
    torch.testing.assert_close(both, tuple(d + 0.5 * k for d, k in zip(data, kl, strict=True)))
    assert all(gradient.abs().sum() > 0 for gradient in kl)


@pytest.mark.parametrize("case", CASES)
def test_gradients_add_up_and_a_kept_graph_can_be_walked_again(case):
    net = everything(CASES[case][0])
    weights = net.sample(noise=net.noise(1))
    loss = data_loss(weights) + weights.kl
    loss.backward(retain_graph=True)
    once = [parameter.grad.clone() for parameter in net.parameters()]
    loss.backward()
    torch.testing.assert_close([p.grad for p in net.parameters()], [2 * g for g in once])


def test_a_prior_with_and_without_its_score_is_the_same():
    noise = everything(LaplacePrior()).noise(seed=5).mirrored()
    slow = ours(everything(LaplacePrior()), noise, 0.3)
    fast = ours(everything(ScoredLaplacePrior()), noise, 0.3)
    torch.testing.assert_close(slow, fast, rtol=1e-13, atol=1e-13)


def test_priors_of_all_kinds_in_one_network():
    priors = {
        "linear.*": CASES["gaussian"],
        "embedding.*": CASES["tensor"],
        "vector": CASES["laplace without score"],
        "*.bias": CASES["weight"],
        "*": CASES["row"],
    }
    net = everything({pattern: prior for pattern, (prior, _) in priors.items()})
    noise = net.noise(seed=2)
    kl_by_name = dict.fromkeys(AXES, CASES["row"][1]) | {
        "linear.weight": CASES["gaussian"][1],
        "linear.bias": CASES["gaussian"][1],
        "embedding.weight": CASES["tensor"][1],
        "vector": CASES["laplace without score"][1],
        "conv.bias": CASES["weight"][1],
        "up.bias": CASES["weight"][1],
    }
    in_order = iter(net.names)
    expected = by_autograd(net, noise, 0.7, lambda *args: kl_by_name[next(in_order)](*args))
    torch.testing.assert_close(ours(net, noise, 0.7), expected, rtol=1e-10, atol=1e-11)


def test_the_recipes_prior_at_the_size_of_a_layer():
    # Groups of hundreds of weights under the recipe's widths, several true blocks.
    shape, recipe = (520, 300), ScaleMixture()
    generator = torch.Generator().manual_seed(0)
    loc = (torch.randn(shape, generator=generator) / 17).double().requires_grad_()
    rho = inverse_softplus(torch.full(shape, 0.06).double()).requires_grad_()
    noise = normal_noise([loc], 1)
    (weight,), kl, _ = draw([loc], [rho], [PriorTerm(recipe, 0)], noise, 1e-5)
    found = torch.autograd.grad(kl, (loc, rho))

    sigma = F.softplus(rho) + 1e-5
    theta = loc + sigma * noise.tensors[0]
    torch.testing.assert_close(weight, theta)
    widths = exactly(recipe.sigma1, recipe.sigma2)[:, None].expand(2, shape[0])
    shares = Categorical(exactly(recipe.pi, 1 - recipe.pi))
    mixture = MixtureSameFamily(shares, Independent(Normal(torch.zeros_like(widths), widths), 1))
    expected = Normal(loc, sigma).log_prob(theta).sum() - mixture.log_prob(theta.t()).sum()
    torch.testing.assert_close(kl, expected)
    torch.testing.assert_close(found, torch.autograd.grad(expected, (loc, rho)))


def test_single_precision_agrees_with_double():
    noise = everything(ScaleMixture()).noise(3)
    double = ours(everything(ScaleMixture()), noise, 0.5)
    net = everything(ScaleMixture()).float()
    noise32 = replace(noise, tensors=tuple(tensor.float() for tensor in noise.tensors))
    single = ours(net, noise32, 0.5)
    torch.testing.assert_close(single[1].double(), double[1], rtol=1e-5, atol=0, check_dtype=False)
    for name, gradient in single[2].items():
        assert gradient.dtype == torch.float32
        torch.testing.assert_close(gradient.double(), double[2][name], rtol=1e-4, atol=1e-3)


class GaussianByDraws(ScoredPrior):
    """A Gaussian prior that hides that its KL has a closed form."""

    def log_prob(self, weight, axis):
        return Normal(exactly(0.0), exactly(SIGMA1)).log_prob(weight).sum()

    def score(self, weight, axis):
        return -weight / SIGMA1**2


def test_one_sample_kl_and_its_gradient_converge_to_the_exact_ones():
    generator = torch.Generator().manual_seed(0)
    loc = torch.randn(4, 3, generator=generator, dtype=torch.float64).requires_grad_()
    rho = torch.randn(4, 3, generator=generator, dtype=torch.float64).requires_grad_()
    exact = kl_divergence(
        Normal(loc, F.softplus(rho) + FLOOR), Normal(exactly(0.0), exactly(SIGMA1))
    ).sum()
    exact_gradients = torch.autograd.grad(exact, (loc, rho))

    records = []
    for seed in range(1500):
        noise = normal_noise([loc], seed)
        _, kl, _ = draw([loc], [rho], [PriorTerm(GaussianByDraws(), 0)], noise, FLOOR)
        parts = torch.autograd.grad(kl, (loc, rho))
        records.append(torch.cat([kl.detach()[None], *(part.flatten() for part in parts)]))
    table = torch.stack(records)
    error = table.std(0) / math.sqrt(len(table))
    expected = torch.cat([exact.detach()[None], *(part.flatten() for part in exact_gradients)])
    assert error[0] < 0.05 * exact  # sharp enough to tell a wrong constant or sign
    assert ((table.mean(0) - expected).abs() < 5 * error + 1e-12).all()


def test_a_prior_that_gives_both_score_and_expectation_is_charged_once():
    class Both(Gaussian, GaussianByDraws):
        log_prob = Gaussian.log_prob

    net = everything(Both(SIGMA1))
    expected = everything(Gaussian(SIGMA1)).sample().kl
    torch.testing.assert_close(net.sample().kl, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softplus_and_its_inverse(dtype):
    sigma = torch.logspace(-30, 1.5, 200, dtype=torch.float64).to(dtype)
    rho = inverse_softplus(sigma)
    # relative error in exp(rho) is the absolute one in rho, whose size is up to 70
    torch.testing.assert_close(softplus(rho), sigma, rtol=200 * torch.finfo(dtype).eps, atol=0)
    grid = torch.linspace(-60, 20, 300, dtype=dtype)
    torch.testing.assert_close(softplus(grid), F.softplus(grid, threshold=100))


@pytest.mark.parametrize("case", [*CASES, "default"])
def test_nothing_of_a_draw_outlives_it(case):
    # A drawn tensor that its own graph holds on to would wait for the cycle collector, and a
    # network's worth of memory with it. Reference counting alone has to free it.
    net = everything(ScaleMixture() if case == "default" else CASES[case][0])
    gc.collect()
    gc.disable()
    try:
        for backward in (True, False):
            weights = net.sample()
            held = [StorageWeakRef(weight.untyped_storage()) for weight in weights.values()]
            held += [StorageWeakRef(eps.untyped_storage()) for eps in weights.noise.tensors]
            loss = data_loss(weights) + weights.kl
            if backward:
                loss.backward()
            assert not any(reference.expired() for reference in held)
            del weights, loss
            assert all(reference.expired() for reference in held)
    finally:
        gc.enable()
