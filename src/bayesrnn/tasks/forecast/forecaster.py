"""Forecasts from Python: fit, forecast, backtest."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesrnn.data.reading import read_series
from bayesrnn.data.series import Floats, SeriesSet
from bayesrnn.errors import ConfigError
from bayesrnn.random import seeded
from bayesrnn.report.table import Table
from bayesrnn.runs.output import write_text
from bayesrnn.runs.start import RunArguments, train_run
from bayesrnn.tasks.forecast.anomalies import WINDOWS, Judged, judge
from bayesrnn.tasks.forecast.anomalies_report import (
    anomalies_csv,
    anomalies_page,
    anomaly_rows,
    anomaly_sentences,
    flagged_table,
    window_rows,
)
from bayesrnn.tasks.forecast.backtest import Backtest, backtest, calibration_of, known_windows
from bayesrnn.tasks.forecast.data import ForecastData
from bayesrnn.tasks.forecast.evaluate import last_windows
from bayesrnn.tasks.forecast.future import forecast_future
from bayesrnn.tasks.forecast.plot import plot_forecast
from bayesrnn.tasks.forecast.report import (
    Outlook,
    outlook_csv,
    outlook_page,
    outlook_sentences,
    outlook_table,
)
from bayesrnn.tasks.forecast.slices import Places
from bayesrnn.tasks.forecast.task import ForecastTask
from bayesrnn.tasks.forecast.trained import TrainedForecaster
from bayesrnn.uncertainty.draws import Draws, networks_to_read

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: What the configuration of a run calls series that came from no file.
_IN_MEMORY = "in memory"


@dataclass(frozen=True)
class Forecast:
    """What a forecaster says of the future; arrays are [series, horizon]."""

    outlook: Outlook

    @property
    def median(self) -> Floats:
        """As likely too high as too low."""
        return self.outlook.future.median

    @property
    def mean(self) -> Floats:
        """The mean of the paths."""
        return self.outlook.future.mean

    @property
    def paths(self) -> Floats | None:
        """[series, paths, horizon]."""
        return self.outlook.future.paths

    @property
    def epistemic(self) -> Floats | None:
        """The share of the variance that is about the model; None of a single network."""
        return self.outlook.future.epistemic_share

    @property
    def novelty(self) -> list[float]:
        """How unlike its past each series ends: the share of windows that are less unusual."""
        return [share for share, _ in self.outlook.future.novelty]

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """The central interval with so many percent of the probability."""
        return self.outlook.future.interval(level)

    def sentences(self) -> list[str]:
        """In plain words."""
        return outlook_sentences(self.outlook)

    def table(self, number: int = 0) -> Table:
        """The forecasts of one series, by its number."""
        return outlook_table(self.outlook, number)

    def plot(self, number: int = 0, axes: Axes | None = None) -> Axes:
        """Draw the forecasts of one series with matplotlib; returns the axes."""
        return plot_forecast(self.outlook, number, axes)

    def to_csv(self, path: str | Path) -> None:
        """Write all forecasts: unique_id, ds, mean, median, lo-80, hi-80, ..."""
        write_text(outlook_csv(self.outlook), Path(path))

    def to_html(self, path: str | Path) -> None:
        """Write a page with pictures, which needs no other file."""
        write_text(outlook_page(self.outlook), Path(path))


@dataclass(frozen=True)
class Anomalies:
    """What a forecaster says of new values: one of `found` for each series."""

    found: Sequence[Judged]

    def rows(self) -> list[dict[str, Any]]:
        """One for each value: unique_id, ds, y, median, lo-95, hi-95, p, and cause if flagged."""
        return list(anomaly_rows(self.found))

    def windows(self) -> dict[str, list[dict[str, Any]]]:
        """By series, one row for each window: how many windows of the past were less strange."""
        return {one.name: window_rows(one) for one in self.found}

    def sentences(self) -> list[str]:
        """In plain words."""
        return anomaly_sentences(self.found)

    def table(self) -> Table:
        """The flagged values, the least probable first."""
        return flagged_table(self.found)

    def to_csv(self, path: str | Path) -> None:
        """Write the rows."""
        write_text(anomalies_csv(self.found), Path(path))

    def to_html(self, path: str | Path) -> None:
        """Write a page with pictures, which needs no other file."""
        write_text(anomalies_page(self.found, "the forecaster"), Path(path))


class Forecaster:
    """A recurrent network that forecasts series; its options are those of `train forecast`.

    horizon: steps to forecast. out: where the run is kept; a folder that goes with the object, if
    there is none.
    """

    def __init__(
        self,
        horizon: int | None = None,
        method: str = "bbb",
        *,
        out: str | Path | None = None,
        **options: Any,
    ) -> None:
        self.options = {"horizon": horizon, "method": method, **options}
        self.options = {name: value for name, value in self.options.items() if value is not None}
        if out is None:
            folder = tempfile.mkdtemp(prefix="bayesrnn-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            out = Path(folder) / "run"
        self.path = Path(out)
        self._data: ForecastData | None = None
        self._run: TrainedForecaster | None = None

    def fit(self, series: Any) -> Forecaster:
        """Train on series: a `SeriesSet`, or what `read_series` takes."""
        found = as_series(series)
        task = ForecastTask(found)
        train_run(task, RunArguments(out=self.path), {"data": _IN_MEMORY, **self.options})
        self._run = task.open_run(self.path)
        self._data = task.load(self._run.config).to(self._run.device)
        self.__dict__.pop("_backtests", None)
        return self

    @property
    def run(self) -> TrainedForecaster:
        """The trained run."""
        if self._run is None:
            raise ConfigError("the forecaster is not trained; call fit(series) first")
        return self._run

    @property
    def data(self) -> ForecastData:
        """What it was trained on."""
        if self._data is None:
            raise ConfigError("the forecaster is not trained; call fit(series) first")
        return self._data

    def forecast(
        self,
        series: Any = None,
        *,
        horizon: int | None = None,
        levels: Sequence[int] = (80, 95),
        samples: int = 20,
        paths: int = 200,
        calibrated: bool = True,
        seed: int = 1,
    ) -> Forecast:
        """What comes after the last values of the series that it learnt, or of others."""
        run = self.run
        found = self.data.series if series is None else as_series(series)
        each = self._paths(paths, samples)
        tested = self._own_backtest(samples, each, seed, tuple(levels))
        future = forecast_future(
            found,
            run.layout,
            self._draws(samples, seed),
            horizon or run.layout.horizon,
            each,
            seed,
            tested.widening if calibrated else None,
            device=run.device,
        )
        outlook = Outlook(str(run.path), "", run.layout.season, tuple(levels), future, tested)
        return Forecast(outlook)

    def backtest(
        self,
        series: Any = None,
        *,
        windows: int | None = None,
        samples: int = 20,
        paths: int = 200,
        seed: int = 1,
    ) -> Backtest:
        """Metrics on the test windows, beside seasonal naive and the last value.

        windows: only the last so many of each series. series: others, with the same slices, by
        whose own windows they are calibrated.
        """
        each = self._paths(paths, samples)
        if series is None and windows is None:
            return self._own_backtest(samples, each, seed)
        data = self.data if series is None else self.data.of_others(as_series(series))
        return self._backtest(data, last_windows(data.places("test"), windows), samples, each, seed)

    def anomalies(
        self,
        series: Any,
        *,
        window: str = "horizon",
        p: float = 0.001,
        samples: int = 10,
        seed: int = 1,
    ) -> Anomalies:
        """What is strange in new values of the series that it learnt, given all before each.

        window: horizon, day or week. p: values with a smaller tail probability are flagged.
        """
        if window not in WINDOWS:
            raise ConfigError(f"window is {window}; it has to be one of {', '.join(WINDOWS)}")
        if not 0 < p < 1:
            raise ConfigError(f"p is {p:g}; it has to be a probability above 0 and below 1")
        networks = list(self._draws(samples, seed).networks())
        return Anomalies(judge(self.data, as_series(series), networks, window, p, seed))

    @cached_property
    def _backtests(self) -> dict[tuple[Any, ...], Backtest]:
        return {}

    def _own_backtest(
        self, samples: int, paths: int, seed: int, levels: tuple[int, ...] = ()
    ) -> Backtest:
        key = (samples, paths, seed, levels)
        if key not in self._backtests:
            places = self.data.places("test")
            self._backtests[key] = self._backtest(self.data, places, samples, paths, seed, levels)
        return self._backtests[key]

    def _backtest(
        self,
        data: ForecastData,
        places: Places,
        samples: int,
        paths: int,
        seed: int,
        levels: tuple[int, ...] = (),
    ) -> Backtest:
        """The backtest of windows, in whose `widening` further levels are, too."""
        data, draws = data.to(self.run.device), self._draws(samples, seed)
        calibration = calibration_of(
            data, draws, paths, seeded(seed), levels=levels, windows=places
        )
        known = known_windows(data, places)
        return backtest(data, known, draws, paths, seeded(seed), calibration)

    def _draws(self, samples: int, seed: int) -> Draws:
        return Draws(self.run.method, self.run.net, samples, seeded(seed))

    def _paths(self, paths: int, samples: int) -> int:
        return max(2, paths // networks_to_read(self.run.method, self.run.net, samples))


def as_series(series: Any) -> SeriesSet:
    """Series, read if they are not."""
    return series if isinstance(series, SeriesSet) else read_series(series)
