"""Which of a prior's densities is charged, and on which groups, against autograd in float64."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.distributions import Laplace, Normal
from torch.nn import functional as F

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.kernel import compiled as kernel
from bayesrnn.core.noise import normal_noise
from bayesrnn.core.posterior import PriorTerm, draw
from bayesrnn.core.priors import (
    ExactPrior,
    FittedGaussian,
    Gaussian,
    ScaleMixture,
    ScoredPrior,
    density_from,
)

FLOOR, KL_WEIGHT = 1e-3, 0.6


@pytest.fixture(params=["kernel", "torch"], autouse=True)
def with_or_without_kernel(request, monkeypatch):
    """Use the compiled loops, or torch's operations."""
    if request.param == "torch":
        monkeypatch.setattr(kernel, "load_kernel", lambda: None)
    elif kernel.load_kernel() is None:
        pytest.skip("no compiler")


def check(shape, axis, prior, log_prob, exact=False):
    """A draw in float32 against KL and gradients of autograd through `log_prob` in float64.

    log_prob is given the weight, loc and sigma.
    """
    generator = torch.Generator().manual_seed(sum(shape))
    loc = (0.3 * torch.randn(shape, generator=generator)).requires_grad_()
    rho = (torch.randn(shape, generator=generator) - 1).requires_grad_()
    noise = normal_noise([loc], 3).mirrored()
    (weight,), kl, _ = draw([loc], [rho], [PriorTerm(prior, axis)], noise, FLOOR)
    slopes = torch.linspace(-1, 1, weight.numel()).view(shape)
    found = torch.autograd.grad((weight * slopes).sum() + KL_WEIGHT * kl, (loc, rho))

    m, r = (tensor.detach().double().requires_grad_() for tensor in (loc, rho))
    sigma = F.softplus(r) + FLOOR
    theta = m - sigma * noise.tensors[0].double()
    log_q = -Normal(m, sigma).entropy().sum() if exact else Normal(m, sigma).log_prob(theta).sum()
    expected_kl = log_q - log_prob(theta, m, sigma)
    expected = torch.autograd.grad((theta * slopes).sum() + KL_WEIGHT * expected_kl, (m, r))
    assert kl.item() == pytest.approx(expected_kl.item(), rel=2e-5, abs=1e-4)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-4, atol=2e-5)


def mixture(prior, axes):
    """The mixture of each group along `axes`, written out."""

    def log_prob(theta, loc, sigma):
        squares = theta.square().sum(axes, keepdim=True) if axes else theta.square()
        n = theta.numel() // squares.numel()

        def part(share, width):
            constant = math.log(share) - n * math.log(width * math.sqrt(2 * math.pi))
            return constant - squares / (2 * width**2)

        wide, narrow = part(prior.pi, prior.sigma1), part(1 - prior.pi, prior.sigma2)
        return torch.logaddexp(wide, narrow).sum()

    return log_prob


#: A one in every place, for tensors of one to four axes.
SHAPES = [
    *[(1,), (5,), (1, 1), (6, 1), (1, 6), (6, 4)],
    *[(1, 3, 4), (3, 1, 4), (3, 4, 1), (3, 1, 1), (1, 1, 3)],
    *[(2, 1, 3, 3), (1, 2, 3, 3), (2, 3, 1, 1), (2, 3, 3, 1)],
]


@pytest.mark.parametrize("per", ["weight", "row", "tensor"])
def test_mixture_with_axes_of_one_number(per):
    prior = ScaleMixture(0.3, 0.5, 0.2, per)
    for shape in SHAPES:
        for axis in range(min(2, len(shape))):
            axes = {"weight": (), "row": (axis,), "tensor": tuple(range(len(shape)))}[per]
            check(shape, axis, prior, mixture(prior, axes))


