import math

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal

from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.uncertainty.metrics import INTERVALS, regression_metrics
from bayesrnn.uncertainty.regression import AverageNumbers, Regression


def mixture(means, deviations):
    """The prediction of draws [draws, examples]."""
    average = AverageNumbers(Regression(log_variance=True))
    for mean, deviation in zip(means, deviations, strict=True):
        average.add(torch.cat([mean, 2 * deviation.log()]))
    return average.prediction()


@pytest.fixture
def drawn():
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(5, 40, generator=generator, dtype=torch.double)
    deviations = 0.2 + torch.rand(5, 40, generator=generator, dtype=torch.double)
    truths = torch.randn(40, generator=generator, dtype=torch.double)
    return means, deviations, truths


def test_against_torch_distributions(drawn):
    means, deviations, truths = drawn
    found = regression_metrics(mixture(means, deviations), truths)
    exact = MixtureSameFamily(
        Categorical(torch.ones(40, 5)), Normal(means.T, deviations.T), validate_args=False
    )
    errors = means.mean(0) - truths
    assert found.rmse == pytest.approx(errors.square().mean().sqrt().item())
    assert found.mae == pytest.approx(errors.abs().mean().item())
    assert found.nll == pytest.approx(-exact.log_prob(truths).mean().item())
    # A truth is in the central interval where its distribution function is.
    below = exact.cdf(truths)
    for share, coverage in zip(INTERVALS, found.coverage, strict=True):
        inside = (below - 0.5).abs() <= share / 2
        assert coverage == inside.double().mean().item()
    assert found.examples == 40


def test_one_network_has_normal_intervals():
    means, deviation = torch.zeros(1, 3).double(), torch.full((1, 3), 2.0).double()
    found = regression_metrics(mixture(means, deviation), torch.tensor([0.0, 3.0, 4.0]).double())
    # 1.2816, 1.6449 and 1.9600 deviations of 2: 2.56, 3.29 and 3.92.
    assert found.coverage == pytest.approx((1 / 3, 1 / 3, 2 / 3, 2 / 3))
    assert found.width == pytest.approx(2 * 1.6448536 * 2)
    normal = 0.5 * math.log(2 * math.pi * 4) + (0 + 9 + 16) / 3 / 8
    assert found.nll == pytest.approx(normal)


def test_honest_predictions_are_covered_as_they_say():
    generator = torch.Generator().manual_seed(1)
    means = torch.randn(1, 20_000, generator=generator, dtype=torch.double)
    noise = torch.randn(20_000, generator=generator, dtype=torch.double)
    prediction = mixture(means, torch.full_like(means, 0.5))
    found = regression_metrics(prediction, means[0] + 0.5 * noise)
    assert found.coverage == pytest.approx(INTERVALS, abs=0.015)


def test_a_density_where_nothing_was_expected_has_a_logarithm(drawn):
    means, deviations, _ = drawn
    far = torch.full((40,), 1e4, dtype=torch.double)
    assert math.isfinite(regression_metrics(mixture(means, deviations), far).nll)


def test_the_density_of_many_draws_is_close(drawn):
    """Above 128 draws, neighbours are merged."""
    generator = torch.Generator().manual_seed(2)
    means = 0.3 * torch.randn(300, 40, generator=generator, dtype=torch.double)
    deviations = torch.full_like(means, 0.5)
    value = drawn[2]
    exact = Normal(means, deviations).log_prob(value).logsumexp(0) - math.log(300)
    found = mixture(means, deviations).log_density(value)
    torch.testing.assert_close(found, exact, rtol=0, atol=0.02)


def test_mistakes(drawn):
    prediction = mixture(*drawn[:2])
    with pytest.raises(ConfigError, match=r"\[40\] and truths \[3\]"):
        regression_metrics(prediction, torch.zeros(3))
    empty = mixture(torch.zeros(1, 0), torch.ones(1, 0))
    with pytest.raises(CorpusError, match="at least one"):
        regression_metrics(empty, torch.zeros(0))
