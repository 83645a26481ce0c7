"""Langevin dynamics against known posteriors, torch's own optimisers and the moments of its noise.

Where samples are compared, each comes from a chain of its own (one row of the parameter), so they
are independent: the effective sample size is the number of chains, and the tolerances are four
standard errors of it.
"""

import copy
import math

import pytest
import torch
from torch import nn

import bayesrnn as br
from bayesrnn.core.kernel import compiled as kernel
from bayesrnn.core.kernel import reference as arithmetic
from bayesrnn.core.kernel.compiled import kernel_for
from bayesrnn.core.kernel.reference import LangevinStep
from bayesrnn.errors import ConfigError

CHAINS = 3000
#: The prior and the noise of a linear regression with two correlated inputs.
PRIOR_SIGMA, NOISE_SIGMA = 2.0, 0.5


@pytest.fixture(params=["kernel", "torch"])
def with_or_without_kernel(request, monkeypatch):
    """Use the compiled loops, or torch's operations."""
    if request.param == "torch":
        monkeypatch.setattr(kernel, "load_kernel", lambda: None)
    elif kernel.load_kernel() is None:
        pytest.skip("no compiler")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class Regression:
    """Bayesian linear regression y = x w + noise, whose posterior is known."""

    def __init__(self):
        x = torch.randn(40, 2, generator=generator(1), dtype=torch.double)
        x[:, 1] += x[:, 0]
        self.x, self.n = x, len(x)
        noise = NOISE_SIGMA * torch.randn(self.n, generator=generator(2), dtype=torch.double)
        self.y = x @ torch.tensor([1.0, -0.5], dtype=torch.double) + noise
        precision = x.T @ x / NOISE_SIGMA**2 + torch.eye(2, dtype=torch.double) / PRIOR_SIGMA**2
        self.covariance = precision.inverse()
        self.mean = self.covariance @ (x.T @ self.y) / NOISE_SIGMA**2
        self.stiffness = torch.linalg.eigvalsh(precision / self.n)

    def gradient(self, weights):
        """Of the mean negative log-likelihood of an example, for each chain of [chains, 2]."""
        scale = NOISE_SIGMA**2 * self.n
        curvature, slope = self.x.T @ self.x / scale, self.x.T @ self.y / scale
        return weights @ curvature.to(weights) - slope.to(weights)


def run_chains(target, steps, dtype=torch.float, **options):
    """The last states of chains that start at zero."""
    weights = nn.Parameter(torch.zeros(CHAINS, 2, dtype=dtype))
    optimiser = br.Langevin(
        [weights], scale=1 / target.n, prior_sigma=PRIOR_SIGMA, generator=generator(3), **options
    )
    for _ in range(steps):
        weights.grad = target.gradient(weights.detach())
        optimiser.step()
    return weights.detach().double()


def assert_moments(samples, mean, covariance, bias):
    """Within four standard errors, and a known relative `bias` of the dynamics."""
    variances = covariance.diag()
    error = (samples.mean(0) - mean).abs()
    assert bool((error <= 4 * (variances / CHAINS).sqrt()).all()), error
    spread = (torch.outer(variances, variances) + covariance.square()) / CHAINS
    allowed = 4 * spread.sqrt() + bias * torch.outer(variances, variances).sqrt()
    assert bool(((samples.T.cov() - covariance).abs() <= allowed).all()), samples.T.cov()


@pytest.mark.usefixtures("with_or_without_kernel")
def test_samples_are_of_the_posterior():
    target = Regression()
    assert target.covariance[0, 1] < -0.3 * target.covariance.diag().prod().sqrt()
    lr = 0.1 / target.stiffness.max().item()
    steps = int(8 / (lr * target.stiffness.min().item()))
    samples = run_chains(target, steps, lr=lr)
    assert_moments(samples, target.mean, target.covariance, bias=0.06)


def test_large_steps_have_the_known_covariance_of_their_own():
    """With A the curvature, S = (I - lr A) S (I - lr A) + 2 lr scale I is solved in closed form."""
    target = Regression()
    lr = 1.2 / target.stiffness.max().item()
    steps = int(8 / (lr * target.stiffness.min().item()))
    samples = run_chains(target, steps, lr=lr, dtype=torch.double)
    identity = torch.eye(2, dtype=torch.double)
    shrink = identity - lr / 2 * target.covariance.inverse() / target.n
    assert_moments(samples, target.mean, target.covariance @ shrink.inverse(), bias=0.0)


