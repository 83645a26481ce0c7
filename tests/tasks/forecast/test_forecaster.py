"""Forecasts from Python."""

import numpy as np
import pytest

from bayesrnn import Forecaster
from bayesrnn.errors import ConfigError

from .made_up import daily, noisy_week

SMALL = {"hidden": 8, "batch_size": 8, "windows": 32, "epochs": 1, "device": "cpu", "threads": 1}


def test_a_forecaster_is_fitted_forecasts_and_is_tested(tmp_path):
    series = daily(noisy_week(160), noisy_week(160, seed=2))
    model = Forecaster(horizon=7, method="bbb", test_windows=3, **SMALL).fit(series)
    found = model.forecast(samples=4, paths=40)
    assert found.median.shape == (2, 7)
    assert found.paths.shape == (2, 40, 7)
    assert found.epistemic.shape == (2, 7)
    raw = model.forecast(samples=4, paths=40, calibrated=False)
    low, _ = raw.interval(80)
    np.testing.assert_allclose(low, np.quantile(raw.paths, 0.1, axis=1))
    assert np.all(found.interval(80)[0] <= found.median)
    tested = model.backtest(windows=2, samples=4, paths=40)
    assert tested.network.windows == 4
    assert tested.calibrated.coverage["95"] >= tested.calibrated.coverage["80"]
    found.to_csv(tmp_path / "forecast.csv")
    assert len((tmp_path / "forecast.csv").read_text().splitlines()) == 15
    assert "2001-06-10" in found.table().text()
    assert any("test windows" in sentence for sentence in found.sentences())
    # The same draws and paths give the same forecasts; later values give others.
    again = model.forecast(samples=4, paths=40)
    np.testing.assert_array_equal(found.median, again.median)
    later = model.forecast(daily(noisy_week(170)), samples=4, paths=40, horizon=3)
    assert later.median.shape == (1, 3)


def test_a_forecaster_has_to_be_fitted_first():
    with pytest.raises(ConfigError, match="fit"):
        Forecaster(horizon=7).forecast()
