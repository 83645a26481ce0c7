"""What a run directory says about its run, in a form that tables, charts and pages show."""

import hashlib
import json
import math
import statistics
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesrnn.compression.file import read_compact
from bayesrnn.errors import RunError
from bayesrnn.report.text import number_text
from bayesrnn.tasks.sentiment.data import Numbers, read_target
from bayesrnn.training.run_directory import RunDirectory

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Measure:
    """The figure by which runs of a task are compared: how it is kept, and how it is shown."""

    key: str
    shown: str
    factor: float = 1.0
    digits: int = 2
    #: How the figure on the training set came about.
    train: str = "while training"

    def read(self, figures: Mapping[str, Any], prefix: str = "") -> float | None:
        """The figure in the unit that is shown; None where there is no finite number."""
        number = _number(figures.get(prefix + self.key))
        return None if number is None else number * self.factor

    def text(self, value: float | None) -> str:
        """A figure in the unit that is shown; `-` where there is none."""
        return number_text(value, self.digits)


_PERPLEXITY = Measure("perplexity", "perplexity")
_ERROR = Measure("error", "error in %", 100)
_ON_PART = "with the mean, on a part as large"
_TEXT_RMSE = Measure("rmse", "RMSE", digits=4, train=_ON_PART)
_TEXT_ERROR = Measure("error", "error in %", 100, train=_ON_PART)

#: Of each task, the entry of its configuration that says what was learnt, and what is counted.
_DATA = {"lm": "corpus", "mnist": "images", "sentiment": "data", "captions": "data"}
_UNITS = {"lm": "words", "mnist": "images", "sentiment": "segments", "captions": "captions"}


@dataclass(frozen=True)
class EpochPoint:
    """The figures at the end of an epoch; None stands for a number that is not there."""

    epoch: int
    step: int
    train: float | None
    valid: float | None
    #: Whether it was the best so far.
    marked_best: bool = False


@dataclass(frozen=True)
class RunSummary:
    """A run in brief."""

    path: Path
    name: str
    task: str
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
    #: What has to be said with every result.
    settings: str
    #: What is counted (words, images, segments, captions), the median over the training records.
    items_per_second: float | None
    config_text: str

    @property
    def unit(self) -> str:
        """What is counted, in the plural."""
        return _UNITS[self.task]

    @property
    def epochs_done(self) -> int:
        """How many epochs were finished."""
        return self.points[-1].epoch if self.points else 0

    @property
    def best(self) -> EpochPoint | None:
        """The epoch that the run holds for its best.

        Mostly that is the one with the lowest validation figure; not where networks are kept, or
        trained one after the other. Runs of earlier versions did not say which it was.
        """
        marked = [point for point in self.points if point.marked_best]
        if marked:
            return marked[-1]
        found = [point for point in self.points if point.valid is not None]
        return min(found, key=lambda point: point.valid or 0.0, default=None)

    @property
    def best_valid(self) -> float | None:
        """The lowest validation figure."""
        return self.best.valid if self.best else None

    @property
    def best_epoch(self) -> int | None:
        """The epoch with the lowest validation figure."""
        return self.best.epoch if self.best else None

    def result(self, split: str, inference: str) -> Mapping[str, Any] | None:
        """The result on a split by a way of prediction, such as "mean", "samples" or "bound".

        Of several, the one with the most draws.
        """
        fitting = [
            result
            for result in self.results.values()
            if result["split"] == split
            and _inference(result).startswith(inference)
            and self.measure.key in result
        ]
        return max(fitting, key=lambda result: int(result["samples"]), default=None)

    def figure(self, result: Mapping[str, Any]) -> float | None:
        """The figure of a result in the unit that is shown."""
        return self.measure.read(result)


def read_summary(path: Path) -> RunSummary:
    """Summarise the run in a folder; no epoch needs to be finished.

    Of the file of a pruned network there is only what it says of itself, and no epochs.
    """
    if path.is_file():
        return _compact_summary(path)
    run = RunDirectory(path)
    config_text = run.read_config()
    config = _config(config_text, path / "config.toml")
    records = run.metrics.read()
    task, options = config.get("task", "lm"), config.get("options", {})
    measure = _measure(task, path)
    return RunSummary(
        path=path,
        name=path.resolve().name,
        task=task,
        measure=measure,
        data=_words(config[_DATA[task]]),
        vocabulary=_vocabulary(
            path / ("target.json" if task == "sentiment" else "vocabulary.txt"), config
        ),
        method=config["method"],
        network=f"{config.get('cell', 'mlp')} {config['layers']}x{config['hidden']}",
        epochs_planned=config["epochs"] * _rounds(config),
        points=_points(records, measure, run.metrics.path),
        results=_results(path / "results"),
        settings=", ".join(
            [f"seed {config['seed']}", _counted(config["epochs"], "epoch"), *_said(options)]
        ),
        items_per_second=_median(
            record.get(f"{_UNITS[task]}_per_second")
            for record in records
            if record.get("kind") == "train"
        ),
        config_text=config_text,
    )


