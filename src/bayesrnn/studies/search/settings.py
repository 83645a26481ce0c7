"""What all trials of a search have in common: kept in its folder, the same for all workers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bayesrnn.durable import write_durably
from bayesrnn.errors import ConfigError, RunError
from bayesrnn.options import flag, from_toml, to_toml
from bayesrnn.runs.places import with_whole_paths
from bayesrnn.runs.resume import refuse_added
from bayesrnn.runs.task import Task
from bayesrnn.studies.search.options import SearchOptions
from bayesrnn.studies.search.space import MACHINE, Space
from bayesrnn.studies.search.spaces import find_space

_FILE: Final = "search.toml"


@dataclass(frozen=True)
class Settings:
    """The settings of a search.

    given: options of every trial, as the user gave them.
    asked: the name of the space, or its file.
    """

    task: Task[Any, Any]
    given: Mapping[str, Any]
    asked: str
    space: Space
    pruning: bool

    def trial_options(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The options of `bayesrnn train` for a trial."""
        return {**self.given, **self.space.held, **params}

    def to_toml(self) -> str:
        """As the folder keeps it."""
        said = {"task": self.task.name, "asked": self.asked, "pruning": self.pruning}
        return to_toml({**said, "given": dict(self.given), **self.space.as_toml()})


def make_settings(
    task: Task[Any, Any], options: SearchOptions, given: Mapping[str, Any]
) -> Settings:
    """The settings of a new search."""
    refuse_added(given)
    if "start_from" in given:
        raise ConfigError(
            f"--start-from is {given['start_from']}, but a search trains its runs from the start; "
            "leave it out"
        )
    named = {name: value for name, value in given.items() if name not in MACHINE}
    whole = with_whole_paths(task, {"method": task.resolve(named).method, **named})
    space = find_space(options.space, task, whole)
    return Settings(task, whole, options.space, space, options.pruning)


def has_settings(folder: Path) -> bool:
    """Whether a search has begun in the folder."""
    return (folder / _FILE).is_file()


def write_settings(folder: Path, settings: Settings) -> None:
    """Begin a search in the folder."""
    write_durably(folder / _FILE, settings.to_toml().encode())


def read_settings(folder: Path, task: Task[Any, Any]) -> Settings:
    """The settings of the search in the folder."""
    path = folder / _FILE
    try:
        saved = from_toml(path.read_text(encoding="utf-8"), str(path))
        if saved["task"] != task.name:
            raise ConfigError(
                f"{folder} is a search over runs of `bayesrnn train {saved['task']}`; give: "
                f"bayesrnn search {saved['task']} --out {folder}"
            )
        space = Space.from_saved(saved)
        return Settings(task, saved["given"], saved["asked"], space, saved["pruning"])
    except FileNotFoundError:
        raise RunError(f"{folder} holds no search: it has no {_FILE}") from None
    except (OSError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} is damaged: {error}") from None


def require_same(
    saved: Settings, options: SearchOptions, given: Mapping[str, Any], folder: Path
) -> None:
    """Refuse options that the search in the folder does not have; those left out are its own."""
    asked = from_toml(to_toml(with_whole_paths(saved.task, given)), "the command line")
    for name, value in asked.items():
        if name not in MACHINE and saved.given.get(name) != value:
            started = f"with {saved.given[name]}" if name in saved.given else "without it"
            raise ConfigError(
                f"{flag(name)} is {value}, but the search in {folder} was started {started}; "
                "leave it out to join, or give another --out"
            )
    default = SearchOptions()
    if options.pruning != default.pruning and options.pruning != saved.pruning:
        raise ConfigError(
            f"--no-pruning is given, but the search in {folder} prunes; leave it out to join, or "
            "give another --out"
        )
    if options.space not in (default.space, saved.asked):
        raise ConfigError(
            f"--space is {options.space}, but the search in {folder} was started with "
            f"{saved.asked}; leave it out to join, or give another --out"
        )
