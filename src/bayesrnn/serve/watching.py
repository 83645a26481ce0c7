"""A run that is being trained: its curves, and what the doctor says of its last checkpoint."""

import time
from pathlib import Path
from typing import Any, Final

from bayesrnn.errors import CheckpointError, ConfigError
from bayesrnn.report.table import Table
from bayesrnn.runs.doctor.examine import examine
from bayesrnn.runs.doctor.explanation import diagnose
from bayesrnn.runs.doctor.report import doctor_tables
from bayesrnn.runs.summary import read_summary
from bayesrnn.runs.task import Task, finite_number
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.run_directory import RunDirectory

#: Points of a curve that are sent, at most.
_POINTS: Final = 400
#: Draws that the doctor compares with the mean weights, and validation predictions of each: fewer
#: than for `bayesrnn doctor`, since an answer may not take long.
_SAMPLES: Final = 3
_PREDICTIONS: Final = 4_000


def training_of(task: Task[Any, Any], path: Path) -> dict[str, Any]:
    """The course of a training so far, from the log of a run."""
    if path.is_file():
        raise ConfigError(f"{path.name} is the file of a pruned network, which keeps no log")
    summary = read_summary(task, path)
    log = RunDirectory(path).metrics
    records = log.read()
    losses = [
        (float(record["step"]), number)
        for record in records
        if record.get("kind") == "train"
        and (number := finite_number(record.get(summary.measure.key, record.get("nll"))))
        is not None
    ]
    store = CheckpointStore(path)
    return {
        "measure": summary.measure.title,
        "planned": summary.epochs_planned,
        "done": summary.epochs_done,
        "settings": f"{summary.method} on {summary.data}, {summary.network}, {summary.settings}",
        "epochs": [
            {"epoch": point.epoch, "train": point.train, "valid": point.valid}
            for point in summary.points
        ],
        "best": summary.best_epoch,
        "steps": thinned(losses, _POINTS),
        "speed": summary.items_per_second,
        "unit": summary.unit,
        "checkpoint": store.step("last") if store.exists("last") else None,
        "quiet": max(0.0, time.time() - log.path.stat().st_mtime) if log.path.exists() else None,
    }


def thinned(points: list[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most `most` of the points, evenly, the last among them."""
    if len(points) <= most:
        return points
    return [points[(len(points) - 1) * number // (most - 1)] for number in range(most)]


def doctor_of(task: Task[Any, Any], path: Path) -> dict[str, Any]:
    """What the doctor says of the last checkpoint of a run."""
    if path.is_file() or not CheckpointStore(path).exists("last"):
        raise CheckpointError(f"{path.name} has no checkpoint to examine yet")
    found = examine(task, path, "last", samples=_SAMPLES, most=_PREDICTIONS)
    said = diagnose(found)
    return {
        "step": found.step,
        "verdict": said.verdict,
        "findings": [
            {"title": one.title, "seen": one.seen, "advice": one.advice}
            for one in (*said.explanations, *said.findings)
        ],
        "tables": [
            {"title": title, **table_values(table)} for title, table in doctor_tables(found)
        ],
        "left_out": list(found.left_out),
    }


def table_values(table: Table) -> dict[str, Any]:
    """A table as values for JSON."""
    return {
        "header": list(table.header),
        "rows": [list(row) for row in table.rows],
        "left": list(table.left),
        "notes": list(table.notes),
    }
