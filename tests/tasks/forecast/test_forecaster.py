"""Forecasts from Python."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from bayesrnn import Forecaster
from bayesrnn.errors import ConfigError, CorpusError, MissingExtraError
from bayesrnn.tasks.forecast.report import shown_history

from .made_up import MONDAY, daily, noisy_week

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


@pytest.fixture(scope="module")
def fitted():
    """A forecaster of one series, which is not changed."""
    return Forecaster(horizon=7, method="bbb", test_windows=3, **SMALL).fit(daily(noisy_week(160)))


def test_new_values_are_judged(fitted, tmp_path):
    new = noisy_week(174)[160:]
    new[4] += 400
    later = daily(new)
    (one,) = later.series
    later = replace(later, series=(replace(one, start=MONDAY + np.timedelta64(160, "D")),))
    found = fitted.anomalies(later, window="horizon", samples=3)
    rows = found.rows()
    assert len(rows) == 14
    assert rows[4]["ds"] == "2001-06-14"
    assert rows[4]["cause"] in ("unusual value", "unfamiliar situation")
    assert rows[4]["p"] < 1e-3
    (windows,) = found.windows().values()
    assert [one["window"] for one in windows] == ["2001-06-10", "2001-06-17"]
    assert windows[0]["stranger_than"] == windows[0]["of"] > 3
    assert "2001-06-10" in found.sentences()[0]
    assert "2001-06-14" in found.table().text()
    found.to_csv(tmp_path / "found.csv")
    assert len((tmp_path / "found.csv").read_text().splitlines()) == 15
    found.to_html(tmp_path / "found.html")
    assert "<svg" in (tmp_path / "found.html").read_text()
    with pytest.raises(ConfigError, match="horizon, day, week"):
        fitted.anomalies(later, window="month")
    early = replace(later, series=(replace(one, start=MONDAY - np.timedelta64(3, "D")),))
    with pytest.raises(CorpusError, match="before the run's"):
        fitted.anomalies(early)


def test_a_plot_has_past_median_and_bands(fitted):
    pytest.importorskip("matplotlib").use("agg")
    found = fitted.forecast(samples=4, paths=40)
    axes = found.plot()
    past, median = (line.get_ydata() for line in axes.lines)
    np.testing.assert_array_equal(past, shown_history(found.outlook, 0)[0])
    np.testing.assert_array_equal(median, found.median[0])
    assert str(axes.lines[1].get_xdata()[0].astype("datetime64[D]")) == "2001-06-10"
    assert len(axes.collections) == 3
    low, high = found.interval(95)
    drawn = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert drawn.min() == pytest.approx(low.min())
    assert drawn.max() == pytest.approx(high.max())
    assert found.plot(axes=axes) is axes
    axes.figure.clear()


def test_a_plot_without_matplotlib_names_the_extra(fitted, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = fitted.forecast(samples=1, paths=10)
    with pytest.raises(MissingExtraError, match=r"bayesrnn\[plot\]"):
        found.plot()


def test_a_forecaster_has_to_be_fitted_first():
    with pytest.raises(ConfigError, match="fit"):
        Forecaster(horizon=7).forecast()
