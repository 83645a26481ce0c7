"""The tasks, by name. A new one is one folder here and one line in the registry."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesrnn.runs.command import TaskEntry

if TYPE_CHECKING:
    from bayesrnn.runs.task import Task


class TaskRegistry(Mapping[str, "Task[Any, Any]"]):
    """Tasks by name, each imported when it is asked for.

    A task's package has an `ENTRY`, which is read without importing torch, and in its module
    `task` a `TASK`.
    """

    def __init__(self, packages: Mapping[str, str]) -> None:
        self.packages = dict(packages)

    def __getitem__(self, name: str) -> "Task[Any, Any]":
        task: Task[Any, Any] = import_module(f"{self.packages[name]}.task").TASK
        return task

    def __iter__(self) -> Iterator[str]:
        return iter(self.packages)

    def __len__(self) -> int:
        return len(self.packages)

    def entries(self) -> dict[str, TaskEntry]:
        """What the command line has to know of each task before it imports it."""
        return {name: import_module(package).ENTRY for name, package in self.packages.items()}


TASKS = TaskRegistry(
    {
        "lm": "bayesrnn.tasks.lm",
        "mnist": "bayesrnn.tasks.mnist",
        "sentiment": "bayesrnn.tasks.sentiment",
        "captions": "bayesrnn.tasks.captions",
        "forecast": "bayesrnn.tasks.forecast",
    }
)

#: The task of runs that do not say.
_DEFAULT = "lm"


def task_of(path: Path) -> "Task[Any, Any]":
    """The task of the run in a folder, or of a pruned network in a file."""
    from bayesrnn.compression.manifest import read_manifest
    from bayesrnn.errors import RunError
    from bayesrnn.runs.load import read_config

    if path.is_file():
        _, content = read_manifest(path)
        name = str(content["about"].get("task", _DEFAULT))
    else:
        name = read_config(path).get("task", _DEFAULT)
    if not isinstance(name, str) or name not in TASKS:
        raise RunError(f"{path} is of a task {str(name)[:80]!r}; there are: {', '.join(TASKS)}")
    return TASKS[name]
