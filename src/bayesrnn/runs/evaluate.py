"""Evaluate a run of any task on data that it did not train on, and say what was found."""

import textwrap
from pathlib import Path
from typing import Any

from bayesrnn.errors import RunError
from bayesrnn.progress import say
from bayesrnn.report.text import printable
from bayesrnn.runs.evaluation import Evaluation, EvaluationSettings
from bayesrnn.runs.task import Task
from bayesrnn.training.run_directory import RunDirectory

#: Columns that details and notes are wrapped to.
_WIDTH = 100

BOUND_NOTE = (
    "a bound is an upper bound on what weights drawn about the mean, or about what was learnt from "
    "the text before, would reach; its networks have seen the targets of the minibatch that they "
    "score, and the KL pays for it"
)


def evaluate(
    task: Task[Any, Any],
    path: Path,
    settings: EvaluationSettings | None = None,
    options: Any = None,
) -> Evaluation:
    """The metrics of a run, a row for each inference; stored in the run's results as well.

    The file of a pruned network has no folder for results: its metrics are stored nowhere. Where
    the run cannot be written to, that is said, and the metrics are not lost.
    """
    found = task.evaluate(
        path, settings or EvaluationSettings(), options or task.evaluate_options()
    )
    for row in found.rows if path.is_dir() else ():
        name = f"{found.split}-{row.inference}"
        try:
            RunDirectory(path).write_result(name, {**found.about(), **row.as_json(all_fields=True)})
        except RunError as error:
            say(f"note: the results could not be kept in the run: {error}")
            break
    return found


def describe(task: Task[Any, Any], found: Evaluation) -> str:
    """An evaluation as lines of text."""
    data = getattr(found, task.data_key)
    metrics = [task.line(row) for row in found.rows]
    width = max(len(row.label) for row, own in zip(found.rows, metrics, strict=True) if own)
    lines = [f"{printable(data)} {found.part}, {found.method}:"]
    for row, own in zip(found.rows, metrics, strict=True):
        lines.append(f"{row.label:{width}}  {own}" if own else row.label)
        lines += [_wrapped(detail, "  ") for detail in task.details(row)]
    bound = any(row.inference.endswith("bound") for row in found.rows)
    notes = [*([BOUND_NOTE] if bound else []), *task.notes(found)]
    return "\n".join([*lines, *map(_wrapped, notes)])


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=indent, subsequent_indent=2 * indent, break_on_hyphens=False
    )
