"""What a run directory says about its run, in a form that tables, charts and pages show."""

import contextlib
import hashlib
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bayesrnn.errors import CheckpointError, ConfigError, RunError
from bayesrnn.methods import METHODS
from bayesrnn.report.text import counted
from bayesrnn.runs.evaluation import CALIBRATED
from bayesrnn.runs.load import read_config
from bayesrnn.runs.places import data_name, data_place
from bayesrnn.runs.task import Measure, Task, finite_number
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.kept_files import read_metrics
from bayesrnn.training.run_directory import RunDirectory
from bayesrnn.untrusted import plain_json, read_regular, unsealed


@dataclass(frozen=True)
class EpochPoint:
    """The metric at the end of an epoch; None where there is no number."""

    epoch: int
    step: int
    train: float | None
    valid: float | None
    #: Whether it was the best so far.
    marked_best: bool = False
    #: Whether the averaged parameters were better, so that the metric is theirs.
    averaged: bool = False


@dataclass(frozen=True)
class RunSummary:
    """A run in brief."""

    path: Path
    name: str
    task: Task[Any, Any]
    measure: Measure
    #: What was learnt: a corpus, a set of images.
    data: str
    #: Two runs with different vocabularies solve different problems; the corpus says only half.
    #: (Where a rating or a label is predicted, that tells problems apart, and not the words.)
    vocabulary: str
    method: str
    network: str
    epochs_planned: int
    points: tuple[EpochPoint, ...]
    #: What evaluations found, by the name of the file under `results/`.
    results: Mapping[str, Mapping[str, Any]]
    #: The seed, the epochs, the decay of an average and the options of the method, as text.
    settings: str
    #: Of what the task counts; the median over the training records.
    items_per_second: float | None
    config_text: str
    #: What tells the data from others of the same name (`places.data_place`).
    place: str = ""
    #: A hash of the training data (`Task.fingerprint`), where that was saved.
    fingerprint: str | None = None

    def same_data(self, other: "RunSummary") -> bool:
        """Whether both learnt from the same data, in one place or moved.

        Different fingerprints mean nothing: those of texts with ratings depend on the vocabulary
        and on how the texts are cut, which do not change the problem.
        """
        known = self.fingerprint is not None and self.fingerprint == other.fingerprint
        return self.task.name == other.task.name and (known or self.place == other.place)

    def same_problem(self, other: "RunSummary") -> bool:
        """Whether what both reached can be compared."""
        return self.vocabulary == other.vocabulary and self.same_data(other)

    @property
    def unit(self) -> str:
        """What is counted, in the plural."""
        return f"{self.task.unit}s"

    @property
    def epochs_done(self) -> int:
        """How many epochs were finished."""
        return self.points[-1].epoch if self.points else 0

    @property
    def best(self) -> EpochPoint | None:
        """The epoch that the run holds for its best.

        Mostly that is the one with the lowest validation metric; not where a method collects
        networks, or trains one after the other. Runs of earlier versions did not say which it was.
        """
        marked = [point for point in self.points if point.marked_best]
        if marked:
            return marked[-1]
        found = [point for point in self.points if point.valid is not None]
        return min(found, key=lambda point: point.valid or 0.0, default=None)

    @property
    def best_valid(self) -> float | None:
        """The validation metric of the best epoch."""
        return self.best.valid if self.best else None

    @property
    def best_epoch(self) -> int | None:
        """The number of the best epoch."""
        return self.best.epoch if self.best else None

    def result(self, split: str, inference: str) -> Mapping[str, Any] | None:
        """The result on a split by an inference, such as "mean", "samples" or "bound".

        Of several, the one with the most draws. Calibrated ones are an inference of their own.
        """
        fitting = [
            result
            for result in self.results.values()
            if result["split"] == split
            and _is_by(_inference(result), inference)
            and self.measure.key in result
        ]
        return max(fitting, key=lambda result: int(result["samples"]), default=None)


def read_summary(task: Task[Any, Any], path: Path) -> RunSummary:
    """Summarise the run of a task in a folder; no epoch needs to be finished."""
    run = RunDirectory(path)
    config = _config(task, path)
    options = config.get("options", {})
    records = read_metrics(path)
    measure = task.measure(run.read_text)
    return RunSummary(
        path=path,
        name=path.resolve().name,
        task=task,
        measure=measure,
        data=data_name(config[task.data_key]),
        vocabulary=_vocabulary(path, task.problem_file, config),
        method=config["method"],
        network=task.network(config),
        epochs_planned=_epochs(config["method"], options, config["epochs"]),
        points=_points(records, measure),
        results=_results(path / "results"),
        settings=", ".join(
            [
                f"seed {config['seed']}",
                counted(config["epochs"], "epoch"),
                *([f"averaged {config['average']}"] if config.get("average") else []),
                *_said(config["method"], options),
            ]
        ),
        items_per_second=_median(
            record.get(f"{task.unit}s_per_second")
            for record in records
            if record.get("kind") == "train"
        ),
        config_text=run.read_config(),
        place=data_place(task, path, config[task.data_key]),
        fingerprint=_fingerprint(path),
    )


