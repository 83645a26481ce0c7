"""Where the data of a run are: kept as whole paths, and found again where they were moved."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from bayesrnn.data.files import with_home
from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.options import options_of
from bayesrnn.progress import say
from bayesrnn.report.text import printable
from bayesrnn.runs.arguments import DataOptions
from bayesrnn.runs.config import TrainingConfig
from bayesrnn.runs.task import Task, TrainedRun

Config = TypeVar("Config", bound=TrainingConfig)
AnyRun = TypeVar("AnyRun", bound=TrainedRun[Any])


def with_whole_paths(task: Task[Any, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a configuration, with the paths of data independent of the folder we are in.

    The names of data sets that come from a data folder, or with the program, stay names.
    """
    made = dict(values)
    if has_paths(task) and made.get(task.data_key) is not None:
        made[task.data_key] = _each(made[task.data_key], lambda item: _whole(task, item))
    for name in ("data_dir", "start_from"):
        if made.get(name) is not None:
            made[name] = _absolute(with_home(made[name]))
    return made


def found_again(task: Task[Any, Any], run: Path, config: Config) -> Config:
    """The configuration of a run, maybe of an earlier version, with paths that can be followed.

    A relative path is meant from the folder that the run was trained in: this one, or else the
    nearest one above the run that has such a file. A data folder that is gone gives way to that of
    BAYESRNN_DATA.
    """
    changed: dict[str, Any] = {}
    if has_paths(task):
        given = getattr(config, task.data_key)
        changed[task.data_key] = _each(given, lambda item: _from_above(task, run, item))
    folder = config.data_dir
    if folder is not None and os.environ.get("BAYESRNN_DATA") and not _is_there(folder):
        say(
            f"note: {folder}, the data folder of {run}, is not there; looking in that of "
            "BAYESRNN_DATA"
        )
        changed["data_dir"] = None
    return replace(config, **changed)


def moved(task: Task[Any, Any], run: AnyRun, where: DataOptions) -> AnyRun:
    """The run with its data where the user says, and an error if they are not where they were."""
    config: TrainingConfig = run.config
    if where.data_dir is not None:
        config = replace(config, data_dir=where.data_dir)
    if where.data and not has_paths(task):
        raise ConfigError(
            f"--data is {' '.join(where.data)}, but {run.path} was trained on a data set that has "
            "a name; give the folder that it is in: --data-dir PATH"
        )
    if where.data:
        one = not isinstance(getattr(config, task.data_key), tuple)
        if one and len(where.data) > 1:
            raise ConfigError(f"--data has {len(where.data)} paths; {run.path} learnt from one")
        found: dict[str, Any] = {task.data_key: where.data[0] if one else where.data}
        config = replace(config, **found)
    elif gone := is_gone(task, config):
        raise CorpusError(
            f"{gone!r}, which {run.path} was trained on by its configuration, is not there; if it "
            "was moved, say where it is now with --data PATH"
        )
    return replace(run, config=config)


def is_gone(task: Task[Any, Any], config: TrainingConfig) -> str:
    """The first file of the user's own that a configuration names and that is not there."""
    given = _items(getattr(config, task.data_key)) if has_paths(task) else []
    own = (item for item in given if item not in config.data_names)
    return next((item for item in own if not _is_there(with_home(item))), "")


def data_name(value: Any) -> str:
    """What tables call the data of a run: without the folders of a whole path."""
    names = (Path(item).name if Path(item).is_absolute() else item for item in _items(value))
    return " ".join(names)


def data_place(task: Task[Any, Any], run: Path, value: Any) -> str:
    """What tells the data of a run from others of the same name: whole paths, or names.

    run: its folder or file, above which relative paths of earlier versions are looked for.
    """
    if not has_paths(task):
        return data_name(value)
    return "\n".join(_place(task, run, item) for item in _items(value))


def free_entries(task: Task[Any, Any]) -> tuple[str, ...]:
    """The entry of a configuration that says where data are: they may be moved, and have a hash."""
    return (task.data_key,) if has_paths(task) else ()


def has_paths(task: Task[Any, Any]) -> bool:
    """Whether what is learnt can be a file of the user's own."""
    known = {item.name: item for item in options_of(task.config_type)}
    return not known[task.data_key].choices


def _items(value: Any) -> list[str]:
    return [str(item) for item in (value if isinstance(value, list | tuple) else [value])]


def _each(value: Any, change: Any) -> Any:
    made = tuple(map(change, _items(value)))
    return made if isinstance(value, list | tuple) else made[0]


def _whole(task: Task[Any, Any], item: str) -> str:
    if not item or item in task.config_type.data_names:
        return item
    return str(_absolute(with_home(item)))


def _absolute(path: Path) -> Path:
    # Links are kept: the name that the user gave is the one that the run is known by.
    return Path(os.path.abspath(path))  # noqa: PTH100


def _from_above(task: Task[Any, Any], run: Path, item: str) -> str:
    path = Path(item)
    if not item or item in task.config_type.data_names or path.is_absolute() or item[:2] == "~/":
        return item
    folder = _folder_of(run, path)
    if folder is None or folder == Path():
        return item
    say(f"note: {printable(item)}, which {run} was trained on, is read from {folder}")
    return str(folder / path)


def _place(task: Task[Any, Any], run: Path, item: str) -> str:
    if not item or item in task.config_type.data_names:
        return item
    path = with_home(item)
    folder = Path() if path.is_absolute() else _folder_of(run, path)
    return item if folder is None else os.path.realpath(folder / path)


def _folder_of(run: Path, path: Path) -> Path | None:
    """The folder that a relative path of a run is meant from: this one, or one above the run."""
    folders = (Path(), *run.absolute().parents)
    return next((folder for folder in folders if _is_there(folder / path)), None)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
