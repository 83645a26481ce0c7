"""Start a run of any task, or continue it."""

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bayesrnn.durable import reason, remove_left_behind
from bayesrnn.errors import ConfigError, Interrupted, MissingExtraError, RunError
from bayesrnn.methods.base import Method
from bayesrnn.options import CheckedOptions, from_toml, option
from bayesrnn.progress import say
from bayesrnn.random import RandomStreams
from bayesrnn.runs.calibrate import calibrate_after_training
from bayesrnn.runs.config import TrainingConfig
from bayesrnn.runs.devices import choose_device
from bayesrnn.runs.load import count_weights, make_method, read_config
from bayesrnn.runs.places import found_again, free_entries, with_whole_paths
from bayesrnn.runs.resume import (
    how_it_goes_on,
    refuse_added,
    resumed,
    with_new_course,
    without_added,
)
from bayesrnn.runs.sharding import require_same, require_shards, with_shards
from bayesrnn.runs.start_from import inherited, take_weights
from bayesrnn.runs.task import Config, Data, Task
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.distributed import Group
from bayesrnn.training.dropping import DropSchedule
from bayesrnn.training.kept_files import (
    CONFIG,
    KeptFiles,
    differs,
    require_settings,
    require_words,
)
from bayesrnn.training.loop import Trainer
from bayesrnn.training.optimisation import Schedule, make_optimiser, problem_kl_scale
from bayesrnn.training.problem import Problem
from bayesrnn.training.process import denormals_flushed
from bayesrnn.training.run_directory import FollowedRunDirectory, RunDirectory
from bayesrnn.training.settings import LoopSettings
from bayesrnn.untrusted import read_regular


@dataclass(frozen=True)
class RunArguments(CheckedOptions):
    """Which run to start or to continue."""

    out: Path | None = option(None, "folder of the run (default: in runs/, named by its options)")
    config: Path | None = option(None, "a config.toml of another run; options given here win")
    resume: bool = option(
        False,
        "continue the run in --out, or start it if there is nothing yet; without --out, the run in "
        "the default folder; --epochs +3 trains on for three more, --lr X at another rate",
    )
    checkpoint: str = option("last", "the checkpoint to resume from: last, best or a step")
    peer_timeout: float = option(
        600.0,
        "seconds after which a process gives up another one of the same run that does not answer",
        gt=0,
    )


def train_run(
    task: Task[Config, Any],
    arguments: RunArguments,
    given: Mapping[str, Any],
    group: Group | None = None,
    after_epoch: Callable[[], None] = lambda: None,
) -> Path:
    """Train a network, or continue to; returns the folder of the run.

    group: the processes that train it together, of which the first one writes.
    after_epoch: is called when an epoch is saved; what it raises ends training there.
    """
    group = group or Group()
    file = _read_config_file(arguments.config)
    started = given.get("start_from", file.get("start_from"))
    whole = file
    # Of a run that is there, the one that it started from may be gone.
    if started is not None and not (arguments.resume and _is_run(arguments.out)):
        whole = {**inherited(task, Path(started), given, file), **file}
    # With "+3" epochs the name of a run is that of one with as many epochs as its recipe has.
    path = arguments.out or Path("runs") / task.run_name(task.resolve(without_added(given), whole))
    if path.is_file():
        raise RunError(
            f"--out is {path}, which is a file; give the folder of a run (the file of a pruned "
            "network cannot be trained on)"
        )
    directory = RunDirectory(path) if group.is_first else FollowedRunDirectory(path)
    store = CheckpointStore(path)
    if group.launch.restarts and directory.is_of_launch(group.launch.name):
        arguments = replace(arguments, resume=True, out=path)
        given = without_added(given)  # it has been added before
    resumes = arguments.resume and directory.has_config()
    if arguments.resume and arguments.out is None:
        if not resumes:
            raise RunError(
                f"--resume was given without --out, and {path}, the folder that these options "
                "name, holds no run; say which run to continue: --out RUN"
            )
        say(f"resuming {path}, the folder that these options name")
    if resumes:
        # Also where it was killed before its first checkpoint: it starts again as it was meant.
        entries = read_config(path)
        require_settings(path, entries, free_entries(task))
        saved = found_again(task, path, task.resolve({}, entries, saved=True))
        config = resumed(task, saved, given, file)
    else:
        refuse_added(given)
        config = with_shards(task.resolve(given, {**whole, "lr_from": 0}), group)
        config = replace(config, **with_whole_paths(task, vars(config)))
    require_shards(config, group)
    device = choose_device(config.device)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    # By now its words are its own, and the run that it started from may be gone.
    owns = resumes and all((path / name).is_file() for name in task.file_names)
    own_words = owns and config.start_from is not None
    if own_words and store.exists():
        texts = {name: directory.read_text(name) for name in task.file_names}
        require_words(path, store.plain_state(arguments.checkpoint), texts)
    data = task.load(replace(config, start_from=path) if own_words else config)
    group.wait()  # until all have seen the folder as it was
    directory.create()
    with directory.lock(group.launch.name):
        if store.exists() and not arguments.resume:
            raise RunError(
                f"{path} already holds a run; add --resume to continue it, or give another --out"
            )
        if group.is_first:
            store.clean()
            for folder in (path, path / "results"):
                remove_left_behind(folder)
        group.wait()
        if resumes:
            config = with_new_course(config, given, saved, store, arguments.checkpoint)
        trainer = make_trainer(task, config, data, directory, device, group, after_epoch)
        require_same(task, config, trainer.fingerprint, group)
        if store.exists():
            trainer.resume(arguments.checkpoint)
            _announce_settings(task, trainer, directory)
            say(how_it_goes_on(task, path, trainer))
        else:
            if config.start_from is not None:
                take_weights(trainer.net, config.start_from, task.file_names)
            directory.metrics.truncate(0)
        for line in task.about_data(data):
            say(line)
        # Only now: a resume that was refused must leave the run as it was.
        for name, text in trainer.files.texts.items():
            directory.write_text(name, text)
        trainer.files.before = None
        try:
            with denormals_flushed() if task.flush_denormals else nullcontext():
                trainer.train()
        except Interrupted as stopped:
            advice = f"go on with: bayesrnn train {task.name} --resume --out {path}"
            raise Interrupted(stopped.signal_number, f"{stopped}; {advice}") from None
        group.wait()
        if config.calibrate and group.is_first:
            calibrate_after_training(task, path, config.device, data)
    return path


