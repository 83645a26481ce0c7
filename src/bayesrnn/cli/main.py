"""The command line: which word runs which command, built from the tasks."""

from __future__ import annotations

import contextlib
import difflib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path

import tyro

from bayesrnn import __version__
from bayesrnn.errors import (
    BayesRNNError,
    BayesRNNWarning,
    ConfigError,
    CorpusError,
    Interrupted,
)
from bayesrnn.progress import at_most_a_screen, say, silenced, visible
from bayesrnn.runs.command import Command, MadeCommand
from bayesrnn.studies import COMMANDS as STUDIES
from bayesrnn.tasks import TASKS
from bayesrnn.training.launch import launched

#: Help on words after which another one follows.
GROUPS = {
    "train": "Train a network: the next word says for which task.",
    "reproduce": "Make published results again: the next word says which.",
    "search": "Search for good settings by many trials: the next word says for which task.",
}

_DESCRIPTION = """Bayesian recurrent neural networks.

bayesrnn --version says which version this is, and bayesrnn COMMAND --help what a command takes.
Tab completion in bash, zsh or fish: bayesrnn completion --help"""

_TOO_LITTLE_MEMORY = (
    "bayesrnn: there is not enough memory; give a smaller network (--hidden, --layers), smaller "
    "minibatches (--batch-size) or less data. Whatever was saved before is whole"
)

_COMMANDS = "bayesrnn.cli.commands"
_ANY_TASK: dict[tuple[str, ...], Command] = {
    ("evaluate",): MadeCommand(f"{_COMMANDS}:evaluate_command", "Measure how well a run predicts."),
    ("calibrate",): Command(
        f"{_COMMANDS}:calibrate_run",
        "Fit the noise of draws and the temperature of a run to its validation data.",
    ),
    ("uncertainty",): MadeCommand(
        f"{_COMMANDS}:uncertainty_command", "Measure whether runs know what they do not know."
    ),
    ("compare",): Command(
        f"{_COMMANDS}:compare_runs",
        "Compare runs: a table, and learning curves in one self-contained page.",
    ),
    ("prune",): MadeCommand(
        f"{_COMMANDS}:prune_command",
        "Find out how many weights or units a network can lose: its metric against the share "
        "dropped.",
    ),
    ("doctor",): Command(
        f"{_COMMANDS}:examine_run", "Say why a run does not learn, and what to try."
    ),
    ("serve",): Command(
        f"{_COMMANDS}:serve_runs",
        "Show runs on a page: type, drop or draw something, and see what they doubt.",
    ),
}
_ABOUT: dict[tuple[str, ...], Command] = {
    ("info",): Command(
        "bayesrnn.cli.info:show_info",
        "Show versions, the compiled kernel, threads, devices, and which data sets are found.",
    ),
    ("completion",): Command(
        "bayesrnn.cli.completion:print_completion",
        "Print what makes a shell complete commands, options and paths.",
    ),
}


def all_commands() -> dict[tuple[str, ...], Command]:
    """Every command by its words, in the order of `--help`."""
    tasks = TASKS.entries()
    found: dict[tuple[str, ...], Command] = {}
    for name, entry in tasks.items():
        place = f"{_COMMANDS}:training_command"
        found["train", name] = MadeCommand(place, entry.summary, (name,))
    found.update(_ANY_TASK)
    for entry in tasks.values():
        for word, command in entry.commands.items():
            found[word,] = command
    for name in tasks:
        place = "bayesrnn.studies.search.command:search_command"
        summary = f"Find good settings for `bayesrnn train {name}`."
        found["search", name] = MadeCommand(place, summary, (name,))
    return {**found, **STUDIES, **_ABOUT}


def make_app(arguments: Sequence[str]) -> tyro.extras.SubcommandApp:
    """The parser of the command line. Only the command that is called is imported.

    The others are there for `--help`, which needs no more of them than their first line.
    """
    app = tyro.extras.SubcommandApp()
    groups = {word: tyro.extras.SubcommandApp() for word in GROUPS}
    seen = set[str]()
    for words, command in all_commands().items():
        group = words[0] if len(words) > 1 else None
        if group is not None and group not in seen:
            seen.add(group)
            app.command(groups[group], name=group, help=GROUPS[group])
        called = tuple(arguments[: len(words)]) == words
        if called:
            _before_work()
        parent = app if group is None else groups[group]
        parent.command(name=words[-1])(command.load() if called else _shown(command.summary))
    return app


