"""Commands of the program, declared without importing what they run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Command:
    """A word of the command line: where its function is, and the first line of its help."""

    place: str
    summary: str

    def load(self) -> Any:
        """The function."""
        module, _, name = self.place.partition(":")
        return getattr(import_module(module), name)


@dataclass(frozen=True)
class MadeCommand(Command):
    """A word whose function is made when it is called: `place` makes it from the `arguments`."""

    arguments: tuple[str, ...] = ()

    def load(self) -> Any:
        """The function."""
        return super().load()(*self.arguments)


@dataclass(frozen=True)
class TaskEntry:
    """What the command line has to know of a task before it imports it.

    summary: what `bayesrnn train --help` says of it.
    commands: its own, by word.
    data_sets: by name, a file of each published data set that it knows, under the data folder.
    """

    summary: str
    commands: Mapping[str, Command] = field(default_factory=dict)
    data_sets: Mapping[str, str] = field(default_factory=dict)