def make_trainer(
    task: Task[Config, Data],
    config: Config,
    data: Data,
    directory: RunDirectory,
    device: torch.device,
    group: Group | None = None,
    after_epoch: Callable[[], None] = lambda: None,
) -> Trainer:
    """Everything that trains, assembled and at its start."""
    group, streams = group or Group(), RandomStreams(config.seed)
    method = make_method(config, streams)
    files = task.files(data)
    _require_memory(count_weights(task, config, files))
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
            schedule=Schedule(config.lr, config.hold_epochs, config.decay, config.lr_from),
            clip=config.clip or None,
            save_minutes=config.save_minutes,
            kl_weighting=config.kl_weighting,
            average=config.average or 0.0,
            kl_warmup=config.kl_warmup or 0.0,
            precision=config.precision,
            drop=_drop_schedule(config),
            shards=config.shards or 1,
            shard_noise=config.shard_noise,
        ),
        streams=streams,
        run=directory,
        fingerprint=task.fingerprint(data),
        observe=_tensorboard(directory.path) if config.tensorboard and group.is_first else None,
        group=group,
        after_epoch=after_epoch,
        files=KeptFiles({CONFIG: config.to_toml(), **files}),
    )


def _require_memory(weights: float) -> None:
    """Refuse a network that cannot be trained here: weights and gradients alone are too much."""
    needed, have = 2 * 4 * weights, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > have:
        raise ConfigError(
            f"the network has {weights:.3g} weights, which take at least {needed / 1e9:,.3g} GB "
            f"to train; this machine has {have / 1e9:,.3g}. Give a smaller --hidden or --layers"
        )


def _announce_settings(task: Task[Any, Any], trainer: Trainer, directory: RunDirectory) -> None:
    """Save the checkpoint that a run goes on from once more, where its settings change.

    It then knows both, so that a kill before or after the new ones are written leaves a run that
    can be resumed.
    """
    before, after = directory.read_config(), trainer.files.texts[CONFIG]
    if differs(before, after, free_entries(task)):
        trainer.files.before = before
        trainer.save()


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
        return from_toml(read_regular(path).decode(), str(path))
    except OSError as error:
        raise ConfigError(f"--config {path} cannot be read: {reason(error)}") from None
    except ValueError:
        raise ConfigError(f"--config {path} cannot be read: it is not UTF-8 text") from None


def _is_run(path: Path | None) -> bool:
    return path is not None and RunDirectory(path).has_config()


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
