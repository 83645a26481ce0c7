"""What a search may change: dimensions that come from the options' own metadata."""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.options import Option, from_toml, options_of
from bayesrnn.runs.options import option_owners
from bayesrnn.runs.task import Task

#: Options of one machine: each worker has its own, and the results do not depend on them.
MACHINE: Final = ("data_dir", "device", "threads", "save_minutes", "tensorboard")
#: Options that say what a search is about, or what happens after it: they are the same in all
#: trials, or have nothing to do with how good one is.
_HELD: Final = (*MACHINE, "method", "recipe", "seed", "start_from", "calibrate")

_KEYS = ("low", "high", "log", "choices")


@dataclass(frozen=True)
class Dimension:
    """An option that is searched: from `low` to `high`, evenly or by its logarithm, or a choice."""

    name: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: tuple[Any, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether it has whole numbers alone."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def contains(self, value: Any) -> bool:
        """Whether a trial of the search can have the value."""
        if self.choices:
            return value in self.choices
        assert self.low is not None
        assert self.high is not None
        return isinstance(value, int | float) and self.low <= value <= self.high

    def place(self, value: Any) -> float:
        """Where the value is, from 0 to 1."""
        if self.choices:
            return self.choices.index(value) / max(len(self.choices) - 1, 1)
        assert self.low is not None
        assert self.high is not None
        low, high, at = (
            math.log(v) if self.log else float(v) for v in (self.low, self.high, value)
        )
        return (at - low) / (high - low) if high > low else 0.5

    def as_toml(self) -> dict[str, Any]:
        """The table that a file of a space has for it."""
        if self.choices:
            return {"choices": list(self.choices)}
        return {"low": self.low, "high": self.high, "log": self.log}


@dataclass(frozen=True)
class Space:
    """What is searched, what is held at a value of the space's own, and where the search begins."""

    dimensions: tuple[Dimension, ...]
    held: Mapping[str, Any]
    #: Points to try before the sampler has its say.
    first: tuple[Mapping[str, Any], ...] = ()

    def as_toml(self) -> dict[str, Any]:
        """As a file of a space says it, with the first trials."""
        tables = {one.name: one.as_toml() for one in self.dimensions}
        return {"held": dict(self.held), "space": tables, "first": [dict(p) for p in self.first]}

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> "Space":
        """What `as_toml` gave."""
        dimensions = [
            Dimension(name, **{**table, "choices": tuple(table.get("choices", ()))})
            for name, table in saved["space"].items()
        ]
        return cls(tuple(dimensions), saved.get("held", {}), tuple(saved.get("first", ())))


def searchable(task: Task[Any, Any], method: str, options: Mapping[str, Any]) -> dict[str, Option]:
    """The options that a search over runs of a task by a method can change.

    options: those of the method that are known, on which others may depend.
    """
    own = options_of(METHODS[method].options_for(options))
    held = (*_HELD, task.data_key)
    return {
        item.name: item
        for item in (*options_of(task.config_type), *own)
        if item.name not in held and not item.is_list
    }


def read_space(path: Path, task: Task[Any, Any], method: str, known: Mapping[str, Option]) -> Space:
    """The space of a file: a table for each option that is searched, a value for one that is not.

    Bounds and choices that the file leaves out are those of the option.
    """
    try:
        entries = from_toml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--space {path} cannot be read: {error}; give paper, wide, or a TOML file"
        ) from None
    dimensions, held = [], {}
    for name, entry in entries.items():
        item = known.get(name)
        if item is None:
            raise ConfigError(f"{path} has {name!r}, {_why_not(name, task, method, known)}")
        try:
            if isinstance(entry, Mapping):
                dimensions.append(_dimension(item, entry))
            else:
                held[name] = item.check(entry)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
    if not dimensions:
        raise ConfigError(
            f"{path} names no option to search; give it a table such as: [lr] low = 0.1, high = 1.0"
        )
    return Space(tuple(dimensions), held)


def _why_not(name: str, task: Task[Any, Any], method: str, known: Mapping[str, Option]) -> str:
    if any(item.name == name for item in options_of(task.config_type)):
        return "which a search cannot change; give it on the command line"
    owners = option_owners(name)
    if owners:
        return f"which is an option of {', '.join(owners)} and not of the method {method}"
    close = difflib.get_close_matches(name, known, n=1)
    meant = f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}"
    return f"which is not an option of `bayesrnn train {task.name} --method {method}`; {meant}"


def _dimension(item: Option, table: Mapping[str, Any]) -> Dimension:
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"{item.flag} has {key!r}; there are: {', '.join(_KEYS)}")
    choices = table.get("choices", item.choices or ((False, True) if item.kind is bool else ()))
    if not isinstance(choices, list | tuple):
        raise ConfigError(f"{item.flag} has choices = {choices!r}; give a list of values")
    if choices:
        if len(choices) != len(set(choices)) or "low" in table or "high" in table:
            raise ConfigError(f"{item.flag} has choices; give each once, and no low and high")
        return Dimension(item.name, choices=tuple(item.check(value) for value in choices))
    low, high = table.get("low", item.ge), table.get("high", item.le)
    if low is None or high is None or item.kind not in (int, float):
        raise ConfigError(f"{item.flag} needs {_needs(item)}")
    low, high = (item.kind(item.check(end)) for end in (low, high))
    log = table.get("log", False)
    if low >= high:
        raise ConfigError(f"{item.flag} goes from {low} to {high}; the low end has to be lower")
    if not isinstance(log, bool) or (log and low <= 0):
        raise ConfigError(f"{item.flag} has log = {log}; it is true or false, and true above 0")
    return Dimension(item.name, low, high, log)


def _needs(item: Option) -> str:
    if item.kind not in (int, float):
        return "choices, a list of values"
    allowed = f", {item.range}" if item.range else ""
    return f"a low and a high end{allowed}, or choices"


def params_text(params: Mapping[str, Any], names: Sequence[str] = ()) -> str:
    """Settings in a line."""
    return ", ".join(f"{name} {value_text(params[name])}" for name in names or params)


def value_text(value: Any) -> str:
    """A value of an option, short."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
