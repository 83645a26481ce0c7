"""The posterior's widths are learnt: against the exact posterior of a linear model."""

import math

import pytest
import torch
from torch import nn

from bayesrnn import Bayesian, Gaussian, WidthSGD
from bayesrnn.errors import ConfigError

ROWS, INPUTS, MINIBATCHES = 400, 12, 10


def linear_model(outputs=1):
    """Data y = x w + N(0, 1) with inputs of unlike scales, and the best mean-field widths.

    The best width of a weight, whatever the others, is that of its conditional posterior:
    1 / sigma^2 = 1 + sum x^2 under the prior N(0, 1). It is the same for all outputs.
    """
    generator = torch.Generator().manual_seed(0)
    scales = torch.logspace(-1, 0.5, INPUTS)
    x = scales * torch.randn(ROWS, INPUTS, generator=generator)
    truth = torch.randn(INPUTS, outputs, generator=generator)
    y = x @ truth + torch.randn(ROWS, outputs, generator=generator)
    precision = x.T @ x + torch.eye(INPUTS)
    return x, y, precision.diagonal().rsqrt(), torch.linalg.solve(precision, x.T @ y)


def learnt_widths(make_widths, epochs):
    """The widths after so many epochs of minibatches: averaged, as log sigma, over the last half.

    An easier problem than training is: the means are exact from the start, and stay; each noise is
    used with its mirror image in the same step. So widths alone are to be learnt, with little
    noise.
    """
    x, y, _, mean = linear_model()
    net = Bayesian(nn.Linear(INPUTS, 1, bias=False), Gaussian(1.0), sigma_init=0.2)
    with torch.no_grad():
        net.module.weight.copy_(mean.T)
    optimiser = make_widths(net.rho.parameters())
    generator = torch.Generator().manual_seed(1)
    logs, kept = torch.zeros(INPUTS), 0
    for epoch in range(epochs):
        for rows in torch.randperm(ROWS, generator=generator).chunk(MINIBATCHES):
            drawn = net.sample(generator)
            optimiser.zero_grad()
            # A draw and its mirror image: most of the noise cancels, so that few steps will do.
            for weights in (drawn, net.sample(noise=drawn.noise.mirrored())):
                residual = y[rows] - net(x[rows], weights=weights)
                loss = residual.square().sum() / 2 + weights.kl / MINIBATCHES
                (loss / 2).backward()
            optimiser.step()
            if 2 * epoch >= epochs:
                logs += net.sigmas()["weight"][0].log()
                kept += 1
    return (logs / kept).exp()


def stable_rate(exact):
    """The rate that suits the means: stable for the input with the largest curvature."""
    return MINIBATCHES * exact.min().item() ** 2


def test_widths_reach_those_of_the_exact_posterior_where_the_means_rate_does_not():
    """Every width within 5%, at a tenth of the recommended rate, with exact means and mirrors."""
    exact = linear_model()[2]
    # 4,000 steps; on the summed loss of a minibatch the rate is a share of 1.
    found = learnt_widths(lambda rho: WidthSGD(rho, lr=0.1), epochs=400)
    assert (found / exact - 1).abs().max() < 0.05
    slow = learnt_widths(lambda rho: torch.optim.SGD(rho, lr=stable_rate(exact)), epochs=400)
    assert (slow / exact - 1).abs().max() > 0.25


def trained(make_widths, outputs=20):
    """Train as the program does: averaged learnt widths over exact ones, and means off by sds.

    3,000 steps on the summed loss of a minibatch, one draw each without mirror images. Means start
    at 0 and learn at the rate that suits them, widths start at 0.02, where the exact ones are
    between 0.016 and 0.45. Means and rhos are averaged over the last half.

    make_widths: from rho and the means' rate to an optimiser of rho.
    """
    x, y, exact, mean = linear_model(outputs)
    net = Bayesian(nn.Linear(INPUTS, outputs, bias=False), Gaussian(1.0), sigma_init=0.02)
    nn.init.zeros_(net.module.weight)
    rate, (rho,) = stable_rate(exact), net.rho.parameters()
    optimisers = torch.optim.SGD(net.mean_parameters(), lr=rate), make_widths([rho], rate)
    generator, parameters = torch.Generator().manual_seed(1), (rho, net.module.weight)
    sums, kept = [torch.zeros_like(rho), torch.zeros_like(rho)], 0
    for epoch in range(300):
        for rows in torch.randperm(ROWS, generator=generator).chunk(MINIBATCHES):
            weights = net.sample(generator)
            residual = y[rows] - net(x[rows], weights=weights)
            (residual.square().sum() / 2 + weights.kl / MINIBATCHES).backward()
            for optimiser in optimisers:
                optimiser.step()
                optimiser.zero_grad()
            if epoch >= 150:
                sums = [own + one.detach() for own, one in zip(sums, parameters, strict=True)]
                kept += 1
    width, middle = sums[0] / kept, sums[1] / kept
    return nn.functional.softplus(width) / exact, (middle - mean.T) / exact


def of_inputs(ratios):
    """The geometric mean over the outputs, whose best widths are the same."""
    return ratios.log().mean(0).exp()


def test_the_recommended_rate_reaches_the_exact_widths_while_means_are_learnt():
    """Within 5% for each input, as the mean over 20 outputs; single weights within 20%."""
    widths, means = trained(lambda rho, _: WidthSGD(rho, lr=1.0))
    assert (of_inputs(widths) - 1).abs().max() < 0.05
    assert (widths - 1).abs().max() < 0.2
    assert means.abs().max() < 1
    slow, _ = trained(lambda rho, rate: torch.optim.SGD(rho, lr=rate))
    assert of_inputs(slow).min() < 0.2
    assert of_inputs(slow).median() < 0.6


class LimitedEach(torch.optim.Optimizer):
    """What `WidthSGD` is not: each number's step is limited by itself."""

    def __init__(self, params, lr=1.0, limit=0.02):
        super().__init__(params, {"lr": lr, "limit": limit})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for rho in group["params"]:
                step = group["lr"] * rho.grad
                rho -= step.clamp(-group["limit"], group["limit"])


def test_a_limit_on_each_number_ends_too_wide():
    """By 50 to 90%, where a limit on the whole tensor is within 5% (the test above)."""
    widths, _ = trained(lambda rho, _: LimitedEach(rho))
    assert of_inputs(widths).min() > 1.4


def test_a_limit_on_a_tensor_of_few_numbers_ends_a_little_too_wide():
    """Of 12 numbers, one with much noise shortens the step of all: 11% on average."""
    widths, _ = trained(lambda rho, _: WidthSGD(rho, lr=1.0), outputs=1)
    assert 1.05 < widths.log().mean().exp() < 1.2


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
