"""The posterior's widths are learnt: against the exact posterior of a linear model."""

import math

import pytest
import torch
from torch import nn

from bayesrnn import Bayesian, Gaussian, WidthSGD
from bayesrnn.errors import ConfigError

ROWS, INPUTS, MINIBATCHES = 400, 12, 10


def linear_model():
    """Data y = x w + N(0, 1) with inputs of unlike scales, and the best mean-field widths.

    The best width of a weight, whatever the others, is that of its conditional posterior:
    1 / sigma^2 = 1 + sum x^2 under the prior N(0, 1).
    """
    generator = torch.Generator().manual_seed(0)
    scales = torch.logspace(-1, 0.5, INPUTS)
    x = scales * torch.randn(ROWS, INPUTS, generator=generator)
    y = x @ torch.randn(INPUTS, generator=generator) + torch.randn(ROWS, generator=generator)
    precision = x.T @ x + torch.eye(INPUTS)
    return x, y, precision.diagonal().rsqrt(), torch.linalg.solve(precision, x.T @ y)


def learnt_widths(make_widths, epochs):
    """The widths after so many epochs of minibatches: averaged, as log sigma, over the last half.

    The means are exact from the start, and stay: the widths alone are to be learnt.
    """
    x, y, _, mean = linear_model()
    net = Bayesian(nn.Linear(INPUTS, 1, bias=False), Gaussian(1.0), sigma_init=0.2)
    with torch.no_grad():
        net.module.weight.copy_(mean[None])
    optimiser = make_widths(net.rho.parameters())
    generator = torch.Generator().manual_seed(1)
    logs, kept = torch.zeros(INPUTS), 0
    for epoch in range(epochs):
        for rows in torch.randperm(ROWS, generator=generator).chunk(MINIBATCHES):
            drawn = net.sample(generator)
            optimiser.zero_grad()
            # A draw and its mirror image: most of the noise cancels, so that few steps will do.
            for weights in (drawn, net.sample(noise=drawn.noise.mirrored())):
                residual = y[rows] - net(x[rows], weights=weights)[:, 0]
                loss = residual.square().sum() / 2 + weights.kl / MINIBATCHES
                (loss / 2).backward()
            optimiser.step()
            if 2 * epoch >= epochs:
                logs += net.sigmas()["weight"][0].log()
                kept += 1
    return (logs / kept).exp()


def test_widths_reach_those_of_the_exact_posterior_where_the_means_rate_does_not():
    exact = linear_model()[2]
    # 4,000 steps; on the summed loss of a minibatch the rate is a share of 1.
    found = learnt_widths(lambda rho: WidthSGD(rho, lr=0.1), epochs=400)
    assert (found / exact - 1).abs().max() < 0.05
    # The rate that suits the means: stable for the input with the largest curvature.
    stable = MINIBATCHES * exact.min().item() ** 2
    slow = learnt_widths(lambda rho: torch.optim.SGD(rho, lr=stable), epochs=400)
    assert (slow / exact - 1).abs().max() > 0.25


def test_a_step_is_the_gradient_times_the_rate():
    rho = nn.Parameter(torch.tensor([1.0, -2.0]))
    rho.grad = torch.tensor([0.01, -0.02])
    WidthSGD([rho], lr=0.5).step()
    torch.testing.assert_close(rho.detach(), torch.tensor([0.995, -1.99]))


def test_a_long_step_is_shortened_as_a_whole_for_each_tensor():
    long, short = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    long.grad, short.grad = torch.tensor([3.0, -4.0]), torch.tensor([1e-3, 0.0])
    WidthSGD([long, short], lr=1.0, limit=0.1).step()
    assert long.square().mean().sqrt().item() == pytest.approx(0.1)
    torch.testing.assert_close(long.detach() / long[0].item(), torch.tensor([1.0, -4 / 3]))
    torch.testing.assert_close(short.detach(), -short.grad)


def test_a_single_number_moves_by_ten_limits_at_most():
    rho = nn.Parameter(torch.zeros(10_000))
    rho.grad = torch.zeros(10_000)
    rho.grad[3] = 1e6
    WidthSGD([rho], limit=0.1).step()
    assert rho[3].item() == pytest.approx(-1.0)


def test_parameters_without_gradients_stay():
    rho, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    rho.grad = torch.zeros(2)
    WidthSGD([rho, other]).step()
    assert torch.equal(rho, torch.ones(2))
    assert torch.equal(other, torch.ones(2))


def test_a_closure_is_called():
    rho = nn.Parameter(torch.zeros(1))

    def closure():
        loss = (rho - 1).square().sum()
        loss.backward()
        return loss

    assert WidthSGD([rho], lr=0.001).step(closure).item() == 1
    assert rho.item() == pytest.approx(0.002)


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan])
def test_the_limit_has_to_be_positive(limit):
    with pytest.raises(ConfigError, match="limit on steps"):
        WidthSGD([nn.Parameter(torch.zeros(1))], limit=limit)
