"""The windows that the uncertainty of a forecaster is measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.tasks.forecast.backtest import known_windows
from bayesrnn.tasks.forecast.data import ForecastData
from bayesrnn.tasks.forecast.scores import Truths
from bayesrnn.tasks.forecast.slices import Places
from bayesrnn.tasks.forecast.source import series_of
from bayesrnn.tasks.forecast.trained import TrainedForecaster
from bayesrnn.tasks.forecast.uncertainty_results import BY_HISTORY, BY_SERIES

#: The windows of the run's own series, with all that lies before them.
WHOLE: Final = "all of it"
#: Lengths of history that are tried, in the shortest one that can be forecast from.
_HISTORIES: Final = (1, 2, 4)


@dataclass(frozen=True)
class MeasuredWindows:
    """Windows that are forecast together: those of a row of a table.

    series: the numbers of the series that they are of, also where each was cut out by itself.
    back: what the windows before them are counted from; of series never seen, 0, the end.
    """

    table: str
    name: str
    data: ForecastData
    places: Places
    truths: Truths
    series: Tensor
    back: NDArray[np.int64]


def measured_windows(
    run: TrainedForecaster, split: str, most: int, shifts: Sequence[str]
) -> list[MeasuredWindows]:
    """Windows of the run's own series with less and less of their history cut off, and those of the
    files `shifts`; of each kind at most so many."""
    data = run.data()
    places = data.places(split).spread(most)
    if not len(places.series):
        raise ConfigError(
            f"--split is {split}, of which {run.path} has no window; give the other one"
        )
    truths, back = known_windows(data, places).truths, data.slices.back(places).numpy()
    found = []
    for length in (times * data.layout.fewest for times in _HISTORIES):
        if length < int(places.starts.min()):
            short = _shortened(data, places, length)
            numbers = torch.arange(len(places.series))
            starts = Places(numbers, torch.full_like(numbers, length))
            # Scales of the whole history: errors of the same windows have the same unit.
            name = f"the last {length:,} values"
            found.append(
                MeasuredWindows(BY_HISTORY, name, short, starts, truths, places.series, back)
            )
    found.append(MeasuredWindows(BY_HISTORY, WHOLE, data, places, truths, places.series, back))
    return [*found, *(_of_others(run, data, Path(given), split, most) for given in shifts)]


def _of_others(
    run: TrainedForecaster, data: ForecastData, path: Path, split: str, most: int
) -> MeasuredWindows:
    other = data.of_others(series_of(run.config, str(path), run.layout))
    places = other.places(split).spread(most)
    if not len(places.series):
        raise CorpusError(
            f"--shift is {path}, whose series are too short for a window of {data.layout.horizon} "
            f"values after {data.layout.fewest}; give longer ones"
        )
    truths = known_windows(other, places).truths
    name = f"never seen: {path.name}"
    back = np.zeros(len(places.series), dtype=np.int64)
    return MeasuredWindows(BY_SERIES, name, other, places, truths, places.series, back)


def _shortened(data: ForecastData, places: Places, length: int) -> ForecastData:
    """Of each window a series of its own, which begins so many values before the window."""
    horizon, made = data.layout.horizon, []
    pairs = zip(places.series.tolist(), places.starts.tolist(), strict=True)
    for of, start in pairs:
        one = data.series.series[of]
        made.append(data.series.part(one, start - length, start + horizon))
    return data.of_others(replace(data.series, series=tuple(made)))
