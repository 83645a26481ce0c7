"""Continue a run: what may change, and how it is said what happens."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.methods import METHODS
from bayesrnn.options import Added, flag, options_of
from bayesrnn.report.text import counted
from bayesrnn.runs.config import file_entries
from bayesrnn.runs.places import is_gone, with_whole_paths
from bayesrnn.runs.task import Config, Task
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.loop import Trainer

#: The course of the learning rate.
_COURSE = ("lr", "hold_epochs", "decay")
#: Options that may change when a run is resumed.
_CHANGEABLE = (
    *("epochs", *_COURSE, "device", "threads", "save_minutes", "tensorboard", "data_dir"),
    "calibrate",
)


def resumed(
    task: Task[Config, Any], saved: Config, given: Mapping[str, Any], file: Mapping[str, Any]
) -> Config:
    """The saved configuration with what may change; anything else that differs is an error.

    The data may have another path where they are not in their old place; training refuses other
    data.
    """
    before = with_whole_paths(task, {**saved.options, **vars(saved)})
    values, options = file_entries(type(saved), file)
    values.pop("lr_from", None)  # no option: it says what became of the run that the file is of
    if saved.lr_from:  # the course in the file is that of before
        values = {name: value for name, value in values.items() if name not in _COURSE}
    wanted = with_whole_paths(task, {**values, **options, **given})
    if isinstance(wanted.get("epochs"), Added):
        wanted["epochs"] += saved.epochs
    changed = {
        name: value
        for name, value in wanted.items()
        # A task and a method may have an option of one name.
        if not (_same(value, before.get(name)) or _same(value, saved.options.get(name)))
    }
    for name in [item.name for item in options_of(type(saved)) if "auto" in item.choices]:
        if name not in _CHANGEABLE and changed.get(name) == "auto":
            del changed[name]  # what was found when the run was started
    movable = task.data_key if is_gone(task, saved) else None
    for name, value in changed.items():
        if name not in (*_CHANGEABLE, movable):
            started = "without it" if before.get(name) is None else f"with {before[name]}"
            raise ConfigError(
                f"{flag(name)} is {value}, but the run was started {started}; leave it out to "
                "resume, or start a new run with another --out"
            )
    kept = with_whole_paths(task, vars(saved))
    config = replace(saved, **{**kept, **changed})
    if gone := is_gone(task, config):
        raise CorpusError(
            f"{gone!r}, which the run learns from, is not there; if it was moved, say where it is "
            f"now with {flag(task.data_key)} PATH"
        )
    return config


def with_new_course(
    config: Config, given: Mapping[str, Any], saved: Config, store: CheckpointStore, which: str
) -> Config:
    """The configuration with a learning rate whose course begins where the run goes on.

    That is so where the user gave another rate than the run has; the rate then holds to the end,
    unless it is said for how many epochs.
    """
    if all(getattr(config, name) == getattr(saved, name) for name in _COURSE):
        return config
    if len(METHODS[config.method].round_epochs(config.options, config.epochs)) > 1:
        raise ConfigError(
            f"the learning rate is to change, but the method {config.method} trains in rounds that "
            "each begin with the first rate again; leave it out"
        )
    if config.lr == saved.lr or not store.exists():
        return config
    start = store.load(which).state["position"]["epoch"]
    hold = config.hold_epochs if "hold_epochs" in given else max(config.epochs - start, 1)
    return replace(config, lr_from=start, hold_epochs=hold)


def how_it_goes_on(task: Task[Any, Any], path: Path, trainer: Trainer) -> str:
    """What a resumed run does next, in a line."""
    done, planned = trainer.position.epoch, trainer.epochs
    if done >= planned:
        return (
            f"{path} is finished: it has been trained for all of its {counted(planned, 'epoch')}; "
            f"to train on: bayesrnn train {task.name} --resume --epochs +3 --out {path}"
        )
    return (
        f"resuming {path} in epoch {done + 1} of {planned}, at a learning rate of {trainer.lr:.3g}"
        " (--lr for another)"
    )


def without_added(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the user gave, without a number of epochs that is one of more epochs."""
    return {name: value for name, value in given.items() if not isinstance(value, Added)}


def refuse_added(given: Mapping[str, Any]) -> None:
    """Refuse more epochs of a run that is not there."""
    for name, value in given.items():
        if isinstance(value, Added):
            raise ConfigError(
                f"{flag(name)} is +{value}, which is more than a run has, but no run is resumed; "
                f"give --resume --out RUN, or {flag(name)} {value}"
            )


def _same(value: Any, other: Any) -> bool:
    """Whether two values mean the same, be they from the command line, a file or a run."""
    return bool(value == other or _texts(value) == _texts(other))


def _texts(value: Any) -> list[str]:
    return [str(item) for item in (value if isinstance(value, list | tuple) else [value])]