def _fingerprint(path: Path) -> str | None:
    """That of the training data; none where no checkpoint, or none that is whole, says it."""
    with contextlib.suppress(CheckpointError):
        state = CheckpointStore(path).plain_state()
        if isinstance(state, dict) and isinstance(found := state.get("fingerprint"), str):
            return found
    return None


#: The types of entries of a configuration that a summary shows, where the task has them.
_SHOWN = {"cell": str, "method": str, **dict.fromkeys(("layers", "hidden", "epochs", "seed"), int)}


def _config(task: Task[Any, Any], path: Path) -> dict[str, Any]:
    config = read_config(path)
    known = {item.name for item in fields(task.config_type)}
    shown: dict[str, Any] = {task.data_key: str | list, **_SHOWN}
    for name, kind in shown.items():
        if name in known and not isinstance(config.get(name), kind):
            raise RunError(
                f"{path}/config.toml does not say the {name} of its network; give the folder of a "
                f"run made by `bayesrnn train {task.name}`"
            )
    if not isinstance(config.get("options", {}), dict):
        raise RunError(f"{path}/config.toml is damaged: its options are not a table")
    return config


def _vocabulary(path: Path, file: str | None, config: Mapping[str, Any]) -> str:
    """A text that differs between problems on the same data."""
    if file is None:
        return ""
    try:
        return hashlib.sha256(read_regular(path / file, inside=path)).hexdigest()
    except FileNotFoundError:
        return f"limit {config.get('vocabulary_limit')}"
    except OSError as error:
        raise RunError(f"cannot read {path / file}: {error.strerror}") from error


def _points(records: Iterable[Mapping[str, Any]], measure: Measure) -> tuple[EpochPoint, ...]:
    points = {}
    for record in records:
        if record.get("kind") != "epoch":
            continue
        epoch, step = record["epoch"], record["step"]
        train, valid = (measure.read(record, f"{split}_") for split in ("train", "valid"))
        best, averaged = (record.get(name) is True for name in ("best", "averaged"))
        points[epoch] = EpochPoint(epoch, step, train, valid, best, averaged)
    return tuple(points[epoch] for epoch in sorted(points))


def _results(folder: Path) -> dict[str, Mapping[str, Any]]:
    results: dict[str, Mapping[str, Any]] = {}
    metrics = {"perplexity", "error", "rmse", "nll"}
    for path in sorted(folder.glob("*.json")):
        try:
            result = unsealed(plain_json(read_regular(path, inside=folder)))
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror}") from error
        except ValueError:
            result = None
        if not (
            isinstance(result, dict)
            and isinstance(result.get("split"), str)
            and isinstance(result.get("samples"), int)
            and isinstance(result.get("inference", ""), str)
            and all(isinstance(result[key], int | float | None) for key in metrics & result.keys())
            and (metrics | {"scores"}) & result.keys()
        ):
            raise RunError(
                f"{path} is not the result of an evaluation; remove it, or write it again with "
                "`bayesrnn evaluate`"
            )
        results[path.stem] = result
    return results


def _inference(result: Mapping[str, Any]) -> str:
    """The inference of a result; those of earlier versions say only how many draws."""
    return str(result.get("inference", "samples" if result["samples"] else "mean"))


def _is_by(name: str, inference: str) -> bool:
    if name.endswith(CALIBRATED):
        return inference == CALIBRATED
    return name.startswith(inference)


def _epochs(method: str, options: Mapping[str, Any], epochs: int) -> int:
    """The epochs of all training rounds; one round for a method that is not known here."""
    return sum(METHODS[method].round_epochs(options, epochs)) if method in METHODS else epochs


def _said(method: str, options: Mapping[str, Any]) -> list[str]:
    """The options of a method as texts; none where another version may have had others."""
    try:
        return METHODS[method].words(options) if method in METHODS else []
    except (ConfigError, TypeError, ValueError):
        return []


def _median(values: Iterable[Any]) -> float | None:
    found = [number for value in values if (number := finite_number(value)) is not None]
    return statistics.median(found) if found else None
