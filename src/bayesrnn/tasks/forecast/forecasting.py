"""Forecast the future of a run's series, or of others: what `bayesrnn forecast` does."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bayesrnn.data.known import read_known
from bayesrnn.data.series import SeriesSet
from bayesrnn.errors import BayesRNNError, ConfigError
from bayesrnn.options import option
from bayesrnn.progress import progress_bar, say
from bayesrnn.random import seeded
from bayesrnn.runs.arguments import JsonOptions, RunOptions, seed_option
from bayesrnn.runs.output import require_writable, write_json, write_text
from bayesrnn.tasks.forecast.backtest import (
    Advance,
    Backtest,
    backtest,
    calibrating,
    calibration_of,
    known_windows,
)
from bayesrnn.tasks.forecast.data import ForecastData
from bayesrnn.tasks.forecast.future import forecast_future, naive_future
from bayesrnn.tasks.forecast.report import (
    Outlook,
    outlook_chart,
    outlook_csv,
    outlook_json,
    outlook_page,
    outlook_text,
    paths_csv,
)
from bayesrnn.tasks.forecast.source import series_of
from bayesrnn.tasks.forecast.task import TASK
from bayesrnn.tasks.forecast.trained import TrainedForecaster
from bayesrnn.uncertainty.draws import Draws, networks_to_read

#: Test windows that stand beside a forecast, at most; `evaluate` takes all.
TESTED_WINDOWS: Final = 200


@dataclass(frozen=True, kw_only=True)
class ForecastOptions(RunOptions, JsonOptions):
    """What is forecast, how far, and where it is written."""

    data: str | None = option(
        None, "later values, or other series, read as those of the run", metavar="FILE"
    )
    horizon: int | None = option(None, "steps to forecast (default: as trained)", gt=0)
    level: tuple[int, ...] = option(
        (80, 95), "percent of the probability in the intervals", commas=True, ge=1, le=99
    )
    samples: int = option(20, "draws of the network; 0: the mean weights alone", ge=0)
    paths: int = option(200, "paths into the future of each series, of all draws together", ge=10)
    sum: str | None = option(
        None, "also the totals of whole days or weeks", choices=("day", "week")
    )
    raw: bool = option(
        False,
        "intervals as the network has them, not widened or narrowed by what the calibration "
        "windows held",
    )
    future: Path | None = option(
        None, "a file with the future of covariates that are known ahead", metavar="FILE"
    )
    method: str = option(
        "run",
        "run: the network; seasonal-naive: the last season again, in the same form",
        choices=("run", "seasonal-naive"),
    )
    csv: Path | None = option(None, "the table (default: forecast.csv in the folder of the run)")
    html: Path | None = option(
        None,
        "the page, or the chart of the first series alone if it ends in .svg (default: "
        "forecast.html in the folder of the run)",
    )
    paths_out: Path | None = option(None, "also write all paths to this file", metavar="FILE")
    seed: int = seed_option("seed of draws and paths")


def forecast_run(options: ForecastOptions) -> str:
    """The forecasts as text; table and page are written."""
    run = TASK.open_run(options.run, options.checkpoint, options.device)
    csv = options.csv or run.own_file("forecast.csv")
    html = options.html or run.own_file("forecast.html")
    for path in (csv, html, options.paths_out, options.json):
        if path is not None and str(path) != "-":
            require_writable(path)
    # As trained: noise that was fitted to the windows which chose the epoch would be too small,
    # and intervals are calibrated on windows that have chosen nothing.
    draws = Draws(run.method, run.net, options.samples, seeded(options.seed))
    networks = networks_to_read(run.method, run.net, options.samples)
    paths = max(2, options.paths // networks)
    own = own_data(run)
    series = own.series if own is not None and options.data is None else _series(run, options)
    horizon = options.horizon or run.layout.horizon
    if options.future is not None:
        series = _with_known(run, series, options.future, horizon)
    tested = None
    tried = 0 if own is None else _tested_values(own)
    steps = (tried + len(series.series) * horizon) * networks * paths
    with progress_bar(steps, " values", "forecasting", delay=1.0) as bar:
        if own is not None:
            tested = backtest_of(own, draws, paths, options.seed, options.level, bar.update)
        if options.method == "seasonal-naive":
            future = naive_future(series, horizon, run.layout.season)
        else:
            kept = None if options.raw or tested is None else tested.widening
            future = forecast_future(
                *(series, run.layout, draws, horizon, paths, options.seed, kept),
                advance=bar.update,
                device=run.device,
            )
    outlook = Outlook(
        run=str(options.run),
        unit=run.config.target_col or _unit(run),
        season=run.layout.season,
        levels=options.level,
        future=future,
        tested=tested,
        total_by=options.sum,
    )
    write_text(outlook_csv(outlook), csv)
    is_chart = html.suffix.lower() == ".svg"
    write_text(str(outlook_chart(outlook, 0)) if is_chart else outlook_page(outlook), html)
    if options.paths_out is not None:
        write_text(paths_csv(outlook), options.paths_out)
    if options.json is not None:
        write_json(outlook_json(outlook), options.json)
    return f"{outlook_text(outlook)}\nwritten: {csv} and {html}"


def own_data(run: TrainedForecaster) -> ForecastData | None:
    """The series that a run learnt from; None, with a note, where they are gone or differ."""
    try:
        data = run.data()
    except BayesRNNError as error:
        say(
            f"note: {error}; without the run's own series intervals are not calibrated, and there "
            "is no backtest"
        )
        return None
    return data.to(run.device)


def backtest_of(
    data: ForecastData,
    draws: Draws,
    paths: int,
    seed: int,
    levels: tuple[int, ...] = (),
    advance: Advance = lambda number: None,
) -> Backtest:
    """The test windows of a run, calibrated by those before."""
    generator = seeded(seed)
    calibration = calibration_of(data, draws, paths, generator, advance, levels)
    known = known_windows(data, data.places("test").spread(TESTED_WINDOWS))
    return backtest(data, known, draws, paths, generator, calibration, advance)


def _tested_values(data: ForecastData) -> int:
    """The values of each path of a backtest, calibration included."""
    windows = len(data.places("test").spread(TESTED_WINDOWS).series)
    windows += len(calibrating(data).series)
    return windows * data.layout.horizon


def _series(run: TrainedForecaster, options: ForecastOptions) -> SeriesSet:
    series = series_of(run.config, options.data, run.layout)
    if series.description:
        say(series.description)
    return series


def _with_known(run: TrainedForecaster, series: SeriesSet, path: Path, horizon: int) -> SeriesSet:
    if not run.layout.known:
        raise ConfigError(
            f"--future is {path}, but the run knows no covariates that are known ahead; leave it "
            "out, or train with --known"
        )
    config = run.config
    return read_known(
        path,
        series,
        horizon,
        time_col=config.time_col,
        id_col=config.id_col,
        date_format=config.date_format,
    )


def _unit(run: TrainedForecaster) -> str:
    return "births" if run.config.data == "births" else ""
