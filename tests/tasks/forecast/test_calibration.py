"""Calibration by the windows just before each forecast, with networks."""

from dataclasses import replace

import numpy as np
import pytest

from bayesrnn import Forecaster
from bayesrnn.random import seeded
from bayesrnn.tasks.forecast.backtest import (
    backtest,
    calibrating,
    calibration_of,
    known_forecasts,
    known_windows,
)
from bayesrnn.tasks.forecast.evaluate import last_windows
from bayesrnn.uncertainty.draws import Draws

from .made_up import daily, noisy_week

SMALL = {"hidden": 4, "batch_size": 8, "windows": 16, "epochs": 1, "device": "cpu", "threads": 1}
SLICES = {"validation_windows": 2, "calibration_windows": 3, "test_windows": 4}


@pytest.fixture(scope="module")
def fitted():
    """A forecaster of one series, which is not changed."""
    return Forecaster(horizon=7, **SLICES, **SMALL).fit(daily(noisy_week(200)))


def forecast_windows(fitted, data, windows=None):
    places = last_windows(data.places("test"), windows)
    draws, generator = Draws(fitted.run.method, fitted.run.net, 2, seeded(1)), seeded(1)
    calibration = calibration_of(data, draws, 20, generator, windows=places)
    return known_forecasts(data, known_windows(data, places), draws, 20, seeded(2), calibration)


def test_a_value_widens_only_the_windows_after_it(fitted):
    data = fitted.data
    (one,) = data.series.series
    target = one.target.copy()
    target[-10] += 1e4  # in the third test window of four
    changed = replace(data.series, series=(replace(one, target=target),))
    before = forecast_windows(fitted, data)
    after = forecast_windows(fitted, data.of_others(changed))
    for level, (low, high) in before.bounds.items():
        low_after, high_after = after.bounds[level]
        np.testing.assert_array_equal(low_after[:3], low[:3])
        np.testing.assert_array_equal(high_after[:3], high[:3])
    widenings = [found.calibration.before(0).shares[95][0] for found in (before, after)]
    assert widenings[1] > 10 * max(1.0, widenings[0])


def test_the_windows_before_the_first_one_calibrate(fitted):
    data = fitted.data
    assert calibrating(data).starts.tolist() == data.places("calibration").starts.tolist()
    last = last_windows(data.places("test"), 1)
    assert calibrating(data, last).starts.tolist() == data.places("test").starts[:3].tolist()
    # The same windows calibrate the last one, whether those before it are tested or not.
    assert forecast_windows(fitted, data, 1).calibration.back.tolist() == [4, 3, 2, 1]
    assert forecast_windows(fitted, data).calibration.back.tolist() == [7, 6, 5, 4, 3, 2, 1]


def test_validation_windows_are_calibrated_by_the_calibration_windows(fitted):
    data, run = fitted.data, fitted.run
    places = data.places("valid")
    draws = Draws(run.method, run.net, 2, seeded(1))
    calibration = calibration_of(data, draws, 20, seeded(1), windows=places)
    assert calibration.back.tolist() == [7, 6, 5]
    found = known_forecasts(data, known_windows(data, places), draws, 20, seeded(1), calibration)
    assert found.calibration.back.tolist() == [7, 6, 5]
    assert set(found.bounds) == {80, 95}


def test_forecasts_themselves_do_not_change_by_calibration(fitted):
    data, run = fitted.data, fitted.run
    known = known_windows(data, data.places("test"))
    raw = backtest(data, known, Draws(run.method, run.net, 2, seeded(1)), 20, seeded(2))
    places = data.places("test")
    draws = Draws(run.method, run.net, 2, seeded(1))
    calibration = calibration_of(data, draws, 20, seeded(1), windows=places)
    both = backtest(data, known, draws, 20, seeded(2), calibration)
    assert raw.calibrated is None
    assert raw.widening is None
    assert both.network.as_json() == raw.network.as_json()
    assert both.calibrated.mase == raw.network.mase
    assert both.widening == known_forecasts(
        data, known, draws, 20, seeded(2), calibration
    ).calibration.before(0)
