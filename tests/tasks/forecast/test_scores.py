"""Metrics against figures computed by hand, closed forms, and published ones."""

import json
import math

import numpy as np
import pytest
import torch

from bayesrnn.tasks.forecast.backtest import known_windows
from bayesrnn.tasks.forecast.conformal import (
    ENOUGH,
    Calibration,
    Widening,
    errors_of,
    widening_of,
)
from bayesrnn.tasks.forecast.data import Wishes, prepare
from bayesrnn.tasks.forecast.paths import Paths
from bayesrnn.tasks.forecast.scores import (
    GaussianForecasts,
    PathForecasts,
    Truths,
    naive_scales,
    score,
    seasonal_naive,
)
from bayesrnn.tasks.forecast.source import births


def test_metrics_of_two_values_by_hand():
    forecasts = GaussianForecasts(np.array([[10.0, 20.0]]), np.array([[1e-12, 1e-12]]))
    found = score(forecasts, Truths(np.array([[12.0, 16.0]]), np.array([4.0])))
    assert found.mase == pytest.approx((2 + 4) / 2 / 4)
    assert found.nd == pytest.approx(6 / 28)
    assert found.smape == pytest.approx((400 / 22 + 800 / 36) / 2)
    # 2 q * 2 of a value too high by 2, and 2 (1 - q) * 4 of one too low by 4, over q.
    assert found.wql == pytest.approx((2 * 0.5 * 2 + 2 * 0.5 * 4) / 28)
    assert found.msis == pytest.approx((40 * 2 + 40 * 4) / 2 / 4)
    assert found.crps == pytest.approx((2 + 4) / 2 / 4)
    assert found.coverage == {"80": 0.0, "95": 0.0}
    assert found.mase_by_step == pytest.approx((0.5, 1.0))


def test_missing_values_count_nowhere():
    forecasts = GaussianForecasts(np.array([[10.0, 20.0]]), np.array([[1.0, 1.0]]))
    found = score(forecasts, Truths(np.array([[12.0, np.nan]]), np.array([4.0])))
    alone = score(
        GaussianForecasts(np.array([[10.0]]), np.array([[1.0]])),
        Truths(np.array([[12.0]]), np.array([4.0])),
    )
    for name in ("mase", "wql", "crps", "smape", "msis", "nd", "values"):
        assert getattr(found, name) == pytest.approx(getattr(alone, name))


def test_json_has_no_nan():
    forecasts = GaussianForecasts(np.array([[10.0, 20.0]]), np.array([[1.0, 1.0]]))
    found = score(forecasts, Truths(np.array([[12.0, np.nan]]), np.array([0.0]))).as_json()
    assert found["mase"] is None
    assert found["coverage_by_step"]["80"] == (0.0, None)
    json.dumps(found, allow_nan=False)


def test_crps_of_paths_is_that_of_their_distribution():
    rng = np.random.default_rng(0)
    truths = np.array([[0.3, 2.0]])
    paths = PathForecasts(rng.normal(1.0, 2.0, size=(1, 40_000, 2)))
    exact = GaussianForecasts(np.full((1, 2), 1.0), np.full((1, 2), 2.0)).crps(truths)
    np.testing.assert_allclose(paths.crps(truths), exact, atol=0.02)
    # The closed form against quadrature: the integral of (F - 1[y <= x])^2.
    x = np.linspace(-20, 20, 400_001)
    cdf = np.array([0.5 * math.erfc((1.0 - one) / 2 / math.sqrt(2)) for one in x[::40]])
    for y, found in zip(truths[0], exact[0], strict=True):
        integral = np.trapezoid((cdf - (x[::40] >= y)) ** 2, x[::40])
        assert found == pytest.approx(integral, rel=3e-3)


def test_seasonal_naive_repeats_the_last_season_and_widens():
    past = np.array([1.0, 2.0, 3.0, 2.0, 4.0, np.nan])
    found = seasonal_naive([past], horizon=7, season=3)
    assert found.mean[0].tolist() == [2, 4, 3, 2, 4, 3, 2]
    rms = math.sqrt((1 + 4) / 2)
    np.testing.assert_allclose(found.sd[0], rms * np.sqrt([1, 1, 1, 2, 2, 2, 3]))
    assert naive_scales([past], 3)[0] == pytest.approx(1.5)


def test_published_figures_of_seasonal_naive():
    """With m = 1 the registry of GIFT-Eval has a MASE of 1.8648 on 20 windows of 30 births."""
    data = prepare(births(), Wishes(horizon=30, test=20))
    known = known_windows(data, data.places("test"))
    weekly = score(seasonal_naive(known.pasts, 30, 7), known.truths)
    assert (round(weekly.mase, 4), round(weekly.wql, 4)) == (1.4856, 0.0333)
    daily = Truths(known.truths.values, naive_scales(known.pasts, 1))
    assert round(score(seasonal_naive(known.pasts, 30, 1), daily).mase, 4) == 1.8648


