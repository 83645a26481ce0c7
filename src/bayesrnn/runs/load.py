"""Load a trained run of any task."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from bayesrnn.compression.cutting import cut
from bayesrnn.errors import CheckpointError, ConfigError, RunError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Method
from bayesrnn.options import from_toml
from bayesrnn.random import RandomStreams
from bayesrnn.runs.calibration import read_calibration
from bayesrnn.runs.config import TrainingConfig
from bayesrnn.runs.devices import choose_device
from bayesrnn.runs.places import found_again, free_entries
from bayesrnn.runs.pruned import Packing, load_pruned
from bayesrnn.runs.task import Task, TrainedRun
from bayesrnn.training.checkpoints import Checkpoint, CheckpointStore
from bayesrnn.training.kept_files import require_settings, require_words
from bayesrnn.training.run_directory import RunDirectory


def make_method(config: TrainingConfig, streams: RandomStreams) -> Method[Any]:
    """The method that a configuration names, with its options."""
    method_type = METHODS[config.method]
    return method_type(method_type.options_for(config.options)(**config.options), streams)


AnyRun = TypeVar("AnyRun", bound=TrainedRun[Any])


def cut_units(module: nn.Module, device: torch.device) -> nn.Module:
    """The network without the units that do nothing."""
    del device
    return cut(module)


def load_run(
    task: Task[Any, Any],
    path: Path,
    checkpoint: str,
    device: str,
    run_type: type[AnyRun],
    packed: Packing = cut_units,
) -> AnyRun:
    """Load a trained run of a task from its folder, as the task's own kind of `TrainedRun`.

    In place of a folder there may be the file of a pruned network.

    packed: what becomes of the network of a file, for inference: the smaller one.
    """
    advice = f"give a run of `bayesrnn train {task.name}`"
    if path.is_file():
        return load_pruned(task, path, checkpoint, device, run_type, packed)
    directory = RunDirectory(path)
    entries = read_config(path)
    other = entries.get("task", task.name)
    if other != task.name:
        raise ConfigError(f"{path} is a run of `bayesrnn train {other}`; {advice}")
    require_settings(path, entries, free_entries(task))
    config = found_again(task, path, task.resolve({}, entries, saved=True))
    store = CheckpointStore(path)
    if checkpoint == "best" and not store.exists("best"):
        checkpoint = "last"  # no epoch was finished yet
    saved = store.load_model(checkpoint)
    files = {name: directory.read_text(name) for name in task.file_names}
    require_words(path, saved.state, files)
    _require_fitting_size(task, path, config, files, saved)
    streams = RandomStreams(config.seed)
    method = make_method(config, streams)
    net = task.build(config, files, method, streams)
    try:
        net.load_state_dict(saved.model)
    except RuntimeError as error:
        raise CheckpointError(
            f"the checkpoint of step {saved.step} does not fit the configuration of {path}: {error}"
        ) from None
    place = choose_device(device)
    return run_type(
        path=path,
        config=config,
        method=method,
        net=net.to(place),
        step=saved.step,
        device=place,
        files=files,
        fingerprint=saved.state.get("fingerprint"),
        calibration=read_calibration(path),
    )


def count_weights(task: Task[Any, Any], config: TrainingConfig, files: Mapping[str, str]) -> float:
    """How many weights the network of a configuration has, without memory for them."""
    plain = METHODS["plain"]
    of_one = replace(config, method="plain", kl_weighting="uniform", kl_warmup=None, options={})
    method = plain(plain.options_type(), RandomStreams(config.seed))
    try:
        with torch.device("meta"):
            network = task.build(of_one, files, method, method.streams)
    except RuntimeError:  # more than 64 bits can count
        return math.inf
    return sum(weight.numel() for weight in network.parameters())


def _require_fitting_size(
    task: Task[Any, Any],
    path: Path,
    config: TrainingConfig,
    files: Mapping[str, str],
    saved: Checkpoint,
) -> None:
    """Refuse a configuration of a larger network than was saved, before memory is taken for it."""
    asked = count_weights(task, config, files)
    if asked > sum(weight.numel() for weight in saved.model.values()):
        raise CheckpointError(
            f"the checkpoint of step {saved.step} does not fit the configuration of {path}, which "
            "asks for a larger network"
        )


def read_config(path: Path) -> dict[str, Any]:
    """The entries of the configuration of the run in a folder."""
    try:
        return from_toml(RunDirectory(path).read_config(), f"{path}/config.toml")
    except ConfigError as error:
        raise RunError(f"{path} is damaged: {error}") from None
