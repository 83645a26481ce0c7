"""Start a run with the weights and the words of another one, to train on other data."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import nn

from bayesrnn.errors import ConfigError
from bayesrnn.options import flag
from bayesrnn.progress import say
from bayesrnn.runs.config import TrainingConfig
from bayesrnn.runs.load import read_config
from bayesrnn.runs.places import has_paths
from bayesrnn.runs.task import Task
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.kept_files import require_words
from bayesrnn.training.run_directory import RunDirectory

#: What such a run takes over beside the options of its task and its method.
_KEPT = (
    *("method", "recipe", "options", "batch_size", "optimizer", "weight_decay", "clip", "average"),
    *("kl_weighting", "precision"),
)
#: What it does not take over of its task's options, beside the data.
_OWN = ("vocabulary_limit",)
#: Of the learning rate of the other run: enough to learn, too little to forget much.
_RATE = 0.1


def inherited(
    task: Task[Any, Any], run: Path, given: Mapping[str, Any], file: Mapping[str, Any]
) -> dict[str, Any]:
    """The entries of the configuration of a run that one which starts from it has as well.

    What the user gave, and what a configuration file says, comes after them.
    """
    if not task.can_start_from:
        raise ConfigError(
            f"--start-from is {run}, but a run of `bayesrnn train {task.name}` cannot start from "
            "another one: what goes into its network and what comes out is made from its own data"
        )
    if run.is_file():
        raise ConfigError(f"--start-from is {run}, which is a file; give the folder of a run")
    entries = read_config(run)
    other = entries.get("task", task.name)
    if other != task.name:
        raise ConfigError(
            f"--start-from is {run}, a run of `bayesrnn train {other}`; give a run of `bayesrnn "
            f"train {task.name}`"
        )
    wanted = {**file, **given}
    if has_paths(task) and task.data_key not in wanted:
        raise ConfigError(
            f"--start-from is {run}, but there are no data to train it on; give "
            f"{flag(task.data_key)}"
        )
    method = wanted.get("method", entries["method"])
    if method != entries["method"]:
        raise ConfigError(
            f"--method is {method}, but {run} was trained by {entries['method']}, whose weights "
            "are others; leave it out"
        )
    shared = {item.name for item in fields(TrainingConfig)}
    own = {item.name for item in fields(task.config_type)} - shared - {task.data_key, *_OWN}
    kept = {name: value for name, value in entries.items() if name in own or name in _KEPT}
    return {**kept, "lr": entries["lr"] * _RATE, "kl_warmup": 0.0}


def take_weights(net: nn.Module, run: Path, names: Iterable[str]) -> None:
    """Give a network the weights of the best epoch of a run.

    names: of the files that they go with.
    """
    store = CheckpointStore(run)
    checkpoint = store.load_model("best" if store.exists("best") else "last")
    words = {name: RunDirectory(run).read_text(name) for name in names}
    require_words(run, checkpoint.state, words)
    try:
        net.load_state_dict(checkpoint.model)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"the weights of {run} do not fit the network that the options ask for; leave out "
            f"those that change it ({reason[:200]})"
        ) from None
    say(f"starting from the weights of {run} at step {checkpoint.step}")
