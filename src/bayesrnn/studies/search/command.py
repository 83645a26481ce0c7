"""`bayesrnn search`: begin a search or join one, and show what it has found."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from bayesrnn.durable import explained
from bayesrnn.errors import RunError
from bayesrnn.progress import say
from bayesrnn.runs.options import command_line_type, given_options
from bayesrnn.runs.output import columns, write_text
from bayesrnn.runs.task import Task
from bayesrnn.studies.search.findings import (
    Findings,
    best_sentence,
    read_findings,
    trials_table,
    write_best,
)
from bayesrnn.studies.search.journal import SystemLock
from bayesrnn.studies.search.options import SearchOptions
from bayesrnn.studies.search.page import search_page
from bayesrnn.studies.search.search import Search
from bayesrnn.studies.search.settings import (
    Settings,
    has_settings,
    make_settings,
    read_settings,
    require_same,
    write_settings,
)
from bayesrnn.studies.search.space import MACHINE, params_text, value_text
from bayesrnn.studies.search.worker import left_to_others, work
from bayesrnn.tasks import TASKS


def search_command(name: str) -> Callable[..., None]:
    """`bayesrnn search` for a task, with an option for each entry of its configuration."""
    task = TASKS[name]
    arguments: Any = command_line_type(
        "TrialArguments",
        (SearchOptions, task.config_type),
        "Options that are given hold in all trials; those left out follow the recipe, or are "
        "searched.",
    )

    def search(trial: Any) -> None:
        given = given_options(trial)
        own = {f.name: given.pop(f.name) for f in fields(SearchOptions) if f.name in given}
        print(search_runs(task, SearchOptions(**own), given))

    stated: Any = search
    stated.options = arguments.options
    search.__annotations__["trial"] = Annotated[arguments, tyro.conf.OmitArgPrefixes]
    search.__doc__ = (
        f"Find good settings for `bayesrnn train {name}`.\n\n"
        "Each trial is an ordinary run; the same command joins in from any machine that sees the "
        "folder, and goes on with what a killed one left.\n\n"
        f"bayesrnn search {name} --method bbb --space paper --trials 40 --out searches/mine\n"
    )
    return search


def search_runs(task: Task[Any, Any], options: SearchOptions, given: Mapping[str, Any]) -> str:
    """Search until there are as many trials as are asked for; gives what was found as text."""
    folder = options.out or Path("searches") / task.run_name(task.resolve(given))
    if folder.is_file():
        raise RunError(f"--out is {folder}, which is a file; give a folder for the search")
    if options.dry_run and not has_settings(folder):
        return _plan(make_settings(task, options, given), options.trials)
    settings = _joined(task, folder, options, given)
    search = Search(folder, settings, options.lease_seconds)
    command = shlex.join(
        ["bayesrnn", "search", task.name, "--trials", str(options.trials), "--out", str(folder)]
    )
    if options.dry_run:
        return f"{_plan(settings, options.trials)}\n{read_findings(search).counts()}"

    def write() -> Findings:
        with search.locked():
            found = read_findings(search)
            write_best(found)
            write_text(search_page(found, command), folder / "search.html")
        return found

    if not options.status:
        machine = {name: value for name, value in given.items() if name in MACHINE}
        work(search, options.trials, machine, command, write)
        if others := left_to_others(search):
            say(others)
    found = write()
    said = [trials_table(found).text(max(columns(), 100)), found.counts(), best_sentence(found)]
    if found.best is not None:
        said.append(f"train it: bayesrnn train {task.name} --config {folder / 'best.toml'}")
    return "\n".join([*said, f"all of it: {folder / 'search.html'}"])


def _joined(
    task: Task[Any, Any], folder: Path, options: SearchOptions, given: Mapping[str, Any]
) -> Settings:
    """The settings of the search in the folder, which begins here if there is none yet."""
    if not has_settings(folder):
        if options.status:
            raise RunError(f"--status is given, but {folder} holds no search; say which: --out DIR")
        begun = make_settings(task, options, given)
        with explained(f"make {folder}", "give a folder that can be written to"):
            folder.mkdir(parents=True, exist_ok=True)
        with SystemLock(folder / ".lock").held():
            if not has_settings(folder):
                write_settings(folder, begun)
    settings = read_settings(folder, task)
    require_same(settings, options, given, folder)
    return settings


def _plan(settings: Settings, trials: int) -> str:
    """What is searched, and where it begins."""
    lines = ["searched:"]
    for one in settings.space.dimensions:
        ends = (one.low, one.high)
        within = " to ".join(map(value_text, ends)) + " (log)" * one.log
        lines.append(f"  {one.name}: {', '.join(map(value_text, one.choices)) or within}")
    held = {**settings.given, **settings.space.held}
    lines.append(f"the same in all trials: {params_text(held)}")
    first = settings.space.first[:trials]
    lines.append(f"first trials: {len(first)}, then {trials - len(first)} by TPE")
    lines += [f"  {params_text(point)}" for point in first]
    return "\n".join(lines)
