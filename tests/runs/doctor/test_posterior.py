"""What is told of a posterior, where the answer is known."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import absolute
from bayesrnn.core.kernel.reference import inverse_softplus
from bayesrnn.core.priors import FittedGaussian, Gaussian, Prior, ScaleMixture
from bayesrnn.random import seeded
from bayesrnn.runs.doctor.posterior import (
    EDGES,
    correlation,
    overall,
    prior_scale,
    tensor_reports,
)


def posterior(loc, sigma, prior):
    """A posterior over one matrix, with given means and standard deviations."""
    module = nn.Linear(loc.shape[1], loc.shape[0], bias=False)
    net = Bayesian(module, prior, absolute(0.1), min_sigma=0.0)
    with torch.no_grad():
        module.weight.copy_(loc)
        net.rho.get_parameter("weight").copy_(inverse_softplus(sigma))
    return net


def report(loc, sigma, start=None, prior=None):
    net = posterior(loc, sigma, prior or Gaussian(1.0))
    (found,) = tensor_reports(net, None if start is None else {"weight": start}, seeded(0))
    return found


def test_widths_are_compared_with_their_start():
    start = torch.linspace(0.1, 0.2, 200).view(10, 20)
    found = report(torch.ones(10, 20), 1.25 * start, start)
    assert found.weights == 200
    assert found.widths.ratio == pytest.approx((1.25, 1.25, 1.25), rel=1e-5)
    assert (found.widths.mean, found.widths.sd) == pytest.approx((math.log(1.25), 0), abs=1e-5)
    assert found.widths.correlation == pytest.approx(1, abs=1e-5)
    assert found.mean_correlation is None  # all means are equal
    middle = len(EDGES) // 2
    assert found.widths.histogram[middle] == 200  # between 2^0 and 2^0.5


def test_what_was_dropped_is_left_out():
    """Of half of a network that was dropped nothing is told: it is as if the rest were all."""
    values, start = torch.rand(2, 60, generator=seeded(1)).add(0.1).view(2, 6, 10)
    net = posterior(values, 0.5 * start, FittedGaussian())
    dropped = torch.zeros(6, 10, dtype=torch.bool)
    dropped[:, 4:] = True
    net.drop({"weight": dropped})
    (found,) = tensor_reports(net, {"weight": start}, seeded(0))
    expected = report(values[:, :4], 0.5 * start[:, :4], start[:, :4], FittedGaussian())
    for name in ("weights", "signal", "at_prior"):
        assert getattr(found, name) == getattr(expected, name)
    assert found.kl == pytest.approx(expected.kl, rel=1e-4)
    assert found.mean_correlation == pytest.approx(expected.mean_correlation)
    assert found.widths.histogram == expected.widths.histogram
    net.drop({"weight": ~dropped})
    assert tensor_reports(net, {"weight": start}, seeded(0))[0].weights == 60  # none is left


def test_correlations_are_those_of_logarithms():
    values, start = torch.rand(2, 400, generator=seeded(1)).add(0.1).view(2, 20, 20)
    signs = torch.rand(20, 20, generator=seeded(2)).sub(0.5).sign()
    sigma = values.sqrt() * start
    found = report(signs * values, sigma, start)
    logs = [np.log(tensor.double().numpy().ravel()) for tensor in (values, sigma, start)]
    expected = stats.pearsonr(logs[0], logs[1]).statistic
    assert found.mean_correlation == pytest.approx(expected, abs=1e-4)
    expected = stats.pearsonr(logs[1], logs[2]).statistic
    assert found.widths.correlation == pytest.approx(expected, abs=1e-4)


def test_signal_is_counted_by_powers_of_2_and_outliers_in_the_outer_bins():
    loc = torch.tensor([[1.0, -1.0, 2.9, 100.0, 1e-9, 0.0]])
    found = report(loc, torch.ones(1, 6))
    counts = dict(zip(EDGES, found.signal, strict=False))
    assert {edge: count for edge, count in counts.items() if count} == {0: 2, 1.5: 1, 3.5: 1, -4: 2}


def test_weights_at_the_prior_are_those_that_learnt_less_than_a_tenth_of_a_nat():
    # KL of the first three to N(0, 2^2): 0; 0.08; 0.125. Of the last: log 2 - 3/8 = 0.32.
    loc = torch.tensor([[0.0, 0.8, 1.0, 0.0]])
    sigma = torch.tensor([[2.0, 2.0, 2.0, 1.0]])
    assert report(loc, sigma, prior=Gaussian(2.0)).at_prior == 0.5


def test_the_scale_of_a_mixture_is_that_of_the_component_which_a_row_has_chosen():
    loc = torch.tensor([[1.0, 1e-3], [1.0, -1e-3]])
    net = posterior(loc, torch.full((2, 2), 1e-3), ScaleMixture(0.5, 1.0, 1e-3, "row"))
    (factor,) = net.factors(seeded(0)).values()
    # Weights along the axis of the units, the first of a linear layer's matrix, choose together.
    assert prior_scale(factor).flatten().tolist() == pytest.approx([1.0, 1e-3], rel=1e-3)


def test_the_scale_of_a_fitted_prior_is_the_one_that_it_has_fitted():
    loc, sigma = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.full((2, 2), 0.5)
    net = posterior(loc, sigma, FittedGaussian("column", a=1.0, b=0.25))
    (factor,) = net.factors(seeded(0)).values()
    # (sum(loc^2 + sigma^2) + 2 b) / (n + 2 a) of the weights that enter a unit, a row here
    expected = [math.sqrt((5 + 0.5 + 0.5) / 4), math.sqrt((25 + 0.5 + 0.5) / 4)]
    assert prior_scale(factor).flatten().tolist() == pytest.approx(expected)


class Laplace(Prior):
    """A prior whose scale is not known."""

    def log_prob(self, weight, axis):
        return -weight.abs().sum() - weight.numel() * math.log(2)


def test_a_prior_that_states_no_scale_has_none():
    found = report(torch.ones(2, 2), torch.ones(2, 2), prior=Laplace())
    assert found.at_prior is None
    assert overall([found]).at_prior is None


def test_all_tensors_together_count_each_weight_once():
    starts = torch.rand(2, 60, generator=seeded(3)).add(0.5)
    sigmas = [starts[0] * torch.linspace(1, 2, 60), starts[1, :20] * 3]
    pairs = [(sigmas[0], starts[0]), (sigmas[1], starts[1, :20])]
    found = [report(sigma[None] * 0 + 1, sigma[None], start[None]) for sigma, start in pairs]
    changes = torch.cat([(sigma / start).double().log() for sigma, start in pairs])
    together = overall(found)
    expected = (changes.mean().item(), changes.std(correction=0).item())
    assert together.change == pytest.approx(expected, rel=1e-4)
    kinds = [one.widths.correlation for one in found]
    assert together.start_correlation == pytest.approx((60 * kinds[0] + 20 * kinds[1]) / 80)
    assert together.mean_correlation is None
    assert overall([]).change is None


def test_nothing_correlates_with_a_constant():
    assert correlation(np.ones(3), np.arange(3.0)) is None
    assert correlation(np.arange(3.0), -np.arange(3.0)) == pytest.approx(-1)
