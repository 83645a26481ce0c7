"""Series that do not move: right numbers or none, and no warning."""

import math

import numpy as np
import pytest

from bayesrnn.tasks.forecast.calibrate import naive_finding
from bayesrnn.tasks.forecast.scores import (
    GaussianForecasts,
    PathForecasts,
    Truths,
    naive_scales,
    score,
    seasonal_naive,
)


@pytest.mark.parametrize("value", [0.0, 5.0])
def test_scores_of_a_series_that_does_not_move(value):
    past, truth = np.full(40, value), np.full((1, 7), value)
    truths = Truths(truth, naive_scales([past], 7))
    naive = score(seasonal_naive([past], 7, 7), truths)
    noisy = score(PathForecasts(truth[:, None] + np.linspace(-1, 1, 5)[None, :, None]), truths)
    assert math.isnan(naive.mase)  # errors in units of a difference that is 0
    if value:
        assert naive.wql == naive.nd == 0
        assert noisy.wql > 0
    else:
        assert math.isnan(noisy.wql)
        assert math.isnan(noisy.nd)
    finding = naive_finding(noisy, naive)
    assert not finding.good
    assert all(map(math.isfinite, finding.metrics.values()))
    assert "nan" not in finding.words
    assert "use that" in finding.words


def test_a_forecast_without_a_doubt_errs_by_its_distance():
    """CRPS of a point forecast is the absolute error."""
    sure = GaussianForecasts(np.zeros((1, 2)), np.zeros((1, 2)))
    np.testing.assert_allclose(sure.crps(np.array([[3.0, 0.0]])), [[3.0, 0.0]], atol=1e-200)
