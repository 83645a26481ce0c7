"""A run in brief, or what the file of a pruned network says of itself."""

import hashlib
from dataclasses import fields
from pathlib import Path
from typing import Any

from bayesrnn.compression.file import read_compact
from bayesrnn.errors import RunError
from bayesrnn.options import from_toml
from bayesrnn.runs.places import data_name, data_place
from bayesrnn.runs.summary import RunSummary, read_summary
from bayesrnn.runs.task import Task, finite_number


def summarise(task: Task[Any, Any], path: Path) -> RunSummary:
    """The run in a folder; of the file of a pruned network, what it says of itself."""
    return _of_file(task, path) if path.is_file() else read_summary(task, path)


def _of_file(task: Task[Any, Any], path: Path) -> RunSummary:
    about = read_compact(path).about
    fingerprint = about.get("fingerprint")
    config_text = str(about.get("config", ""))
    config = from_toml(config_text, str(path))
    given = about.get("files")
    files = {n: str(text) for n, text in given.items()} if isinstance(given, dict) else {}
    own = {"cell", "layers", "hidden"} & {item.name for item in fields(task.config_type)}
    known = {task.data_key, "method", *own} <= config.keys()
    if not known or not set(task.file_names) <= files.keys():
        raise RunError(f"{path} does not say what its network is; write it again with `prune`")
    share = finite_number(about.get("fraction"))
    dropped = "pruned" if share is None else f"{100 * share:.3g}% dropped"
    words = files.get(task.problem_file, "") if task.problem_file else ""
    return RunSummary(
        path=path,
        name=path.resolve().name,
        task=task,
        measure=task.measure(files.__getitem__),
        data=data_name(config[task.data_key]),
        vocabulary=hashlib.sha256(words.encode()).hexdigest() if words else "",
        method="plain",
        network=task.network(config),
        epochs_planned=0,
        points=(),
        results={},
        settings=f"trained by {config['method']}, {dropped}, {about.get('values')} values",
        items_per_second=None,
        config_text=config_text,
        place=data_place(task, path, config[task.data_key]),
        fingerprint=fingerprint if isinstance(fingerprint, str) else None,
    )
