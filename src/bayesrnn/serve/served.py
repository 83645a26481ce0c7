"""The runs that a server answers for."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bayesrnn.errors import CheckpointError, ConfigError, RunError
from bayesrnn.options import CheckedOptions
from bayesrnn.runs.load import read_config
from bayesrnn.runs.tab import Question, Tab
from bayesrnn.runs.task import Task
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.run_directory import RunDirectory

TaskOf = Callable[[Path], Task[Any, Any]]


class ServedRun:
    """A run, opened when it is first asked, and again when training has saved a better one."""

    def __init__(self, path: Path, task: Task[Any, Any]) -> None:
        self.path = path
        self.task = task
        self.tab: Tab | None = task.tab()
        self.name = path.name
        self._opened: tuple[int, Any] | None = None

    @property
    def method(self) -> str:
        """The method that it was trained by; nothing of a pruned network."""
        return "" if self.path.is_file() else str(read_config(self.path).get("method", ""))

    def ask(self, question: Question, options: CheckedOptions, content: bytes) -> Any:
        """The answer to a question of the tab."""
        return question.answer(self._open(), options, content)

    def about(self) -> dict[str, Any]:
        """What the tab's script has to know."""
        tab = self._tab()
        return dict(tab.about(self._open()))

    def _tab(self) -> Tab:
        if self.tab is None:
            raise ConfigError(f"there is no tab for runs of `bayesrnn train {self.task.name}`")
        return self.tab

    def _open(self) -> Any:
        step = self._step()
        if self._opened is None or self._opened[0] != step:
            self._opened = None  # the old one goes before the new one comes
            self._opened = step, self._tab().open(self.path)
        return self._opened[1]

    def _step(self) -> int:
        """The step of the checkpoint that would be opened."""
        if self.path.is_file():
            return 0
        store = CheckpointStore(self.path)
        for which in ("best", "last"):
            if store.exists(which):
                return store.step(which)
        raise CheckpointError(
            f"{self.path} has no checkpoint yet; wait for the first one, and watch it in Training"
        )


def found_runs(given: Sequence[Path], task_of: TaskOf) -> list[ServedRun]:
    """The runs to serve: folders of runs, folders that hold such, and files of pruned networks."""
    paths = list(dict.fromkeys(path for one in given for path in _runs_in(one)))
    if not paths:
        raise ConfigError("no run was given to serve; give the folders of one or more runs")
    runs = [ServedRun(path, task_of(path)) for path in paths]
    for run, name in zip(runs, _names(runs), strict=True):
        run.name = name
    return runs


def _names(runs: Sequence[ServedRun]) -> list[str]:
    """The names of the folders; paths where two are the same."""
    names = [run.path.resolve().name for run in runs]
    return [
        name if names.count(name) == 1 else str(run.path)
        for run, name in zip(runs, names, strict=True)
    ]


def _runs_in(given: Path) -> Iterable[Path]:
    if given.is_file() or RunDirectory(given).has_config():
        return [given]
    inside = sorted(given.iterdir()) if given.is_dir() else []
    found = [path for path in inside if path.is_dir() and RunDirectory(path).has_config()]
    if not found:
        raise RunError(
            f"{given} is not a run, nor a folder with runs; give folders made by `bayesrnn train`"
        )
    return found