def test_variances_of_paths_are_taken_apart():
    rng = np.random.default_rng(3)
    means = rng.normal(0, 2.0, size=(1, 2000, 1, 1))
    paths = Paths(torch.from_numpy(means + rng.normal(0, 3.0, size=(1, 2000, 10, 1))))
    assert paths.noise.item() == pytest.approx(9.0, rel=0.05)
    assert paths.ignorance.item() == pytest.approx(4.0, rel=0.1)
    # Without the correction 9 / 10 would be too much; with means that agree, nothing is left.
    alike = Paths(torch.from_numpy(rng.normal(0, 3.0, size=(1, 2000, 10, 1))))
    assert alike.ignorance.item() < 0.2
    assert alike.epistemic_share.item() < 0.03


@pytest.mark.parametrize("windows", [1, 200])
def test_calibrated_intervals_hold_what_they_say(windows):
    rng = np.random.default_rng(4)
    horizon = 12
    sd = np.tile(np.linspace(0.5, 2, horizon), (windows, 1))
    narrow = GaussianForecasts(np.zeros_like(sd), sd / 2)
    truths = Truths(rng.normal(size=sd.shape) * sd, np.ones(windows))
    widening = widening_of(errors_of(narrow, truths))
    assert widening.pooled == (windows == 1)
    new = rng.normal(size=(20_000, horizon)) * sd[0]
    for level in (80, 95):
        low, high = widening.applied({level: narrow.interval(level)}, narrow.mean)[level]
        held = ((new >= low[:1]) & (new <= high[:1])).mean()
        assert held == pytest.approx(level / 100, abs=0.2 if windows == 1 else 0.03)
    assert Widening.from_json(widening.as_json()) == widening


def test_an_interval_that_shrinks_keeps_the_median():
    low, median, high = np.array([0.0]), np.array([1.0]), np.array([10.0])
    for share, ends in ((-0.05, (0.5, 9.5)), (-0.3, (1.0, 7.0)), (-2.0, (1.0, 1.0))):
        found = Widening({80: (share,)}, 20, False).applied({80: (low, high)}, median)
        np.testing.assert_allclose(np.ravel(found[80]), ends)


def test_an_interval_has_those_of_smaller_levels():
    median, ends = np.array([0.0]), (np.array([-10.0]), np.array([10.0]))
    widening = Widening({95: (-0.4,), 80: (0.5,)}, 20, False)
    found = widening.applied({95: ends, 80: (ends[0] / 5, ends[1] / 5)}, median)
    assert [of.item() for of in found[80]] == [-4.0, 4.0]
    assert [of.item() for of in found[95]] == [-4.0, 4.0]


def test_too_few_errors_calibrate_nothing():
    of = GaussianForecasts(np.zeros((1, ENOUGH - 1)), np.ones((1, ENOUGH - 1)))
    assert widening_of(errors_of(of, Truths(np.zeros((1, ENOUGH - 1)), np.ones(1)))) is None


def test_each_window_is_calibrated_by_those_just_before_it():
    # Windows 9 to 1 from the end; the error of each is its number.
    back = np.arange(9, 0, -1)
    errors = {80: np.tile(back[:, None].astype(float), (1, 24))}
    calibration = Calibration(back[:4], {80: errors[80][:4]}, 4)  # 9, 8, 7, 6
    assert calibration.before(5).shares[80] == (9.0,) * 24
    known = calibration.and_later(back, errors)  # 9 to 6 are there already
    assert known.back.tolist() == back.tolist()
    # Of 24 errors each of 4 windows the 78th smallest is one of the largest window. All are held,
    # so that the shares asked for are 0.80, 0.76, 0.72: the 78th, the 74th and the 70th smallest.
    for number, added in ((5, 9.0), (4, 8.0), (3, 6.0)):
        assert known.before(number).shares[80] == (added,) * 24
    assert known.before(0).shares[80][0] < 4.0
    # Of the earliest windows, and those before, nothing earlier is known.
    assert known.before(8) == known.before(5)
    some = Calibration(back[[0, 1, 2, 3, 6]], {80: errors[80][[0, 1, 2, 3, 6]]}, 4)
    assert some.before(5) == some.before(4) == some.before(3) == known.before(5)


def test_calibration_follows_errors_that_grow():
    rng = np.random.default_rng(5)
    windows, horizon, count = 200, 24, 20
    sd = np.linspace(1, 4, windows)[:, None] * np.ones(horizon)
    forecasts = GaussianForecasts(np.zeros_like(sd), np.ones_like(sd))
    truths = Truths(rng.normal(size=sd.shape) * sd, np.ones(windows))
    back, errors = np.arange(windows, 0, -1), errors_of(forecasts, truths)
    first = Calibration(back[:count], {level: of[:count] for level, of in errors.items()}, count)

    low, high = forecasts.interval(80)

    def held(calibration):
        inside = []
        for row in range(count, windows):
            widening = calibration.before(back[row])
            ends = widening.applied({80: (low[row], high[row])}, 0 * low[row])[80]
            inside.append((ends[0] <= truths.values[row]) & (truths.values[row] <= ends[1]))
        return np.mean(inside)

    assert held(first) < 0.55
    assert held(first.and_later(back, errors)) == pytest.approx(0.8, abs=0.01)
