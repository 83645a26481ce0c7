"""Train a forecaster anew on the way through its test windows, on all that lies before them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bayesrnn.data.series import SeriesSet
from bayesrnn.errors import ConfigError, Interrupted
from bayesrnn.progress import say
from bayesrnn.runs.start import RunArguments, train_run
from bayesrnn.runs.task import Task
from bayesrnn.tasks.forecast.config import ForecastConfig
from bayesrnn.tasks.forecast.data import ForecastData
from bayesrnn.tasks.forecast.evaluate import Fold
from bayesrnn.tasks.forecast.slices import Places
from bayesrnn.tasks.forecast.trained import TrainedForecaster

#: Makes a task that learns from these series.
TaskOf = Callable[[SeriesSet], Task[ForecastConfig, ForecastData]]


def refitted(
    task_of: TaskOf, run: TrainedForecaster, data: ForecastData, places: Places, count: int
) -> list[Fold]:
    """The windows in as many parts as networks, of which the first is the run's own.

    Of each series the parts follow each other in time. Each other network is trained with the
    settings and the seed of the run on what lies before its part, cut into slices as the run's is.
    """
    if not run.path.is_dir():
        raise ConfigError(
            f"--refit is {count}, but {run.path} is a pruned network, which is not trained; give "
            "the folder of a run"
        )
    horizon = data.layout.horizon
    # How many windows from the end each one is, counted from 1.
    back = (data.slices.lengths[places.series] - places.starts) // horizon
    numbers = sorted(set(back.tolist()), reverse=True)
    if count >= len(numbers):
        raise ConfigError(
            f"--refit is {count}, but there are {len(numbers)} windows one after the other, the "
            f"first of which is for the run as it is; give at most {len(numbers) - 1}"
        )
    folds, own = list[Fold](), data.to(run.device)
    for part, of in enumerate(np.array_split(np.array(numbers), count + 1)):
        first, last = int(of[0]), int(of[-1])
        chosen = (back <= first) & (back >= last)
        origins = Places(places.series[chosen], places.starts[chosen])
        if not part:
            folds.append(Fold(run, own, origins, origins))
            continue
        say(f"training anew, {part} of {count}, up to {first * horizon:,} values before the end")
        folds.append(_fold(task_of, run, data, origins, first, last))
    return folds


def _fold(
    task_of: TaskOf,
    run: TrainedForecaster,
    data: ForecastData,
    origins: Places,
    first: int,
    last: int,
) -> Fold:
    """A network trained on what lies before the windows `first`, ..., `last` from the end."""
    horizon, series = data.layout.horizon, data.series
    stops = [len(one.target) - (last - 1) * horizon for one in series.series]
    # What had no value by then did not exist.
    kept = [
        number
        for number, (one, stop) in enumerate(zip(series.series, stops, strict=True))
        if stop > 0 and not np.isnan(one.target[:stop]).all()
    ]
    parts = tuple(series.part(series.series[number], 0, stops[number]) for number in kept)
    task = task_of(replace(series, series=parts))
    with tempfile.TemporaryDirectory(prefix="bayesrnn-") as folder:
        settings, out = Path(folder) / "config.toml", Path(folder) / "run"
        settings.write_text(run.config.to_toml(), encoding="utf-8")
        given: dict[str, Any] = {
            "horizon": horizon,
            # Decided once, so that likelihoods of all networks are of the same thing.
            "base": data.layout.base,
            "likelihood": data.layout.likelihood,
            "validation_windows": data.slices.windows["valid"],
            "calibration_windows": data.slices.windows["calibration"],
            "test_windows": first - last + 1,
            "device": run.device.type,
            "calibrate": False,
            "tensorboard": False,
        }
        try:
            train_run(task, RunArguments(out=out, config=settings), given)
        except Interrupted as stopped:
            raise Interrupted(
                stopped.signal_number, "stopped while training anew; nothing was evaluated"
            ) from None
        trained = task.open_run(out, device=run.device.type)
        own = task.load(trained.config)
    assert isinstance(trained, TrainedForecaster)
    number_of = {number: place for place, number in enumerate(kept)}
    there = torch.tensor([number in number_of for number in origins.series.tolist()])
    origins = Places(origins.series[there], origins.starts[there])
    numbers = torch.tensor([number_of[number] for number in origins.series.tolist()])
    return Fold(trained, own.to(run.device), Places(numbers, origins.starts), origins)