def _compact_summary(path: Path) -> RunSummary:
    about = read_compact(path).about
    config_text = str(about.get("config", ""))
    config = _config(config_text, path)
    files, share = about.get("files"), _number(about.get("fraction"))
    words = str(files.get("vocabulary.txt")) if isinstance(files, dict) else ""
    dropped = "pruned" if share is None else f"{100 * share:.3g}% dropped"
    return RunSummary(
        path=path,
        name=path.resolve().name,
        task="lm",
        measure=_PERPLEXITY,
        data=_words(config["corpus"]),
        vocabulary=hashlib.sha256(words.encode()).hexdigest(),
        method="plain",
        network=f"{config['cell']} {config['layers']}x{config['hidden']}",
        epochs_planned=0,
        points=(),
        results={},
        settings=f"trained by {config['method']}, {dropped}, {about.get('values')} values",
        items_per_second=None,
        config_text=config_text,
    )


def _config(text: str, path: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RunError(f"{path} is damaged: it is not a TOML file: {error}") from None
    own: dict[str, dict[str, Any]] = {
        "lm": {"corpus": str | list, "cell": str},
        "mnist": {"images": str},
        "sentiment": {"data": str, "cell": str},
        "captions": {"data": str, "cell": str},
    }
    task = config.get("task", "lm")
    if task not in own:
        raise RunError(f"{path} is of a task {task!r}; there are: {', '.join(own)}")
    common = {"method": str, **dict.fromkeys(("layers", "hidden", "epochs", "seed"), int)}
    for name, kind in {**own[task], **common}.items():
        if not isinstance(config.get(name), kind):
            raise RunError(
                f"{path} does not say the {name} of its network; give the folder of a run made by "
                f"`bayesrnn train {task}`"
            )
    if not isinstance(config.get("options", {}), dict):
        raise RunError(f"{path} is damaged: its options are not a table")
    return config


def _measure(task: str, path: Path) -> Measure:
    """How runs of a task are compared; readers of texts by what they predict."""
    if task in ("lm", "captions"):
        return _PERPLEXITY
    if task == "mnist":
        return _ERROR
    target = read_target(RunDirectory(path).read_text("target.json"))
    return _TEXT_RMSE if isinstance(target, Numbers) else _TEXT_ERROR


def _vocabulary(path: Path, config: Mapping[str, Any]) -> str:
    """What tells the run's vocabulary from another one."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return f"limit {config.get('vocabulary_limit')}"
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error


def _points(
    records: Iterable[Mapping[str, Any]], measure: Measure, path: Path
) -> tuple[EpochPoint, ...]:
    points = {}
    for record in records:
        if record.get("kind") != "epoch":
            continue
        epoch, step = record.get("epoch"), record.get("step")
        if not isinstance(epoch, int) or not isinstance(step, int):
            raise RunError(f"{path} is damaged: it has the figures of an epoch without its number")
        train, valid = (measure.read(record, f"{split}_") for split in ("train", "valid"))
        points[epoch] = EpochPoint(epoch, step, train, valid, record.get("best") is True)
    return tuple(points[epoch] for epoch in sorted(points))


def _results(folder: Path) -> dict[str, Mapping[str, Any]]:
    results: dict[str, Mapping[str, Any]] = {}
    figures = {"perplexity", "error", "rmse", "nll"}
    for path in sorted(folder.glob("*.json")):
        try:
            result = json.loads(path.read_bytes())
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, RecursionError):
            result = None
        if not (
            isinstance(result, dict)
            and isinstance(result.get("split"), str)
            and isinstance(result.get("samples"), int)
            and isinstance(result.get("inference", ""), str)
            and all(isinstance(result[key], int | float | None) for key in figures & result.keys())
            and (figures | {"scores"}) & result.keys()
        ):
            raise RunError(
                f"{path} is not the result of an evaluation; remove it, or write it again with "
                "`bayesrnn evaluate`"
            )
        results[path.stem] = result
    return results


def _inference(result: Mapping[str, Any]) -> str:
    """The way of prediction; results of earlier versions say only how many draws."""
    return str(result.get("inference", "samples" if result["samples"] else "mean"))


def _words(value: str | list[Any]) -> str:
    return value if isinstance(value, str) else " ".join(map(str, value))


def _rounds(config: Mapping[str, Any]) -> int:
    """How many times the epochs are gone through: once for each member that has its turn."""
    options = config.get("options", {})
    in_turn = config["method"] == "ensemble" and not options.get("side_by_side")
    return int(options.get("members", 1)) if in_turn else 1


def _said(options: Mapping[str, Any]) -> list[str]:
    """The options of a method in words, without those that only detail another one."""
    said = []
    if "base" in options:
        said.append(f"{options.get('members')} x {options['base']}")
    if "prior" in options:
        grouped = options["prior"] == "mixture" and "prior_per" in options
        said.append(f"{options['prior']} prior" + f" per {options['prior_per']}" * grouped)
    if "sigma0" in options:
        said.append(f"sigma0 {options['sigma0']}")
    if options.get("kl_weight", 1) != 1:
        said.append(f"KL weight {options['kl_weight']}")
    if "dropout" in options:
        said.append(f"dropout {options['dropout']}")
    for name in ("recurrent_dropout", "embedding_dropout", "weight_dropout", "length_scale"):
        if options.get(name) is not None:
            said.append(f"{name.replace('_', ' ')} {options[name]}")
    if options.get("gates") == "untied":
        said.append("untied gates")
    if "temperature" in options:
        said.append(f"temperature {options['temperature']}")
    if "prior_sigma" in options:
        said.append(f"prior sigma {options['prior_sigma']}")
    return said


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _median(values: Iterable[Any]) -> float | None:
    found = [number for value in values if (number := _number(value)) is not None]
    return statistics.median(found) if found else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
