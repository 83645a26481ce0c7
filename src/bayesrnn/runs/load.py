"""Load a trained run of any task."""

from pathlib import Path
from typing import Any

import torch

from bayesrnn.errors import CheckpointError, ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Method
from bayesrnn.random import RandomStreams
from bayesrnn.runs.config import TrainingConfig
from bayesrnn.runs.options import from_toml
from bayesrnn.runs.task import Config, Task, TrainedRun
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.run_directory import RunDirectory


def make_method(config: TrainingConfig, streams: RandomStreams) -> Method[Any]:
    """The method that a configuration names, with its options."""
    method_type = METHODS[config.method]
    return method_type(method_type.options_for(config.options)(**config.options), streams)


def load_network(
    task: Task[Config, Any],
    path: Path,
    checkpoint: str,
    device: str,
    file_names: tuple[str, ...] = (),
) -> TrainedRun[Config]:
    """Load a trained run of a task from its folder."""
    directory = RunDirectory(path)
    config = task.resolve({}, from_toml(directory.read_config(), f"{path}/config.toml"))
    store = CheckpointStore(path)
    if checkpoint == "best" and not store.exists("best"):
        checkpoint = "last"  # no epoch was finished yet
    saved = store.load_model(checkpoint)
    files = {name: directory.read_text(name) for name in file_names}
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
    fingerprint = saved.state.get("fingerprint")
    return TrainedRun(path, config, method, net.to(place), saved.step, place, files, fingerprint)


def task_name(path: Path) -> str:
    """The task of the run in a folder; runs without a word about it are language models."""
    config = from_toml(RunDirectory(path).read_config(), f"{path}/config.toml")
    return str(config.get("task", "lm"))


def choose_device(name: str) -> torch.device:
    """The device by name, or the best one there is for `auto`."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.mps.is_available()}
    if name == "auto":
        name = "cuda" if there["cuda"] else "cpu"
    if not there[name]:
        have = ", ".join(device for device, is_there in there.items() if is_there)
        raise ConfigError(f"--device is {name}, which this machine does not have; it has: {have}")
    return torch.device(name)
