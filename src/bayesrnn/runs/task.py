"""What a task is, and a trained run of one.

A task is one folder of `tasks/` and one line of its registry. Everything that shared code asks of
a task is here; nothing else of the program knows what is learnt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import torch
from torch import nn

from bayesrnn.methods.base import Method
from bayesrnn.options import CheckedOptions
from bayesrnn.progress import say
from bayesrnn.random import RandomStreams
from bayesrnn.report.table import Table
from bayesrnn.report.text import number_text
from bayesrnn.runs.arguments import ReportOptions
from bayesrnn.runs.calibration import Calibration, scaling_words
from bayesrnn.runs.config import Recipes, TrainingConfig, resolve
from bayesrnn.runs.evaluation import Evaluation, EvaluationSettings
from bayesrnn.runs.held_out import HeldOut
from bayesrnn.runs.output import require_outputs, write_json, write_text
from bayesrnn.runs.pruning.bench import Measurement, on_validation_data
from bayesrnn.runs.verdict import Verdict
from bayesrnn.training.problem import Problem
from bayesrnn.uncertainty.fitting import Score
from bayesrnn.uncertainty.scaling import UNSCALED, Scaling

if TYPE_CHECKING:
    from bayesrnn.runs.summary import RunSummary
    from bayesrnn.runs.tab import Tab

Config = TypeVar("Config", bound=TrainingConfig)
Data = TypeVar("Data")


@dataclass(frozen=True)
class Measure:
    """The metric by which runs of a task are compared: its key in records, and how it is shown."""

    key: str
    title: str
    factor: float = 1.0
    digits: int = 2
    #: How the metric on the training set came about.
    train: str = "while training"

    def read(self, metrics: Mapping[str, Any], prefix: str = "") -> float | None:
        """The metric in the unit that is shown; None where there is no finite number."""
        number = finite_number(metrics.get(prefix + self.key))
        return None if number is None else number * self.factor

    def text(self, value: float | None) -> str:
        """A value in the unit that is shown; `-` where there is none."""
        return number_text(value, self.digits)


#: No finite number of ours is as large; whole numbers have no infinity.
_BEYOND = 1e308

PERPLEXITY = Measure("perplexity", "perplexity")


@dataclass(frozen=True)
class NoOptions(CheckedOptions):
    """A command has no options for runs of this task alone."""


class OwnComparison(NamedTuple):
    """What a task has to say of several runs beside the table of all tasks."""

    title: str
    table: Table
    #: What came out of it, for the top of a page.
    sentence: str = ""


class UncertaintyReport(NamedTuple):
    """How the uncertainty of several runs of a task is measured and shown.

    options: a dataclass of options.
    measure: what is found, given runs, options, a checkpoint and a device.
    page, as_json, text: the same as a page, as values for a JSON file, and for a terminal.
    """

    options: type[CheckedOptions]
    measure: Callable[[Sequence[Path], Any, str, str], Any]
    page: Callable[[Any], str]
    as_json: Callable[[Any], Any]
    text: Callable[[Any], str]

    def report(self, where: ReportOptions, options: Any) -> str:
        """The text; the page and JSON are written if `where` asks for them."""
        require_outputs(where.html, where.json)
        found = self.measure(where.runs, options, where.checkpoint, where.device)
        if where.html is not None:
            write_text(self.page(found), where.html)
        if where.json is not None:
            write_json(self.as_json(found), where.json)
        return self.text(found)


class ValidationScore(NamedTuple):
    """What the predictions of a run are calibrated by.

    unit: what is predicted, in the singular.
    score: the log-probability of each truth under a network, at several temperatures.
    whole: whether of all validation data.
    longer: of more validation data, to fit temperatures to once the noise is known.
    """

    unit: str
    score: Score
    whole: bool = False
    longer: Score | None = None


class Task(ABC, Generic[Config, Data]):
    """Something to learn: its configuration, its data, its network, and how good a run of it is."""

    #: The word after `bayesrnn train`.
    name: ClassVar[str]
    #: What `bayesrnn train --help` says of it, and a command to start from.
    summary: ClassVar[str]
    example: ClassVar[str]
    config_type: ClassVar[type[TrainingConfig]]
    #: Settings under which methods are known to train it.
    recipes: ClassVar[Recipes]
    #: What is counted, in the singular.
    unit: ClassVar[str]
    #: The entry of the configuration that says what was learnt.
    data_key: ClassVar[str]
    #: The files that a trained network needs to be used (`files`), by name.
    file_names: ClassVar[tuple[str, ...]] = ()
    #: Which of them differs between problems on the same data.
    problem_file: ClassVar[str | None] = None
    #: Whether a run can start from another one, on other data: its inputs and outputs can stay.
    can_start_from: ClassVar[bool] = False
    #: Whether training meets numbers so small that they are better taken for 0.
    flush_denormals: ClassVar[bool] = False
    #: A dataclass of `option` fields: what `bayesrnn evaluate` can be asked of these runs alone.
    evaluate_options: ClassVar[type[CheckedOptions]] = NoOptions
    #: The same of `bayesrnn prune`.
    prune_options: ClassVar[type[CheckedOptions]] = NoOptions

    #: Inferences that only this task's runs have, by the start of their name: the title of a
    #: column in `bayesrnn compare`, and a note on it.
    own_inferences: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def resolve(
        self,
        given: Mapping[str, Any],
        file: Mapping[str, Any] | None = None,
        saved: bool = False,
    ) -> Config:
        """A full configuration from what the user gave and a configuration file.

        saved: whether the file is that of a run, maybe of an earlier version.
        """
        return cast(Config, resolve(self.config_type, self.recipes, given, file, saved))

    @abstractmethod
    def run_name(self, config: Config) -> str:
        """The name of the run's folder, if the user gives none."""

    @abstractmethod
    def load(self, config: Config) -> Data:
        """The data."""

    def load_for(self, run: Any) -> Data:
        """The data that a run learnt from."""
        return self.load(run.config)

    def about_data(self, data: Data) -> list[str]:
        """What is to be said of the data when training begins: a line, and warnings."""
        del data
        return []

    @abstractmethod
    def fingerprint(self, data: Data) -> str:
        """A hash of the training data."""

    def files(self, data: Data) -> dict[str, str]:
        """Texts to keep in the run's folder, named `file_names`."""
        del data
        return {}

    @abstractmethod
    def measure(self, read: Callable[[str], str]) -> Measure:
        """How runs are compared; what chooses their best epoch is the likelihood.

        `read` returns the text of one of `files` by its name.
        """

    @abstractmethod
    def build(
        self, config: Config, files: Mapping[str, str], method: Method[Any], streams: RandomStreams
    ) -> nn.Module:
        """What the method trains, at its start."""

    @abstractmethod
    def problem(
        self, config: Config, data: Data, method: Method[Any], net: nn.Module, device: torch.device
    ) -> Problem:
        """What the training loop needs to know."""

    @abstractmethod
    def open_run(
        self, path: Path, checkpoint: str = "best", device: str = "auto"
    ) -> TrainedRun[Config]:
        """A trained run from its folder."""

    @abstractmethod
    def evaluate(self, path: Path, settings: EvaluationSettings, options: Any) -> Evaluation:
        """Evaluate a run; `options` is an `evaluate_options`."""

    @abstractmethod
    def line(self, row: Any) -> str:
        """The metrics of a row of `evaluate` as text; nothing where `details` say all."""

    def details(self, row: Any) -> list[str]:
        """Further lines below a row."""
        del row
        return []

    def notes(self, evaluation: Any) -> list[str]:
        """Notes below all rows."""
        del evaluation
        return []

    def held_out(self, run: Any, data: Data, most: int) -> HeldOut | None:
        """About `most` predictions of a run on the validation set; None without a likelihood."""
        del run, data, most
        return None

    def pruning_measurement(self, run: Any, data: Data, options: Any) -> Measurement:
        """How networks without some weights of a run are measured: as training validates them.

        options: a `prune_options`.
        """
        del options
        return on_validation_data(self, run, data)

    def uncertainty(self) -> UncertaintyReport | None:
        """What `bayesrnn uncertainty` does with runs of the task; None: nothing."""
        return None

    def tab(self) -> Tab | None:
        """What `bayesrnn serve` shows of runs of the task; None: only their training."""
        return None

    def score(self, run: Any, data: Data, whole: bool = False) -> ValidationScore | None:
        """How probable a network finds validation data, to calibrate it; None: it cannot be.

        whole: of all of them, instead of a part that takes some seconds.
        """
        del run, data, whole
        return None

    def verdict(self, run: Any, data: Data) -> Verdict | None:
        """Whether a calibrated run is to be trusted, measured on validation data."""
        del run, data
        return None

    def network(self, config: Mapping[str, Any]) -> str:
        """The network of a configuration in brief."""
        return f"{config['cell']} {config['layers']}x{config['hidden']}"

    def compare(self, summaries: Sequence[RunSummary]) -> OwnComparison | None:
        """What the task has to say of its runs beside the table of all tasks."""
        del summaries
        return None


