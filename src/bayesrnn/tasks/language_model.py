"""The language-model task: its configuration, training, and loading a trained run."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from bayesrnn.core import relative
from bayesrnn.data import Batch, Corpus, TrainingBatches, Vocabulary, load_corpus
from bayesrnn.errors import CheckpointError, ConfigError, MissingExtraError, RunError
from bayesrnn.evaluation import likelihood
from bayesrnn.methods import METHODS, Hints, Method, Network, Objective, Outcome, option
from bayesrnn.nn import LanguageModel
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.language_model_config import LanguageModelConfig, resolve
from bayesrnn.tasks.options import flag, from_toml
from bayesrnn.training import (
    CheckpointStore,
    Interrupted,
    LoopSettings,
    RunDirectory,
    Schedule,
    Trainer,
    make_optimiser,
)

#: The output bias stays deterministic, and the layers that meet words start out less sure.
HINTS = Hints(
    deterministic=("output.bias",),
    sigma_init={"recurrent.*": relative(0.25, 0.5), "*": relative(0.5, 1.0)},
)

#: Streams side by side in the validation after an epoch.
VALIDATION_STREAMS = 20

#: Options that may change when a run is resumed.
_CHANGEABLE = ("epochs", "device", "threads", "save_minutes", "tensorboard", "data_dir")


@dataclass(frozen=True)
class RunArguments:
    """Which run to start or to continue."""

    out: Path | None = option(None, "folder of the run (default: runs/CORPUS-METHOD-SIZE-seedS)")
    config: Path | None = option(None, "a config.toml of another run; options given here win")
    resume: bool = option(False, "continue the run in --out, or start it if there is nothing yet")
    checkpoint: str = option("last", "the checkpoint to resume from: last, best or a step")


def train(arguments: RunArguments, given: Mapping[str, Any]) -> Path:
    """Train a language model, or continue to; gives the folder of the run."""
    file = _read_config_file(arguments.config)
    config = resolve(given, file)
    path = arguments.out or Path("runs") / _run_name(config)
    directory = RunDirectory(path)
    store = CheckpointStore(path)
    if arguments.resume and store.exists():
        config = _resumed(resolve({}, from_toml(directory.read_config(), str(path))), given, file)
    device = choose_device(config.device)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    corpus = load_corpus(config.corpus, config.data_dir, config.vocabulary_limit)
    directory.create()
    with directory.lock():
        if store.exists() and not arguments.resume:
            raise RunError(
                f"{path} already holds a run; add --resume to continue it, or give another --out"
            )
        store.clean()
        trainer = make_trainer(config, corpus, directory, device)
        if store.exists():
            trainer.resume(arguments.checkpoint)
        else:
            directory.metrics.truncate(0)
        # Only now: a resume that was refused must leave the run as it was.
        directory.write_config(config.to_toml())
        directory.write_text("vocabulary.txt", "\n".join(corpus.vocabulary.words) + "\n")
        try:
            trainer.train()
        except Interrupted as stopped:
            advice = f"go on with: bayesrnn train lm --resume --out {path}"
            raise Interrupted(stopped.signal_number, f"{stopped}; {advice}") from None
    return path


def make_trainer(
    config: LanguageModelConfig, corpus: Corpus, directory: RunDirectory, device: torch.device
) -> Trainer:
    """Everything that trains, assembled and at its start."""
    streams = RandomStreams(config.seed)
    method, net = build(config, len(corpus.vocabulary), streams)
    net.to(device)
    batches = TrainingBatches(corpus.train.to(device), config.batch_size, config.unroll)
    valid = corpus.valid.to(device)

    def validate() -> float:
        return likelihood(method, net, valid, streams=VALIDATION_STREAMS).nll

    return Trainer(
        net,
        method,
        batches,
        sequence_objective,
        validate,
        make_optimiser(config.optimizer, net.parameters(), config.lr, config.weight_decay),
        LoopSettings(
            config.epochs,
            Schedule(config.lr, config.hold_epochs, config.decay),
            config.clip or None,
            config.save_minutes,
        ),
        streams,
        directory,
        _fingerprint(corpus),
        _tensorboard(directory.path) if config.tensorboard else None,
    )


def build(
    config: LanguageModelConfig, vocabulary: int, streams: RandomStreams
) -> tuple[Method[Any], nn.Module]:
    """The method and the network that it trains, at their start."""
    method_type = METHODS[config.method]
    method = method_type(method_type.options_type(**config.options), streams)
    module = LanguageModel(vocabulary, config.hidden, config.layers, config.cell, config.tied)
    module.initialise(config.init or None, streams["init"])
    return method, method.build(module, HINTS)


def sequence_objective(batch: Batch, state: Any) -> Objective:
    """The loss of a minibatch of sequences: summed over time, averaged over the sequences."""

    def objective(network: Network) -> Outcome:
        logits, after = network(batch.inputs, state)
        per_word = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        return Outcome(per_word * len(batch.targets), after)

    return objective


@dataclass(frozen=True)
class TrainedRun:
    """A trained language model, ready to predict."""

    path: Path
    config: LanguageModelConfig
    vocabulary: Vocabulary
    method: Method[Any]
    net: nn.Module
    step: int
    device: torch.device

    def corpus(self) -> Corpus:
        """The corpus that the run learnt from, with the same words."""
        corpus = load_corpus(self.config.corpus, self.config.data_dir, self.config.vocabulary_limit)
        if corpus.vocabulary != self.vocabulary:
            raise RunError(
                f"the words of {' '.join(self.config.corpus)} are not those that {self.path} was "
                "trained on; give back the same text"
            )
        return corpus


def load_run(path: Path, checkpoint: str = "best", device: str = "auto") -> TrainedRun:
    """Load a trained run from its folder."""
    directory = RunDirectory(path)
    config = resolve({}, from_toml(directory.read_config(), f"{path}/config.toml"))
    store = CheckpointStore(path)
    if checkpoint == "best" and not store.exists("best"):
        checkpoint = "last"  # no epoch was finished yet
    saved = store.load_model(checkpoint)
    vocabulary = Vocabulary(tuple(directory.read_text("vocabulary.txt").split("\n")[:-1]))
    method, net = build(config, len(vocabulary), RandomStreams(config.seed))
    try:
        net.load_state_dict(saved.model)
    except RuntimeError as error:
        raise CheckpointError(
            f"the checkpoint of step {saved.step} does not fit the configuration of {path}: {error}"
        ) from None
    place = choose_device(device)
    return TrainedRun(path, config, vocabulary, method, net.to(place), saved.step, place)


def choose_device(name: str) -> torch.device:
    """The device by name, or the best one there is for `auto`."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.mps.is_available()}
    if name == "auto":
        name = "cuda" if there["cuda"] else "cpu"
    if not there[name]:
        have = ", ".join(device for device, is_there in there.items() if is_there)
        raise ConfigError(f"--device is {name}, which this machine does not have; it has: {have}")
    return torch.device(name)


