"""The forecast task: a recurrent network that forecasts time series."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch import Tensor, nn

from bayesrnn.core.init import relative
from bayesrnn.data.series import SeriesSet
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Hints, Method, Network, Objective, Outcome
from bayesrnn.progress import say
from bayesrnn.random import RandomStreams
from bayesrnn.report.text import counted
from bayesrnn.runs.config import Recipes
from bayesrnn.runs.evaluation import EvaluationSettings
from bayesrnn.runs.held_out import Chunk, HeldOut
from bayesrnn.runs.load import load_run
from bayesrnn.runs.places import moved
from bayesrnn.runs.summary import RunSummary
from bayesrnn.runs.tab import Tab
from bayesrnn.runs.task import Measure, OwnComparison, Task, UncertaintyReport, ValidationScore
from bayesrnn.runs.verdict import Verdict
from bayesrnn.tasks.forecast import ENTRY
from bayesrnn.tasks.forecast.backtest import Known, known_windows
from bayesrnn.tasks.forecast.calibrate import forecast_verdict, window_score
from bayesrnn.tasks.forecast.compare import compare_forecasts
from bayesrnn.tasks.forecast.config import RECIPES, ForecastConfig
from bayesrnn.tasks.forecast.data import ForecastData, WindowBatches, prepare, training_targets
from bayesrnn.tasks.forecast.evaluate import (
    REFITTED,
    BacktestOptions,
    Fold,
    ForecastEvaluation,
    ForecastRow,
    evaluate_forecasts,
    evaluation_notes,
    row_details,
    row_text,
)
from bayesrnn.tasks.forecast.layout import read_layout
from bayesrnn.tasks.forecast.likelihood import horizon_log_probs, steps_of, window_loss
from bayesrnn.tasks.forecast.model import ForecastNetwork
from bayesrnn.tasks.forecast.paths import mean_path
from bayesrnn.tasks.forecast.refit import refitted
from bayesrnn.tasks.forecast.slices import Places
from bayesrnn.tasks.forecast.source import data_of, wishes_of
from bayesrnn.tasks.forecast.trained import LAYOUT_FILE, TrainedForecaster
from bayesrnn.tasks.forecast.windows import Windows
from bayesrnn.uncertainty.fitting import fitted_nll

#: Validation windows that choose the best epoch, at most: more would take longer than training.
_VALIDATED: Final = 5000


def _initialise(module: nn.Module, generator: torch.Generator) -> None:
    assert isinstance(module, ForecastNetwork)
    module.initialise(generator)


HINTS = Hints(
    deterministic=("output.bias",),
    sigma_init={"*": relative(0.25, 0.5)},
    initialise=_initialise,
    before_recurrent=("input_dropout",),
    after_dropout=("output",),
)


class ForecastTask(Task[ForecastConfig, ForecastData]):
    """Learn to forecast series from their own past."""

    name: ClassVar[str] = ForecastConfig.task
    summary: ClassVar[str] = ENTRY.summary
    example: ClassVar[str] = "bayesrnn train forecast --data sales.csv --horizon 28"
    config_type: ClassVar[type[ForecastConfig]] = ForecastConfig
    recipes: ClassVar[Recipes] = RECIPES
    unit: ClassVar[str] = "window"
    data_key: ClassVar[str] = "data"
    file_names: ClassVar[tuple[str, ...]] = (LAYOUT_FILE,)
    problem_file: ClassVar[str | None] = LAYOUT_FILE
    evaluate_options = BacktestOptions
    own_inferences: ClassVar[Mapping[str, tuple[str, str]]] = {
        REFITTED: ("refitted", "test, trained anew on the way through the windows")
    }

    def __init__(self, series: SeriesSet | None = None) -> None:
        #: What is learnt, where that is in no file.
        self._series = series

    def run_name(self, config: ForecastConfig) -> str:
        """Named by the file, method and seed."""
        return f"{Path(config.data).name.split('.')[0]}-{config.method}-seed{config.seed}"

    def load(self, config: ForecastConfig) -> ForecastData:
        """The series, cut into parts in time."""
        if self._series is not None:
            return prepare(self._series, wishes_of(config))
        return data_of(config)

    def fingerprint(self, data: ForecastData) -> str:
        """A hash of all series."""
        return data.series.fingerprint()

    def files(self, data: ForecastData) -> dict[str, str]:
        """Inputs and outputs of the network."""
        return {LAYOUT_FILE: data.layout.text()}

    def measure(self, read: Callable[[str], str]) -> Measure:
        """The error in units of that of seasonal naive on the past."""
        del read
        return Measure("mase", "MASE", digits=3)

    def build(
        self,
        config: ForecastConfig,
        files: Mapping[str, str],
        method: Method[Any],
        streams: RandomStreams,
    ) -> nn.Module:
        """A network from the inputs of a step to a distribution."""
        layout = read_layout(files[LAYOUT_FILE])
        module = ForecastNetwork(
            layout.inputs, config.hidden, config.layers, config.cell, layout.likelihood
        )
        _initialise(module, streams["init"])
        return method.build(module, HINTS)

    def problem(
        self,
        config: ForecastConfig,
        data: ForecastData,
        method: Method[Any],
        net: nn.Module,
        device: torch.device,
    ) -> "ForecastProblem":
        """Foretell the values of the training windows; prints what is learnt."""
        say(described(data))
        return ForecastProblem(
            data=data.to(device),
            batch_size=config.batch_size,
            windows=config.windows,
            seed=config.seed,
            method=method,
            net=net,
        )

    def open_run(
        self, path: Path, checkpoint: str = "best", device: str = "auto"
    ) -> TrainedForecaster:
        """A trained forecaster."""
        return load_run(self, path, checkpoint, device, TrainedForecaster)

    def evaluate(
        self, path: Path, settings: EvaluationSettings, options: BacktestOptions
    ) -> ForecastEvaluation:
        """A backtest on a split of the run's own series."""
        if options.refit and settings.split != "test":
            raise ConfigError(
                f"--refit is {options.refit}, which is for test windows, but --split is "
                f"{settings.split}; leave one of them out"
            )
        run = moved(self, self.open_run(path, settings.checkpoint, settings.device), settings)
        data = run.data()

        def trained_anew(places: Places) -> list[Fold]:
            return refitted(ForecastTask, run, data, places, options.refit)

        return evaluate_forecasts(run, data, settings, options, trained_anew)

    def held_out(self, run: TrainedForecaster, data: ForecastData, most: int) -> HeldOut:
        """Values of validation windows, in units of their windows."""
        places = data.places("valid")
        windows = data.to(run.device).windows(places)
        likelihood = data.layout.likelihood
        there = steps_of(windows, 0, data.layout.horizon)
        y = (there.y / there.unit if likelihood != "negative-binomial" else there.y)[there.is_there]

        def outputs(network: Network, state: Any) -> tuple[Tensor, Any]:
            found = horizon_log_probs(network, windows, likelihood, [1.0])[0]
            return found[:, None], state

        return HeldOut([Chunk(outputs, y.cpu().double())], self._train_targets(data), given=True)

    def _train_targets(self, data: ForecastData) -> Tensor:
        """What outputs are of on training windows: differences to the base in units, or counts."""
        windows = data.split("train")
        steps = steps_of(windows, 0, data.layout.horizon)
        if data.layout.likelihood == "negative-binomial":
            return steps.y[steps.is_there].cpu()
        return ((steps.y - steps.base) / steps.unit)[steps.is_there].cpu()

    def tab(self) -> Tab:
        """Its tab on the page of `bayesrnn serve`."""
        from bayesrnn.tasks.forecast.tab import TAB  # late: it opens runs of this task

        return TAB

    def score(
        self, run: TrainedForecaster, data: ForecastData, whole: bool = False
    ) -> ValidationScore:
        """The density of the values of validation windows."""
        return window_score(run, data, whole)

    def verdict(self, run: TrainedForecaster, data: ForecastData) -> Verdict | None:
        """Whether its intervals can be believed, and whether it beats seasonal naive."""
        return forecast_verdict(run, data)

    def compare(self, summaries: Sequence[RunSummary]) -> OwnComparison | None:
        """Which differences between forecasts are more than chance."""
        table = compare_forecasts([one for one in summaries if one.task is self])
        return None if table is None else OwnComparison("Forecasts side by side", table)

    def uncertainty(self) -> UncertaintyReport:
        """What intervals hold: by step, by length of history, by novelty, of series never seen."""
        from bayesrnn.tasks.forecast.uncertainty import REPORT  # late: it opens runs of this task

        return REPORT

    def line(self, row: ForecastRow) -> str:
        """The metrics of a row."""
        return row_text(row)

    def details(self, row: ForecastRow) -> list[str]:
        """What its intervals held."""
        return row_details(row)

    def notes(self, evaluation: ForecastEvaluation) -> list[str]:
        """What naive forecasts reach."""
        return evaluation_notes(evaluation)