def test_a_colder_posterior_is_narrower():
    target = Regression()
    lr = 0.1 / target.stiffness.max().item()
    steps = int(8 / (lr * target.stiffness.min().item()))
    samples = run_chains(target, steps, lr=lr, temperature=0.25)
    assert_moments(samples, target.mean, target.covariance / 4, bias=0.06)


@pytest.mark.usefixtures("with_or_without_kernel")
def test_preconditioned_samples_are_of_the_posterior():
    """What the left-out term and the step size cost is a tenth of a variance at most."""
    target = Regression()
    samples = run_chains(target, 1000, lr=0.015, alpha=0.99, eps=0.3)
    assert_moments(samples, target.mean, target.covariance, bias=0.1)


def parameters(dtype):
    shapes = [(7, 5), (4,), ()]
    made = [nn.Parameter(torch.randn(s, generator=generator(5), dtype=dtype)) for s in shapes]
    return [*made, nn.Parameter(torch.ones(3, dtype=dtype), requires_grad=False)]


def steps_of(optimiser, weights, count=5):
    for number in range(count):
        for weight in weights:
            if weight.requires_grad:
                noise = torch.randn(weight.shape, generator=generator(number), dtype=weight.dtype)
                weight.grad = noise
        optimiser.step()
    return [weight.detach() for weight in weights]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float, 1e-6), (torch.double, 1e-14)])
