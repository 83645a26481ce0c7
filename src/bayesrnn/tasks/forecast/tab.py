"""The tab of forecasts: a fan into the future, what naive says, a backtest, and strange values."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from bayesrnn.data.series import Floats, SeriesSet
from bayesrnn.errors import BayesRNNError, ConfigError, CorpusError
from bayesrnn.options import CheckedOptions, option
from bayesrnn.random import seeded
from bayesrnn.report.table import Table
from bayesrnn.report.text import counted
from bayesrnn.runs.arguments import seed_option
from bayesrnn.runs.tab import Question, Tab, about_draws
from bayesrnn.tasks.forecast.anomalies import UNFAMILIAR_SHARE
from bayesrnn.tasks.forecast.backtest import Backtest
from bayesrnn.tasks.forecast.data import ForecastData, require_suits
from bayesrnn.tasks.forecast.forecasting import backtest_of, own_data
from bayesrnn.tasks.forecast.future import forecast_future, naive_future
from bayesrnn.tasks.forecast.report import (
    Outlook,
    backtest_table,
    outlook_sentences,
    shown_history,
)
from bayesrnn.tasks.forecast.scan import one_series, scan_series
from bayesrnn.tasks.forecast.source import series_of
from bayesrnn.tasks.forecast.task import TASK
from bayesrnn.tasks.forecast.trained import TrainedForecaster
from bayesrnn.uncertainty.draws import Draws, networks_to_read

#: Percent of the probability in the intervals of the fan.
LEVELS: Final = (50, 80, 95)
#: Bytes of a CSV file, and the steps ahead and series of it, at most.
MOST_BYTES: Final = 20_000_000
MOST_STEPS: Final = 400
MOST_SERIES: Final = 500
#: Paths of all draws together; draws and paths of the backtest, which is made once for a run.
_PATHS: Final = 200
_TESTED_DRAWS, _TESTED_PATHS = 5, 100
#: Values that are looked at for strange ones, at most, and the chance below which one is.
_SCANNED: Final = 120
_STRANGE: Final = 0.001
_SCANNING_DRAWS: Final = 4


@dataclass(frozen=True, kw_only=True)
class FanOptions(CheckedOptions):
    """Which series is forecast, and how."""

    series: int = option(0, "the number of the series", ge=0)
    horizon: int = option(0, "steps to forecast; 0: as trained", ge=0, le=MOST_STEPS)
    samples: int = option(10, "draws of the network", ge=1, le=20)
    seed: int = seed_option()


@dataclass
class OpenForecaster:
    """A forecaster, the series that it learnt from, and its backtest, once that was asked for."""

    run: TrainedForecaster
    own: ForecastData | None
    tested: Backtest | None = field(default=None)

    def backtest(self) -> Backtest | None:
        """The scores on the test windows; None without the data."""
        if self.tested is None and self.own is not None:
            draws = self.draws(_TESTED_DRAWS)
            paths = max(2, _TESTED_PATHS // networks_to_read(*self._network, _TESTED_DRAWS))
            self.tested = backtest_of(self.own, draws, paths, 1, LEVELS)
        return self.tested

    def draws(self, samples: int, seed: int = 1) -> Draws:
        """Draws as trained, as for `bayesrnn forecast`."""
        return Draws(*self._network, samples, seeded(seed))

    def paths(self, samples: int) -> int:
        """The paths of each draw."""
        return max(2, _PATHS // networks_to_read(*self._network, samples))

    @property
    def _network(self) -> tuple[Any, Any]:
        return self.run.method, self.run.net


def fan(opened: OpenForecaster, options: FanOptions, content: bytes) -> dict[str, Any]:
    """The forecast of one series, of the run's own or of a CSV file in `content`."""
    run, series = opened.run, _series(opened, content)
    names = [one.name for one in series.series]
    one = _chosen(series, options.series)
    horizon = options.horizon or run.layout.horizon
    tested = opened.backtest()
    widening = None if tested is None else tested.widening
    future = forecast_future(
        one,
        run.layout,
        opened.draws(options.samples, options.seed),
        horizon,
        opened.paths(options.samples),
        options.seed,
        widening,
        device=run.device,
    )
    outlook = Outlook(str(run.path), "", run.layout.season, (80, 95), future, tested)
    history, first = shown_history(outlook, 0)
    naive = naive_future(one, horizon, run.layout.season)
    model = future.ignorance_band()
    return {
        "draws": opened.draws(options.samples).differing(options.samples),
        "names": names[:MOST_SERIES],
        "name": one.series[0].name,
        "read": series.description if content else "",
        "labels": one.labels(one.series[0], first, len(history) + horizon),
        "history": history.tolist(),
        "median": future.median[0].tolist(),
        "naive": naive.median[0].tolist(),
        "bands": {level: _band(*future.interval(level)) for level in reversed(LEVELS)},
        "model": None if model is None else _band(*model),
        "calibrated": widening is not None,
        "sentences": outlook_sentences(outlook),
        "backtest": None if tested is None else _table(backtest_table(tested, run.layout.season)),
    }