def _before_work() -> None:
    from bayesrnn.training.process import keep_freed_memory

    keep_freed_memory()


def _shown(summary: str) -> Callable[[], None]:
    """A command that is only shown."""

    def shown() -> None:
        pass

    shown.__doc__ = summary
    return shown


@contextlib.contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Show our own warnings without the place in the code, which is no business of a user."""
    usual = warnings.formatwarning

    def in_one_line(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        line: str | None = None,
    ) -> str:
        if issubclass(category, BayesRNNWarning):
            return visible(at_most_a_screen(f"bayesrnn: {message}")) + "\n"
        return usual(message, category, filename, lineno, line)

    warnings.formatwarning = in_one_line
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _is_lack_of_memory(error: MemoryError | RuntimeError) -> bool:
    # What torch says on the CPU and on devices; it has no error of its own for the CPU.
    said = ("allocate memory", "enough memory", "out of memory")
    return isinstance(error, MemoryError) or any(words in str(error) for words in said)


def _unknown_word(arguments: Sequence[str]) -> str | None:
    """What to say of a first or second word that is no command; None where all are."""
    known, before = list(all_commands()), ""
    for place, word in enumerate(arguments[:2]):
        words = list(dict.fromkeys(names[place] for names in known if len(names) > place))
        if not words or word.startswith("-"):
            return None
        if word not in words:
            close = difflib.get_close_matches(word, words, n=1)
            meant = f"did you mean {before}{close[0]}?" if close else ""
            advice = meant or f"there are: {', '.join(words)}"
            return f"there is no command {before}{word}; {advice}"
        known, before = [names for names in known if names[place] == word], f"{before}{word} "
    return None


def _with_default_rule(arguments: Sequence[str]) -> list[str]:
    """`--dynamic` alone means `--dynamic sgd`."""
    spelt = list(arguments)
    if "--dynamic" in spelt:
        from bayesrnn.tasks.lm.dynamic_settings import RULES

        place = spelt.index("--dynamic") + 1
        following = spelt[place] if place < len(spelt) else "-"
        # The folder of a run may follow; any other word is a rule, or meant as one.
        if following.startswith("-") or (following not in RULES and Path(following).exists()):
            spelt.insert(place, RULES[0])
    return spelt


def _is_follower() -> bool:
    """Whether this is a process of a run that is not the first one."""
    with contextlib.suppress(ConfigError):
        launch = launched()
        return launch is not None and not launch.is_first
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code. A user's mistake is one line, not a traceback."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments) == ["--version"]:
        print(f"bayesrnn {__version__}")
        return 0
    if (unknown := _unknown_word(arguments)) is not None:
        print(visible(at_most_a_screen(f"bayesrnn: {unknown}")), file=sys.stderr)
        return 2
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal that knows only ASCII gets a question mark for a sign that it cannot show.
        sys.stdout.reconfigure(errors="replace")
    try:
        with _warnings_in_one_line():
            make_app(arguments).cli(
                prog="bayesrnn",
                description=_DESCRIPTION,
                args=_with_default_rule(arguments),
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except Interrupted as stopped:
        # The terminal may be closed, so that nobody reads it.
        with contextlib.suppress(OSError), silenced(_is_follower()):
            say(str(stopped))
        # To a launcher, anything but 0 is a process that failed, to be started again.
        return 128 + stopped.signal_number if launched() is None else 0
    except BayesRNNError as error:
        # A mistake in what all processes of a run were given is said by the first one.
        if not (isinstance(error, ConfigError | CorpusError) and _is_follower()):
            print(visible(at_most_a_screen(f"bayesrnn: {error}")), file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as error:
        if not _is_lack_of_memory(error):
            raise
        print(_TOO_LITTLE_MEMORY, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bayesrnn: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`bayesrnn ... | head`): nobody is left to tell.
        sys.stderr.close()
        return 141
    return 0