def _run_name(config: LanguageModelConfig) -> str:
    corpus = "+".join(Path(part).stem for part in config.corpus)
    return f"{corpus}-{config.method}-{config.size}-seed{config.seed}"


def _read_config_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return from_toml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path} cannot be read: {error}") from None


def _resumed(
    saved: LanguageModelConfig, given: Mapping[str, Any], file: Mapping[str, Any]
) -> LanguageModelConfig:
    """The saved configuration with what may change; anything else that differs is an error."""
    before = {**vars(saved), **saved.options}
    wanted = {**file, **file.get("options", {}), **given}
    wanted.pop("options", None)
    changed = {name: value for name, value in wanted.items() if not _same(value, before.get(name))}
    for name, value in changed.items():
        if name not in _CHANGEABLE:
            raise ConfigError(
                f"{flag(name)} is {value}, but the run was started with {before.get(name)}; leave "
                "it out to resume, or start a new run with another --out"
            )
    return replace(saved, **changed)


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, list | tuple):
        return list(value) == list(other or ())
    return bool(value == other or str(value) == str(other))


def _fingerprint(corpus: Corpus) -> str:
    digest = hashlib.sha256("\n".join(corpus.vocabulary.words).encode())
    digest.update(corpus.train.numpy().tobytes())
    return digest.hexdigest()


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