@dataclass(frozen=True)
class TrainedRun(Generic[Config]):
    """A trained network, ready to predict."""

    path: Path
    config: Config
    method: Method[Any]
    net: nn.Module
    step: int
    device: torch.device
    #: The texts that the task keeps in the run's folder.
    files: Mapping[str, str]
    #: A hash of its training data (`Task.fingerprint`), where that was saved.
    fingerprint: str | None = None
    #: What `bayesrnn calibrate` found, if it was called; maybe for another checkpoint.
    calibration: Calibration | None = None

    def calibrated(self, uncalibrated: bool = False) -> Calibration | None:
        """The calibration of these weights; None where there is none, or none is wanted."""
        found = self.calibration
        if uncalibrated or found is None:
            return None
        if found.step != self.step:
            say(
                f"note: {self.path} was calibrated at step {found.step}, and this is step "
                f"{self.step}, so predictions are not calibrated; run `bayesrnn calibrate` again"
            )
            return None
        return found

    def scaling(self, samples: int, uncalibrated: bool = False) -> Scaling:
        """How predictions of so many draws are scaled, as `calibrated` says; prints it."""
        found = self.calibrated(uncalibrated)
        if found is None:
            return UNSCALED
        words = scaling_words(found.scaling, samples)
        say(f"note: calibrated on validation data: {words} (--uncalibrated: as trained)")
        return found.scaling

    def note_one_network(self, doing: str) -> None:
        """Print which network stands for all that the run keeps, if it keeps several."""
        members = self.method.members(self.net)
        if members > 1:
            used = self.method.mean_label
            say(f"note: the run keeps {members} networks; {doing} uses one: {used}")


def finite_number(value: Any) -> float | None:
    """The value as a number; None where it is none, or not finite."""
    known = isinstance(value, float | int) and not isinstance(value, bool)
    return float(value) if known and abs(value) < _BEYOND else None