@dataclass(frozen=True)
class ForecastProblem:
    """The training loop's view of the forecast task."""

    data: ForecastData
    batch_size: int
    windows: int
    seed: int
    method: Method[Any]
    net: nn.Module

    def minibatches(self, epoch: int) -> WindowBatches:
        """Other training windows in every epoch."""
        return WindowBatches(self.data, self.batch_size, self.windows, self.seed, epoch)

    def objective(self, batch: Windows, state: Any) -> Objective:
        """The loss of a minibatch of windows; there is no state."""
        del state
        likelihood = self.data.layout.likelihood

        def objective(network: Network) -> Outcome:
            return Outcome(window_loss(batch, network, likelihood), None)

        return objective

    def loss_metrics(self, nll: float) -> dict[str, float]:
        """The loss itself."""
        return {"nll": nll}

    @cached_property
    def _valid(self) -> tuple[Windows, Known]:
        places = self.data.places("valid").spread(_VALIDATED)
        return self.data.windows(places), known_windows(self.data, places)

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """How well the mean weights foretell validation windows.

        The likelihood is of each value given those before it; MASE is of a single path of means.
        """
        windows, known = self._valid
        network, likelihood = self.method.mean(self.net), self.data.layout.likelihood

        def log_probs(temperatures: Sequence[float]) -> Tensor:
            return horizon_log_probs(network, windows, likelihood, temperatures)

        path = mean_path(network, windows, likelihood).cpu().numpy()
        scales = np.where(known.truths.scales > 0, known.truths.scales, np.nan)[:, None]
        errors = np.abs(known.truths.values - path) / scales
        return {
            "nll": -log_probs([1.0]).double().mean().item(),
            # Of series that repeat themselves exactly there is none.
            "mase": float(np.nanmean(errors)) if np.isfinite(errors).any() else math.nan,
            "fitted_nll": fitted_nll(log_probs),
        }


def described(data: ForecastData) -> str:
    """What was read, and what is learnt of it, in two lines."""
    layout, slices = data.layout, data.slices
    parts = ", ".join(f"{counted(n, 'window')} {part}" for part, n in slices.windows.items() if n)
    base = {
        "seasonal": f"the difference to the value {layout.season} before",
        "last": "the difference to the last value",
        "none": "the value itself",
    }[layout.base]
    own = (
        f"{counted(training_targets(data), 'value')} to train on; {parts}, of {layout.horizon} "
        f"values each; learnt is {base} ({layout.likelihood})"
    )
    return "\n".join(line for line in (data.series.description, own) if line)


TASK = ForecastTask()