@pytest.mark.parametrize("make", [lambda: nn.Embedding(6, 1), lambda: nn.ConvTranspose2d(3, 1, 2)])
def test_kl_of_layers_with_one_output(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Bayesian(make(), ScaleMixture(0.3, 0.5, 0.2), 0.1)
        twin = Bayesian(make().double(), ScaleMixture(0.3, 0.5, 0.2), 0.1)
    twin.load_state_dict({name: value.double() for name, value in net.state_dict().items()})
    found, expected = (each.sample(noise=each.noise(1)).kl.item() for each in (net, twin))
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("per", ["tensor", "row", "column", "weight"])
def test_a_prior_that_fits_itself(per):
    a, b = 1.5, 0.02
    prior = FittedGaussian(per, a, b)

    def log_prob(theta, loc, sigma):
        squares = loc.square() + sigma.square()
        others = tuple(place for place in range(loc.dim()) if place != 1)
        axes = {"tensor": tuple(range(loc.dim())), "row": (1,), "column": others, "weight": ()}[per]
        total = squares.sum(axes, keepdim=True) if axes else squares
        n = loc.numel() // total.numel()
        # The bound of the KL divergence for each group, without the entropy of q.
        constant = -math.lgamma(a + n / 2) + math.lgamma(a) - a * math.log(b)
        bound = constant + (a + n / 2) * (b + total / 2).log()
        return -bound.sum() - loc.numel() / 2 * math.log(2 * math.pi)

    for shape in [(6, 4), (1, 4), (6, 1), (3, 4, 2), (70, 60)]:
        check(shape, 1, prior, log_prob, exact=True)


def test_a_fitted_prior_charges_nothing_for_the_scale_of_large_groups():
    # For many weights and a vague hyper-prior: KL = n/2 log(S/n) - sum log sigma.
    shape = (200, 300)
    generator = torch.Generator().manual_seed(0)
    loc = torch.randn(shape, generator=generator)
    rho = torch.randn(shape, generator=generator) - 2
    for scale in (1.0, 1e-3):
        prior = FittedGaussian("tensor", a=1e-3, b=1e-9)
        sigma = F.softplus(rho.double())
        squares = (scale * loc.double()).square() + (scale * sigma).square()
        n = loc.numel()
        expected = n / 2 * (squares.sum() / n).log() - (scale * sigma).log().sum()
        found = -prior.expected_log_prob(scale * loc.double(), scale * sigma, 0)
        found -= Normal(loc.double(), scale * sigma).entropy().sum()
        assert found.item() == pytest.approx(expected.item(), rel=1e-3)


def test_priors_of_several_kinds_in_one_network():
    net = Bayesian(
        nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)),
        {"0.*": FittedGaussian("row"), "1.weight": FittedGaussian("weight"), "*": ScaleMixture()},
        sigma_init=0.1,
    )
    weights = net.sample(noise=net.noise(0))
    apart = []
    for name in net.names:
        parameter, rho = net.module.get_parameter(name), net.rho.get_parameter(name)
        term = net._terms[name]
        single = normal_noise([parameter], 0)
        place = list(net.names).index(name)
        single = replace(
            single,
            tensors=(weights.noise.tensors[place],),
            squares=weights.noise.squares[place : place + 1],
        )
        apart.append(draw([parameter], [rho], [term], single, net.min_sigma)[1].item())
    assert weights.kl.item() == pytest.approx(sum(apart), rel=1e-5)


# Subclasses that state their density anew


def laplace(theta, *_):
    scale = theta.new_tensor(0.4)
    return Laplace(torch.zeros_like(scale), scale).log_prob(theta).sum()


class ByValue(ScaleMixture):
    def log_prob(self, weight, axis):
        return laplace(weight)


class ByValueAndScore(ByValue):
    def score(self, weight, axis):
        return -weight.sign() / 0.4


class GaussianByValue(Gaussian):
    def log_prob(self, weight, axis):
        return laplace(weight)


class NewValueOldScore(ByValueAndScore):
    def log_prob(self, weight, axis):
        return 2 * laplace(weight)


class Shifted(Gaussian):
    def expected_log_prob(self, loc, sigma, axis):
        return super().expected_log_prob(loc - 0.5, sigma, axis)


class Wider(Gaussian):
    def from_squares(self, squares, size):
        return Gaussian(2 * self.sigma).from_squares(squares, size)


class ByColumn(ScaleMixture):
    def group_axes(self, dims, axis):
        return tuple(place for place in range(dims) if place != axis)


def gaussian(sigma, shift=0.0):
    def expected(theta, loc, width):
        squares = (loc - shift).square() + width.square()
        return -(squares / (2 * sigma**2) + math.log(sigma * math.sqrt(2 * math.pi))).sum()

    return expected


SUBCLASSES = {
    "log_prob": (ByValue(), laplace, False),
    "score": (ByValueAndScore(), laplace, False),
    "log_prob of a Gaussian": (GaussianByValue(), laplace, False),
    "log_prob newer than score": (NewValueOldScore(), lambda theta, *_: 2 * laplace(theta), False),
    "expected_log_prob": (Shifted(0.3), gaussian(0.3, 0.5), True),
    "from_squares": (Wider(0.3), gaussian(0.6), True),
    "nothing": (type("Same", (Gaussian,), {})(0.3), gaussian(0.3), True),
    "group_axes": (
        ByColumn(0.3, 0.5, 0.2),
        mixture(ScaleMixture(0.3, 0.5, 0.2), (1,)),
        False,
    ),
}


@pytest.mark.parametrize("case", SUBCLASSES)
def test_the_density_of_a_subclass_is_its_own(case):
    prior, log_prob, exact = SUBCLASSES[case]
    check((6, 4), 0, prior, log_prob, exact)


def test_the_most_derived_statement_of_a_density_counts():
    class Both(ScoredPrior, ExactPrior):
        def log_prob(self, weight, axis):
            return weight.sum()

        def score(self, weight, axis):
            return torch.ones_like(weight)

        def expected_log_prob(self, loc, sigma, axis):
            return loc.sum()

    class Renamed(Gaussian):
        log_prob = Gaussian.log_prob  # its parent's

    assert density_from(Gaussian) == density_from(ScaleMixture) == "from_squares"
    assert density_from(Both) == "expected_log_prob"
    assert density_from(Renamed) == "from_squares"
    assert density_from(ByValue) == density_from(NewValueOldScore) == "log_prob"
    assert density_from(ByValueAndScore) == "score"
