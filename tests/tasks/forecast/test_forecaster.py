"""Forecasts from Python."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from bayesrnn import Forecaster
from bayesrnn.errors import ConfigError, CorpusError, MissingExtraError
from bayesrnn.tasks.forecast.panel import Panel
from bayesrnn.tasks.forecast.report import shown_history

from .made_up import MONDAY, daily, noisy_week

SMALL = {"hidden": 8, "batch_size": 8, "windows": 32, "epochs": 1, "device": "cpu", "threads": 1}
DAY = np.timedelta64(1, "D")


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
    with pytest.raises(ConfigError, match="p is 5; it has to be a probability"):
        fitted.anomalies(later, p=5.0)


def test_weeks_of_the_past_are_those_of_the_series_itself():
    """Of two series with the same values, which begin on a Monday and on a Tuesday."""
    values, tuesday = noisy_week(174), MONDAY + np.timedelta64(1, "D")
    both = daily(values[:160], values[:160])
    first, second = both.series
    both = replace(both, series=(first, replace(second, start=tuesday)))
    model = Forecaster(horizon=7, method="plain", test_windows=3, **SMALL).fit(both)
    later = replace(second, start=tuesday + np.timedelta64(160, "D"), target=values[160:])
    (found,) = model.anomalies(replace(both, series=(later,)), window="week", samples=0).found
    begin = int(model.data.slices.train_stops[1])
    days = tuesday.astype("datetime64[D]") + np.arange(begin, 160)
    mondays = days - (days.astype(int) + 3) % 7
    # Whole weeks from Monday on; by the days of the first series there would be one more.
    assert len(found.past_scores) == len(np.unique(mondays)) == len(days) // 7
    assert {name for name, _ in found.windows} <= set(map(str, mondays[-1] + 7 * np.arange(4)))


def test_new_values_without_the_covariates_are_refused():
    promotion = (np.arange(174) % 5 == 0).astype(float)
    known = daily(noisy_week(160), known={"promotion": promotion[:160]})
    model = Forecaster(horizon=7, method="plain", test_windows=3, **SMALL).fit(known)
    (one,) = daily(noisy_week(174)[160:]).series
    bare = replace(known, series=(replace(one, start=MONDAY + np.timedelta64(160, "D")),))
    with pytest.raises(CorpusError, match="s0 has no known covariate promotion"):
        model.anomalies(bare)


def test_new_values_are_read_on_the_device_of_the_run(fitted, monkeypatch):
    moved = []
    monkeypatch.setattr(Panel, "to", lambda self, device: moved.append(device) or self)
    (one,) = daily(noisy_week(167)[160:]).series
    later = replace(fitted.data.series, series=(replace(one, start=MONDAY + 160 * DAY),))
    fitted.anomalies(later, samples=0)
    assert moved == [fitted.run.device] * 2  # the past, and the new values


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
