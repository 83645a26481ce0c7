"""Load a trained run of any task."""

from pathlib import Path
from typing import Any, TypeVar

import torch

from bayesrnn.errors import CheckpointError, ConfigError, RunError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Method
from bayesrnn.options import from_toml
from bayesrnn.random import RandomStreams
from bayesrnn.runs.calibration import read_calibration
from bayesrnn.runs.config import TrainingConfig
from bayesrnn.runs.task import Task, TrainedRun
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.run_directory import RunDirectory


def make_method(config: TrainingConfig, streams: RandomStreams) -> Method[Any]:
    """The method that a configuration names, with its options."""
    method_type = METHODS[config.method]
    return method_type(method_type.options_for(config.options)(**config.options), streams)


AnyRun = TypeVar("AnyRun", bound=TrainedRun[Any])


def load_run(
    task: Task[Any, Any], path: Path, checkpoint: str, device: str, run_type: type[AnyRun]
) -> AnyRun:
    """Load a trained run of a task from its folder, as the task's own kind of `TrainedRun`."""
    advice = f"give a run of `bayesrnn train {task.name}`"
    if path.is_file():
        raise ConfigError(f"{path} is a file; {advice}")
    directory = RunDirectory(path)
    entries = read_config(path)
    other = entries.get("task", task.name)
    if other != task.name:
        raise ConfigError(f"{path} is a run of `bayesrnn train {other}`; {advice}")
    config = task.resolve({}, entries, saved=True)
    store = CheckpointStore(path)
    if checkpoint == "best" and not store.exists("best"):
        checkpoint = "last"  # no epoch was finished yet
    saved = store.load_model(checkpoint)
    files = {name: directory.read_text(name) for name in task.file_names}
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


def read_config(path: Path) -> dict[str, Any]:
    """The entries of the configuration of the run in a folder."""
    try:
        return from_toml(RunDirectory(path).read_config(), f"{path}/config.toml")
    except ConfigError as error:
        raise RunError(f"{path} is damaged: {error}") from None


def choose_device(name: str) -> torch.device:
    """The device by name, or the best one there is for `auto`."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.mps.is_available()}
    if name == "auto":
        name = "cuda" if there["cuda"] else "cpu"
    if not there[name]:
        have = ", ".join(device for device, is_there in there.items() if is_there)
        raise ConfigError(f"--device is {name}, which this machine does not have; it has: {have}")
    return torch.device(name)
