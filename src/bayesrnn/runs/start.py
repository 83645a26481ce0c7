"""Start a run of any task, or continue it."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bayesrnn.errors import ConfigError, Interrupted, MissingExtraError, RunError
from bayesrnn.methods.base import Method
from bayesrnn.options import CheckedOptions, flag, from_toml, option, options_of
from bayesrnn.random import RandomStreams
from bayesrnn.runs.calibrate import calibrate_after_training
from bayesrnn.runs.config import TrainingConfig, file_entries
from bayesrnn.runs.devices import choose_device
from bayesrnn.runs.load import make_method, read_config
from bayesrnn.runs.task import Config, Data, Task
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.dropping import DropSchedule
from bayesrnn.training.loop import LoopSettings, Trainer
from bayesrnn.training.optimisation import Schedule, make_optimiser, problem_kl_scale
from bayesrnn.training.problem import Problem
from bayesrnn.training.process import denormals_flushed
from bayesrnn.training.run_directory import RunDirectory

#: Options that may change when a run is resumed.
_CHANGEABLE = (
    *("epochs", "device", "threads", "save_minutes", "tensorboard", "data_dir", "calibrate"),
)


@dataclass(frozen=True)
class RunArguments(CheckedOptions):
    """Which run to start or to continue."""

    out: Path | None = option(None, "folder of the run (default: in runs/, named by its options)")
    config: Path | None = option(None, "a config.toml of another run; options given here win")
    resume: bool = option(False, "continue the run in --out, or start it if there is nothing yet")
    checkpoint: str = option("last", "the checkpoint to resume from: last, best or a step")


def train_run(task: Task[Config, Any], arguments: RunArguments, given: Mapping[str, Any]) -> Path:
    """Train a network, or continue to; returns the folder of the run."""
    file = _read_config_file(arguments.config)
    path = arguments.out or Path("runs") / task.run_name(task.resolve(given, file))
    if path.is_file():
        raise RunError(
            f"--out is {path}, which is a file; give the folder of a run (the file of a pruned "
            "network cannot be trained on)"
        )
    directory = RunDirectory(path)
    store = CheckpointStore(path)
    if arguments.resume and directory.has_config():
        # Also where it was killed before its first checkpoint: it starts again as it was meant.
        config = _resumed(task.resolve({}, read_config(path), saved=True), given, file)
    else:
        config = task.resolve(given, file)
    device = choose_device(config.device)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    data = task.load(config)
    directory.create()
    with directory.lock():
        if store.exists() and not arguments.resume:
            raise RunError(
                f"{path} already holds a run; add --resume to continue it, or give another --out"
            )
        store.clean()
        trainer = make_trainer(task, config, data, directory, device)
        if store.exists():
            trainer.resume(arguments.checkpoint)
        else:
            directory.metrics.truncate(0)
        # Only now: a resume that was refused must leave the run as it was.
        directory.write_config(config.to_toml())
        for name, text in task.files(data).items():
            directory.write_text(name, text)
        try:
            with denormals_flushed() if task.flush_denormals else nullcontext():
                trainer.train()
        except Interrupted as stopped:
            advice = f"go on with: bayesrnn train {task.name} --resume --out {path}"
            raise Interrupted(stopped.signal_number, f"{stopped}; {advice}") from None
        if config.calibrate:
            calibrate_after_training(task, path, config.device, data)
    return path


def make_trainer(
    task: Task[Config, Data],
    config: Config,
    data: Data,
    directory: RunDirectory,
    device: torch.device,
) -> Trainer:
    """Everything that trains, assembled and at its start."""
    streams = RandomStreams(config.seed)
    method = make_method(config, streams)
    files = task.files(data)
    net = task.build(config, files, method, streams).to(device)
    problem = task.problem(config, data, method, net, device)
    return Trainer(
        net=net,
        method=method,
        problem=problem,
        optimiser=_optimiser(config, method, net, problem),
        widths=method.widths(net, config.batch_size),
        settings=LoopSettings(
            unit=task.unit,
            measure=task.measure(files.__getitem__).key,
            epochs=config.epochs,
            schedule=Schedule(config.lr, config.hold_epochs, config.decay),
            clip=config.clip or None,
            save_minutes=config.save_minutes,
            kl_weighting=config.kl_weighting,
            average=config.average or 0.0,
            kl_warmup=config.kl_warmup or 0.0,
            precision=config.precision,
            drop=_drop_schedule(config),
        ),
        streams=streams,
        run=directory,
        fingerprint=task.fingerprint(data),
        observe=_tensorboard(directory.path) if config.tensorboard else None,
    )


def _drop_schedule(config: TrainingConfig) -> DropSchedule | None:
    if not config.drop_to:
        return None
    assert config.drop_from is not None
    assert config.drop_until is not None
    return DropSchedule(config.drop_to, config.drop_from, config.drop_until, config.drop_kl)


def _optimiser(
    config: TrainingConfig, method: Method[Any], net: nn.Module, problem: Problem
) -> torch.optim.Optimizer:
    if method.own_optimiser:
        batches = problem.minibatches(0)
        kl_scale = problem_kl_scale("uniform", 0, batches)
        return method.optimiser(net, config.lr, kl_scale)
    groups, undecayed = method.parameter_groups(net), method.undecayed(net)
    return make_optimiser(config.optimizer, groups, config.lr, config.weight_decay, undecayed)


def _read_config_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return from_toml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path} cannot be read: {error}") from None


def _resumed(saved: Config, given: Mapping[str, Any], file: Mapping[str, Any]) -> Config:
    """The saved configuration with what may change; anything else that differs is an error."""
    before = {**saved.options, **vars(saved)}
    values, options = file_entries(type(saved), file)
    wanted = {**values, **options, **given}
    changed = {
        name: value
        for name, value in wanted.items()
        # A task and a method may have an option of one name.
        if not (_same(value, before.get(name)) or _same(value, saved.options.get(name)))
    }
    for name in [item.name for item in options_of(type(saved)) if "auto" in item.choices]:
        if name not in _CHANGEABLE and changed.get(name) == "auto":
            del changed[name]  # what was found when the run was started
    for name, value in changed.items():
        if name not in _CHANGEABLE:
            started = "without it" if before.get(name) is None else f"with {before[name]}"
            raise ConfigError(
                f"{flag(name)} is {value}, but the run was started {started}; leave it out to "
                "resume, or start a new run with another --out"
            )
    return replace(saved, **changed)


def _same(value: Any, other: Any) -> bool:
    """Whether two values mean the same, be they from the command line, a file or a run."""
    return bool(value == other or _texts(value) == _texts(other))


def _texts(value: Any) -> list[str]:
    return [str(item) for item in (value if isinstance(value, list | tuple) else [value])]


def _tensorboard(path: Path) -> Callable[[dict[str, Any]], None]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtraError(
            "--tensorboard needs an extra: pip install 'bayesrnn[tensorboard]'"
        ) from None
    writer = SummaryWriter(str(path / "tensorboard"))

    def observe(record: dict[str, Any]) -> None:
        for name, value in record.items():
            if isinstance(value, float):
                tag = f"{record['kind']}/{name}"
                writer.add_scalar(tag, value, record["step"])
        writer.flush()

    return observe
