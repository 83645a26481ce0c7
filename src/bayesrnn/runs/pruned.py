"""The network of a run of any task from the compact file that `bayesrnn prune` wrote."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from bayesrnn.compression.file import read_compact
from bayesrnn.errors import BayesRNNError, CheckpointError, ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.options import from_toml
from bayesrnn.random import RandomStreams
from bayesrnn.runs.calibration import Calibration
from bayesrnn.runs.devices import choose_device
from bayesrnn.runs.places import found_again
from bayesrnn.runs.task import Task, TrainedRun

AnyRun = TypeVar("AnyRun", bound=TrainedRun[Any])

#: What becomes of the network of a file on a device, such as one that is faster.
Packing = Callable[[nn.Module, torch.device], nn.Module]


def load_pruned(
    task: Task[Any, Any],
    path: Path,
    checkpoint: str,
    device: str,
    run_type: type[AnyRun],
    packed: Packing,
) -> AnyRun:
    """The network of a file of `prune --out`: one set of weights, so it predicts like `plain`."""
    compact = read_compact(path)
    about = compact.about
    other = about.get("task")
    if other != task.name and isinstance(other, str):
        raise ConfigError(
            f"{path} is a pruned network of `bayesrnn train {other}`; give a run of `bayesrnn train"
            f" {task.name}`, or a file made of one"
        )
    config_text, files, step = (about.get(name) for name in ("config", "files", "step"))
    if (
        other != task.name
        or not isinstance(config_text, str)
        or not isinstance(files, dict)
        or not all(isinstance(files.get(name), str) for name in task.file_names)
        or not isinstance(step, int)
    ):
        raise CheckpointError(
            f"{path} has weights, but not the settings and the words of a run of `bayesrnn train "
            f"{task.name}`; give a file of `bayesrnn prune --out`"
        )
    if checkpoint not in ("best", "last", str(step)):
        raise ConfigError(
            f"--checkpoint is {checkpoint}, but {path} has one network only, that of step {step}; "
            "leave it out"
        )
    plain = METHODS["plain"]
    shapes = {name: weight.shape for name, weight in compact.weights.items()}
    try:
        trained_as = task.resolve({}, from_toml(config_text, f"the configuration in {path}"))
        trained_as = found_again(task, path, trained_as)
        config = replace(
            trained_as,
            method=plain.name,
            kl_weighting="uniform",
            kl_warmup=None,
            options={},
        )
        streams = RandomStreams(config.seed)
        method = plain(plain.options_type(), streams)
        with torch.device("meta"):  # before memory is taken for a network that does not fit
            expected = task.build(config, files, method, streams).state_dict()
        fits = shapes == {name: weight.shape for name, weight in expected.items()}
        module = task.build(config, files, method, streams) if fits else None
    except (BayesRNNError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"the network of {path} cannot be made: {error}") from None
    if module is None:
        raise CheckpointError(f"the weights of {path} do not fit its configuration")
    module.load_state_dict(compact.weights)
    try:
        kept = about.get("calibration")
        calibration = None if kept is None else Calibration.from_json(kept)
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(
            f"the calibration of {path} is damaged; prune the run again"
        ) from None
    place = choose_device(device)
    return run_type(
        path=path,
        config=config,
        method=method,
        net=packed(module, place).to(place),
        step=step,
        device=place,
        files=files,
        fingerprint=about.get("fingerprint"),
        calibration=calibration,
    )
