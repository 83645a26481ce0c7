"""What a search has found: a table, the best setting, and all that its page shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bayesrnn.durable import write_durably
from bayesrnn.options import options_of, to_toml
from bayesrnn.report.table import Table
from bayesrnn.report.text import counted, number_text
from bayesrnn.runs.load import read_config
from bayesrnn.runs.task import Measure
from bayesrnn.studies.search.lease import holder
from bayesrnn.studies.search.record import (
    COMPLETE,
    PRUNED,
    RUNNING,
    Progress,
    TrialRecord,
    read_progress,
)
from bayesrnn.studies.search.search import Search
from bayesrnn.studies.search.settings import Settings
from bayesrnn.studies.search.space import value_text
from bayesrnn.training.run_directory import RunDirectory

#: Decimals of a loss.
DIGITS = 4


@dataclass(frozen=True)
class Trial:
    """A trial, how far its run has come, and who trains it."""

    record: TrialRecord
    folder: Path
    progress: Progress | None
    #: The metric that runs of the task are compared by; None before the run has begun.
    measure: Measure | None
    holder: str

    @property
    def shown(self) -> float | None:
        """The metric of the best epoch, in the unit that is shown."""
        if self.measure is None or self.progress is None:
            return None
        return self.measure.read(self.progress.metrics, "valid_")

    @property
    def loss(self) -> float | None:
        """The validation loss of the best epoch, also while it is trained."""
        if self.record.state == RUNNING:
            return self.progress.best if self.progress else None
        return self.record.value


@dataclass(frozen=True)
class Findings:
    """What a search has found so far."""

    folder: Path
    settings: Settings
    trials: Sequence[Trial]
    importances: dict[str, float]

    @property
    def names(self) -> list[str]:
        """The options that are searched."""
        return [one.name for one in self.settings.space.dimensions]

    @property
    def best(self) -> Trial | None:
        """The trial with the lowest loss among those that were trained to the end."""
        whole = [one for one in self.trials if one.record.state == COMPLETE]
        return min(whole, key=lambda one: one.record.value or 0.0, default=None)

    @property
    def first(self) -> Trial | None:
        """The trial with the settings of the recipe, if they are in the space and it is over."""
        begin = next(iter(self.settings.space.first), None)
        if begin is None or not self.trials:
            return None
        trial = self.trials[0]
        alike = dict(trial.record.params) == dict(begin)
        return trial if alike and trial.record.state == COMPLETE else None

    def counts(self) -> str:
        """How many trials are in which state."""
        states = [one.record.state for one in self.trials]
        parts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
        return f"{counted(len(states), 'trial')}: {', '.join(parts)}" if parts else "no trials yet"


def read_findings(search: Search) -> Findings:
    """What the folders of the trials say."""
    task = search.settings.task
    trials = []
    for record in search.records():
        folder = search.trial_folder(record.number)
        progress = read_progress(folder)
        has_files = all((folder / name).is_file() for name in task.file_names)
        measure = task.measure(RunDirectory(folder).read_text) if progress and has_files else None
        holding = holder(folder / "lease") if record.state == RUNNING else ""
        trials.append(Trial(record, folder, progress, measure, holding))
    return Findings(search.folder, search.settings, trials, search.importances())


def trials_table(found: Findings) -> Table:
    """A row for each trial, the best first; then those that were not trained to the end."""
    order = {COMPLETE: 0, PRUNED: 1}
    ranked = sorted(
        found.trials,
        key=lambda one: (
            order.get(one.record.state, 2),
            float("inf") if one.loss is None else one.loss,
            one.record.number,
        ),
    )
    title = next((one.measure.title for one in ranked if one.measure), "metric")
    rows = [
        [
            str(one.record.number),
            one.record.state,
            number_text(one.loss, DIGITS),
            one.measure.text(one.shown) if one.measure else "-",
            f"{one.progress.epochs}/{one.progress.planned}" if one.progress else "-",
            *(value_text(one.record.params[name]) for name in found.names),
        ]
        for one in ranked
    ]
    notes = [
        "loss: the validation loss that training chooses its best epoch by, at that epoch; pruned: "
        "stopped early, as it was worse than the median of the others"
    ]
    first = found.settings.space.first
    if found.first is not None and first:
        notes.append("trial 0 has the settings of the recipe")
    notes += [
        f"trial {one.record.number}: {one.record.reason}"
        for one in found.trials
        if one.record.reason and one.record.state != PRUNED
    ]
    notes += [f"trial {one.record.number}: {one.holder}" for one in found.trials if one.holder]
    best = frozenset({(0, 2)}) if found.best else frozenset[tuple[int, int]]()
    header = ["trial", "state", "loss", title, "epochs", *found.names]
    words = [one.name for one in found.settings.space.dimensions if one.choices]
    return Table(header, rows, ("state", *words), notes, best)


def best_sentence(found: Findings) -> str:
    """The best setting, beside the recipe's."""
    best, first = found.best, found.first
    if best is None or best.record.value is None:
        return "No trial has been trained to its end yet."
    shown = (
        f" ({best.measure.title} {best.measure.text(best.shown)})"
        if best.measure and best.shown is not None
        else ""
    )
    said = f"Trial {best.record.number} is the best: loss {best.record.value:.{DIGITS}f}{shown}"
    if first is None or first is best or first.record.value is None:
        return f"{said}."
    gain = first.record.value - best.record.value
    return f"{said}, {gain:.{DIGITS}f} below the recipe's {first.record.value:.{DIGITS}f}."


def write_best(found: Findings) -> Path | None:
    """Write the configuration of the best trial, which `bayesrnn train --config` takes."""
    if found.best is None:
        return None
    config = read_config(found.best.folder)
    # Trials are not calibrated; a run of these settings is, unless the user said no.
    default = {item.name: item.default for item in options_of(found.settings.task.config_type)}
    config["calibrate"] = found.settings.given.get("calibrate", default["calibrate"])
    path = found.folder / "best.toml"
    write_durably(path, to_toml(config).encode())
    return path
