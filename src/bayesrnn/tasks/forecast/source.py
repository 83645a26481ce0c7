"""The series that a configuration names."""

import gzip
from importlib.resources import files
from typing import Final

import numpy as np

from bayesrnn.data.files import with_home
from bayesrnn.data.reading import read_series
from bayesrnn.data.series import Frequency, Series, SeriesSet
from bayesrnn.errors import CorpusError
from bayesrnn.tasks.forecast.config import BIRTHS, ForecastConfig
from bayesrnn.tasks.forecast.data import ForecastData, Wishes, prepare
from bayesrnn.tasks.forecast.layout import Layout

#: The share of places with a value, below which a file has another step.
_FEWEST_THERE: Final = 0.5


def series_of(
    config: ForecastConfig, data: str | None = None, layout: Layout | None = None
) -> SeriesSet:
    """The series of a file of the user's, or those that come with the program.

    data: another file of the same form, maybe too short to show the step and the season that the
        `layout` of a trained run knows.
    """
    given = data or config.data
    if given == BIRTHS:
        return births()
    found = read_series(
        with_home(given),
        time_col=config.time_col,
        target_col=config.target_col,
        id_col=config.id_col,
        date_format=config.date_format,
        freq=config.freq or (layout.frequency or None if layout else None),
        season=config.season or (layout.season if layout else None),
        wide=config.wide,
        duplicates=config.duplicates,
        known=config.known,
        past=config.past,
        static=config.static,
    )
    if layout is not None:
        _require_dense(found, given, layout)
    return found


def _require_dense(series: SeriesSet, given: str, layout: Layout) -> None:
    """Refuse series most of whose places are empty: they have another step than the run."""
    values = np.concatenate([one.target for one in series.series])
    share = float((~np.isnan(values)).mean())
    if share < _FEWEST_THERE:
        raise CorpusError(
            f"{given} has values for only {share:.0%} of the steps of {layout.frequency} that the "
            "run was trained on; give series with the same step"
        )


def births() -> SeriesSet:
    """The births of each day in the United States, 1969 to 1988 (NVSS, public domain)."""
    packed = files("bayesrnn") / "data" / "bundled" / "us-births.csv.gz"
    rows = gzip.decompress(packed.read_bytes()).decode().splitlines()[1:]
    y = np.array([float(row.split(",")[-1]) for row in rows])
    start = np.datetime64(rows[0].split(",")[0].strip('"'), "s")
    return SeriesSet((Series("births", start, y),), Frequency("day"), 7, (7,))


def data_of(config: ForecastConfig) -> ForecastData:
    """What a forecaster of this configuration learns from."""
    return prepare(series_of(config), wishes_of(config))


def wishes_of(config: ForecastConfig) -> Wishes:
    """What the user said of the forecaster."""
    return Wishes(
        horizon=config.horizon,
        context=config.context,
        lags=config.lags,
        base=config.base,
        likelihood=config.likelihood,
        non_negative=config.non_negative,
        valid=config.validation_windows,
        calibration=config.calibration_windows,
        test=config.test_windows,
    )