def strange(opened: OpenForecaster, options: FanOptions, content: bytes) -> dict[str, Any]:
    """Which of the last values of a series are strange, given all that came before each."""
    run, series = opened.run, _series(opened, content)
    one = _chosen(series, options.series)
    require_suits(one, run.layout)
    length = len(one.series[0].target)
    first = max(run.layout.fewest, length - _SCANNED)
    if first >= length:
        raise CorpusError(
            f"{one.series[0].name} has {counted(length, 'value')}, too few to look for strange "
            f"ones: {run.layout.fewest} have to come before"
        )
    networks = list(opened.draws(_SCANNING_DRAWS, options.seed).networks())
    found = scan_series(one, run.layout, networks, first, seeded(options.seed), device=run.device)
    labels = one.labels(one.series[0], first, length - first)
    values = one.series[0].target[first:]
    places = np.flatnonzero(found.p < _STRANGE).tolist()
    return {
        "looked": length - first,
        "chance": _STRANGE,
        "strange": [
            {
                "label": labels[place],
                "value": float(values[place]),
                "expected": float(found.median[place]),
                "low": float(found.low[place]),
                "high": float(found.high[place]),
                "p": float(found.p[place]),
                "epistemic": float(found.epistemic[place]),
                "cause": "unfamiliar situation"
                if found.epistemic[place] >= UNFAMILIAR_SHARE
                else "unusual value",
            }
            for place in places
        ],
    }


def _series(opened: OpenForecaster, content: bytes) -> SeriesSet:
    """The series of a file, or the run's own."""
    if not content:
        if opened.own is None:
            raise CorpusError(
                "the series that this run learnt from are not where they were; drop a CSV file"
            )
        return opened.own.series
    if content.startswith(b"\x1f\x8b"):
        raise CorpusError("the file is compressed; unpack it first")
    with tempfile.TemporaryDirectory(prefix="bayesrnn-") as folder:
        path = Path(folder, "the-file.csv")
        path.write_bytes(content)
        try:
            return series_of(opened.run.config, str(path), opened.run.layout)
        except BayesRNNError as error:
            raise CorpusError(str(error).replace(str(path), "the file")) from None


def _chosen(series: SeriesSet, number: int) -> SeriesSet:
    if number >= len(series.series):
        raise ConfigError(
            f"there is no series number {number}; there are {len(series.series)}, from 0 on"
        )
    return one_series(series, number)


def _band(low: Floats, high: Floats) -> list[list[float]]:
    return [low[0].tolist(), high[0].tolist()]


def _table(table: Table) -> dict[str, Any]:
    return {"header": list(table.header), "rows": table.rows, "left": list(table.left)}


def _open(path: Path) -> OpenForecaster:
    run = TASK.open_run(path, device="cpu")
    return OpenForecaster(run, own_data(run))


def about(opened: OpenForecaster) -> dict[str, Any]:
    """What the page has to know of it."""
    # Each answer says of its intervals whether they are calibrated.
    return {**about_draws(opened.run), "calibrated": False}


TAB = Tab(
    title="Forecast",
    script="tasks/forecast/tab.js",
    open=_open,
    about=about,
    questions={
        "fan": Question(FanOptions, fan),
        "fan-of-file": Question(FanOptions, fan, MOST_BYTES, "CSV file"),
        "strange": Question(FanOptions, strange),
        "strange-in-file": Question(FanOptions, strange, MOST_BYTES, "CSV file"),
    },
)