@pytest.mark.parametrize("alpha", [None, 0.9])
def test_without_temperature_it_is_gradient_descent_or_rmsprop(dtype, tolerance, alpha):
    ours, theirs = parameters(dtype), parameters(dtype)
    sigma = 0.5 if alpha is None else math.inf  # RMSprop puts weight decay into its squares
    options = {"alpha": alpha, "eps": 0.01}
    optimiser = br.Langevin(ours, 0.1, 0.02, sigma, temperature=0.0, **options)
    if alpha is None:
        reference = torch.optim.SGD(theirs, 0.1, weight_decay=0.02 / sigma**2)
    else:
        reference = torch.optim.RMSprop(theirs, 0.1, alpha=alpha, eps=0.01)
    for a, b in zip(steps_of(optimiser, ours), steps_of(reference, theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_the_prior_pulls_the_preconditioned_weights_but_is_not_in_the_squares():
    weight = nn.Parameter(torch.tensor([3.0], dtype=torch.double))
    optimiser = br.Langevin([weight], 0.1, 0.02, 0.5, temperature=0.0, alpha=0.75, eps=0.1)
    weight.grad = torch.tensor([0.4], dtype=torch.double)
    optimiser.step()
    scale = 1 / (0.1 + math.sqrt(0.25 * 0.4**2))
    assert weight.item() == pytest.approx(3.0 - 0.1 * scale * (0.4 + 0.02 * 3.0 / 0.5**2))


@pytest.mark.usefixtures("with_or_without_kernel")
@pytest.mark.parametrize("alpha", [None, 0.9])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_noise_has_its_variance(alpha, temperature):
    """N(0, 2 lr scale T G), independent from step to step and from tensor to tensor."""
    lr, share, size = 0.2, 0.05, 200_000
    weights = [nn.Parameter(torch.zeros(size)), nn.Parameter(torch.zeros(400, size // 400))]
    g = torch.rand(size, generator=generator(1)) + 0.1
    scale = torch.ones(size) if alpha is None else 1 / (0.5 + g * math.sqrt(0.1))
    optimiser = br.Langevin(
        weights, lr, share, math.inf, temperature, alpha, eps=0.5, generator=generator(2)
    )
    seen = []
    for _ in range(2):
        optimiser.state.clear()
        for weight in weights:
            weight.data.zero_()
            weight.grad = g.view(weight.shape).clone()
        optimiser.step()
        for weight in weights:
            noise = weight.detach().flatten() + lr * scale * g
            seen.append(noise / (2 * lr * share * temperature * scale).sqrt())
    for noise in seen:
        assert abs(noise.mean().item()) < 4 / math.sqrt(size)
        assert abs(noise.square().mean().item() - 1) < 4 * math.sqrt(2 / size)
        assert abs(noise.pow(4).mean().item() - 3) < 4 * math.sqrt(96 / size)
    correlations = torch.corrcoef(torch.stack(seen)) - torch.eye(4)
    assert correlations.abs().max().item() < 5 / math.sqrt(size)


@pytest.mark.skipif(kernel.load_kernel() is None, reason="no compiler")
@pytest.mark.parametrize("shape", [(3,), (700, 301)])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_compiled_step_is_that_of_torch(shape, scaled):
    theta, g = torch.randn(2, *shape, generator=generator(1))
    squares = torch.rand(shape, generator=generator(2)) if scaled else None
    step = LangevinStep(rate=0.3, pull=0.1, noise=0.2, alpha=0.8, eps=0.05)
    loops = kernel_for([theta])
    theirs, their_squares = theta.clone(), copy.deepcopy(squares)
    arithmetic.langevin(theirs, g, their_squares, step, 11, 4)
    loops.langevin(theta, g, squares, step, 11, 4)
    torch.testing.assert_close(theta, theirs, rtol=1e-5, atol=1e-6)
    if scaled:
        torch.testing.assert_close(squares, their_squares, rtol=1e-6, atol=1e-7)


def test_a_weight_without_a_gradient_follows_the_prior_and_a_frozen_one_stays():
    weights = parameters(torch.double)
    before = copy.deepcopy([weight.detach() for weight in weights])
    br.Langevin(weights, 0.1, 0.02, 0.5, temperature=0.0).step()
    for weight, old in zip(weights[:-1], before, strict=False):
        torch.testing.assert_close(weight.detach(), old * (1 - 0.1 * 0.02 / 0.5**2))
    assert torch.equal(weights[-1], before[-1])


@pytest.mark.usefixtures("with_or_without_kernel")
@pytest.mark.parametrize("alpha", [None, 0.9])
def test_it_goes_on_where_its_state_was_taken(alpha):
    def begin():
        weights, source = parameters(torch.float), generator(7)
        options = {"alpha": alpha, "eps": 0.1, "generator": source}
        return weights, source, br.Langevin(weights, 0.1, 0.02, **options)

    weights, source, optimiser = begin()
    steps_of(optimiser, weights)
    saved, place = copy.deepcopy(optimiser.state_dict()), source.get_state()
    middle = [weight.detach().clone() for weight in weights]
    expected = steps_of(optimiser, weights)

    weights, source, optimiser = begin()
    for weight, value in zip(weights, middle, strict=True):
        weight.data.copy_(value)
    optimiser.load_state_dict(saved)
    source.set_state(place)
    for a, b in zip(steps_of(optimiser, weights), expected, strict=True):
        assert torch.equal(a, b)


def test_a_state_with_the_former_names_of_settings_goes_on():
    weights = parameters(torch.float)
    saved = br.Langevin(weights, 0.1, 0.02, alpha=0.9, eps=0.3).state_dict()
    for group in saved["param_groups"]:
        for new, old in {"scale": "share", "alpha": "memory", "eps": "damping"}.items():
            group[old] = group.pop(new)
    optimiser = br.Langevin(weights, 0.1, 0.01)
    optimiser.load_state_dict(saved)
    (group,) = optimiser.param_groups
    assert (group["scale"], group["alpha"], group["eps"]) == (0.02, 0.9, 0.3)
    assert not {"share", "memory", "damping"} & set(group)
    optimiser.step()


def test_a_closure_is_called_with_gradients():
    weight = nn.Parameter(torch.tensor([2.0]))
    optimiser = br.Langevin([weight], 0.1, 0.5, math.inf, temperature=0.0)

    def closure():
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert optimiser.step(closure).item() == 4.0
    assert weight.item() == pytest.approx(2.0 - 0.1 * 4.0)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"lr": 0.0}, "lr"),
        ({"lr": math.nan}, "lr"),
        ({"scale": -1.0}, "scale"),
        ({"prior_sigma": 0.0}, "prior_sigma"),
        ({"temperature": -1.0}, "temperature"),
        ({"alpha": 1.0}, "alpha"),
        ({"eps": 0.0, "alpha": 0.9}, "eps"),
        ({"lr": 30.0}, "give one below 25"),
        ({"lr": 3.0, "alpha": 0.9, "eps": 0.1}, r"give one below 2\.5, a larger damping"),
    ],
)
def test_what_cannot_work_is_refused(options, word):
    given = {"lr": 0.1, "scale": 0.01, "prior_sigma": 0.5, **options}
    with pytest.raises(ConfigError, match=word):
        br.Langevin([nn.Parameter(torch.zeros(2))], **given)
