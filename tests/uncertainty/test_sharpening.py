"""Sharpening while reading: against Gaussian processes in closed form, and a fine grid."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal, Normal
from torch.nn import functional as F

from bayesrnn.errors import TrainingDivergedError
from bayesrnn.methods.base import Outcome
from bayesrnn.uncertainty.sharpening import SegmentSharpening, read_sharpened

SERIES, SEGMENTS = 4000, 4


class Levels(nn.Module):
    """A number for each of many series, seen with noise of variance 1."""

    def __init__(self, start):
        super().__init__()
        self.level = nn.Parameter(torch.full((SERIES,), start, dtype=torch.double))

    def forward(self):
        return self.level


def quadratic(y):
    """The summed loss of one look at all series, but for a constant; the state counts looks."""

    def from_state(state):
        def objective(network):
            return Outcome((network() - y).square().sum() / 2, (state or 0) + 1)

        return objective

    return from_state


@pytest.mark.parametrize("carry", [0.0, 0.7, 1.0])
def test_of_a_gaussian_model_the_bound_is_the_exact_likelihood(carry):
    """Levels that go back to the trained one are an AR(1) process, seen with noise.

    The likelihood of all segments together is that of one multivariate normal distribution; what is
    predicted from the segments before is its conditional mean.
    """
    start, s = 0.3, 0.8
    torch.manual_seed(2)
    y = start + 1.2 * torch.randn(SEGMENTS, SERIES, dtype=torch.double)
    minibatches = [(quadratic(row), SERIES) for row in y]
    # One prediction a series: its squared gradient, 1 in the mean, is spread over the predictions.
    squares = {"level": torch.full((SERIES,), 1 / SERIES, dtype=torch.double)}
    sigma0 = {"level": torch.tensor(math.sqrt(s), dtype=torch.double)}
    sharpening = SegmentSharpening(sigma0, carry, None, squares)
    net = Levels(start)
    found = read_sharpened(net, minibatches, sharpening, torch.Generator().manual_seed(1))
    assert (net.level == start).all()

    place = torch.arange(SEGMENTS).double()
    covariance = s * carry ** (place[:, None] - place).abs() + torch.eye(SEGMENTS).double()
    mean = torch.full((SEGMENTS,), start).double()
    constant = math.log(2 * math.pi) / 2
    exact = -MultivariateNormal(mean, covariance).log_prob(y.T).mean() / SEGMENTS - constant
    error = found.bound.standard_error
    assert found.bound.nll == pytest.approx(exact.item(), abs=4 * error)
    assert 0 < error < 0.03
    assert found.bound.tokens == found.read.tokens == SEGMENTS * SERIES

    losses = []
    for k in range(SEGMENTS):
        past = covariance[k, :k] @ torch.linalg.inv(covariance[:k, :k]) @ (y[:k] - start)
        losses.append((y[k] - start - past).square().mean() / 2)
    assert found.read.nll == pytest.approx(sum(losses).item() / SEGMENTS, rel=1e-9)


class Guess(nn.Module):
    """The same two logits whatever it reads."""

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(1, 2).double()

    def forward(self, x):
        return self.output(x)


@pytest.mark.parametrize("carry", [0.0, 1.0])
@pytest.mark.parametrize("sigma0", [0.3, 1.0])
def test_the_bound_is_above_the_exact_likelihood(carry, sigma0):
    """The difference of the logits is N(d, 2 sigma0^2); the likelihood is integrated on a grid."""
    net = Guess()
    d = (net.output.bias[0] - net.output.bias[1]).item()
    texts = torch.tensor([[0, 0, 0, 1, 0], [0, 0, 1, 0, 0], [1, 0, 0, 0, 0]])

    def minibatch(targets):
        def objective(network):
            logits = network(torch.zeros(len(targets), 1).double())
            return Outcome(F.cross_entropy(logits, targets, reduction="sum"), None)

        return lambda state: objective

    sharpening = SegmentSharpening({"output.bias": torch.tensor(sigma0)}, carry, "output")
    minibatches = [(minibatch(text), len(text)) for text in texts]
    found = [
        read_sharpened(net, minibatches, sharpening, torch.Generator().manual_seed(seed))
        for seed in range(200)
    ]
    bounds = torch.tensor([one.bound.nll * texts.numel() for one in found])
    grid = torch.linspace(d - 15, d + 15, 100_001, dtype=torch.double)
    prior = Normal(d, math.sqrt(2) * sigma0).log_prob(grid) + (grid[1] - grid[0]).log()
    parts = [texts.flatten()] if carry else list(texts)
    exact = 0.0
    for part in parts:
        zeros = int((part == 0).sum())
        likelihood = zeros * F.logsigmoid(grid) + (len(part) - zeros) * F.logsigmoid(-grid)
        exact -= (prior + likelihood).logsumexp(0).item()
    error = bounds.std().item() / math.sqrt(len(bounds))
    assert exact - 4 * error < bounds.mean().item() < exact + 0.1 * sigma0 * texts.numel()
    assert all(one.bound.kl > 0 for one in found)
    # The stated error is an overestimate rather than an underestimate.
    stated = torch.tensor([one.bound.standard_error * texts.numel() for one in found])
    assert stated.square().mean() > 0.8 * bounds.var()


def test_what_diverges_is_told():
    sigma0 = {"level": torch.tensor(1.0, dtype=torch.double)}
    squares = {"level": torch.zeros(SERIES, dtype=torch.double)}
    sharpening = SegmentSharpening(sigma0, 1.0, None, squares)
    y = torch.full((SERIES,), 100.0, dtype=torch.double)
    steep = [(lambda state: lambda network: Outcome(50 * (network() - y).square().sum(), 0), 1)] * 9
    with pytest.raises(TrainingDivergedError, match="sharpening diverged"):
        read_sharpened(Levels(0.0), steep, sharpening, torch.Generator())
