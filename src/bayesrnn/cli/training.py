"""The command that trains a network, made for each task."""

from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any

import tyro

from bayesrnn.progress import say
from bayesrnn.runs.options import command_line_type, given_options
from bayesrnn.runs.start import RunArguments, train_run
from bayesrnn.tasks import TASKS


def training_command(name: str) -> Callable[..., None]:
    """`bayesrnn train` for a task, with an option for each entry of its configuration."""
    task = TASKS[name]
    arguments = command_line_type(
        "TrainingArguments",
        (RunArguments, task.config_type),
        "Options left out follow the recipe of the method (and the size).",
    )

    def train(training: Any) -> None:
        given = given_options(training)
        run = {f.name: given.pop(f.name) for f in fields(RunArguments) if f.name in given}
        path = train_run(task, RunArguments(**run), given)
        say(f"the run is in {path}; next: bayesrnn evaluate {path}")

    train.__annotations__["training"] = Annotated[arguments, tyro.conf.OmitArgPrefixes]
    train.__doc__ = f"{task.summary}\n\n{task.example}\n"
    return train
