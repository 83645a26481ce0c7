"""The captions task: a recurrent network that says what an image shows.

It is the second experiment of Fortunato et al. (2017), on features that an image network made.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from bayesrnn.core.init import relative
from bayesrnn.data.vocabulary import VOCABULARY_FILE, Vocabulary, read_vocabulary, vocabulary_text
from bayesrnn.errors import ConfigError, RunError
from bayesrnn.methods.base import Hints, Method, Network, Objective, Outcome
from bayesrnn.progress import say
from bayesrnn.random import RandomStreams
from bayesrnn.runs.load import load_network, task_name
from bayesrnn.runs.start import RunArguments, train_run
from bayesrnn.runs.task import Task, TrainedRun
from bayesrnn.tasks.captions.batches import CaptionBatch, CaptionBatches, EncodedCaptions
from bayesrnn.tasks.captions.config import CaptionsConfig, resolve_captions
from bayesrnn.tasks.captions.data import Captions, load_flickr8k
from bayesrnn.tasks.captions.features import FEATURE_WIDTH
from bayesrnn.tasks.captions.likelihood import caption_likelihood, caption_nll
from bayesrnn.tasks.captions.model import Captioner
from bayesrnn.uncertainty.draws import Draws


class CaptionsTask(Task[CaptionsConfig, Captions]):
    """Learn to say what people say of images."""

    name: ClassVar[str] = CaptionsConfig.task

    def resolve(
        self, given: Mapping[str, Any], file: Mapping[str, Any] | None = None
    ) -> CaptionsConfig:
        """A full configuration from what the user gave and a configuration file."""
        return resolve_captions(given, file)

    def run_name(self, config: CaptionsConfig) -> str:
        """Named by data, method and seed."""
        return f"{config.data}-{config.method}-seed{config.seed}"

    def load(self, config: CaptionsConfig) -> Captions:
        """The images and their captions."""
        return load_flickr8k(config.data_dir)

    def fingerprint(self, data: Captions) -> str:
        """A hash of the known words, and of the training captions and features."""
        digest = hashlib.sha256("\n".join(data.vocabulary.words).encode())
        encoded = EncodedCaptions.encode(data.train, data.vocabulary)
        for part in (encoded.words, encoded.images, encoded.features):
            digest.update(part.numpy().tobytes())
        return digest.hexdigest()

    def files(self, data: Captions) -> dict[str, str]:
        """The words, in the order of their numbers."""
        return {VOCABULARY_FILE: vocabulary_text(data.vocabulary)}

    def build(
        self,
        config: CaptionsConfig,
        files: Mapping[str, str],
        method: Method[Any],
        streams: RandomStreams,
    ) -> nn.Module:
        """A network between features and words."""
        module = Captioner(
            FEATURE_WIDTH,
            len(read_vocabulary(files)),
            config.hidden,
            config.layers,
            config.cell,
            config.feature_norm,
        )

        def initialise(made: nn.Module, generator: torch.Generator) -> None:
            assert isinstance(made, Captioner)
            made.initialise(config.init or None, generator)

        initialise(module, streams["init"])
        return method.build(
            module,
            Hints(
                deterministic=("output.bias",),
                sigma_init={"recurrent.*": relative(0.25, 0.5), "*": relative(0.5, 1.0)},
                initialise=initialise,
                before_recurrent=("input_dropout",),
            ),
        )

    def problem(
        self,
        config: CaptionsConfig,
        data: Captions,
        method: Method[Any],
        net: nn.Module,
        device: torch.device,
    ) -> "WhichCaption":
        """Predict the words of the training captions; says what they are."""
        train = EncodedCaptions.encode(data.train, data.vocabulary)
        valid = EncodedCaptions.encode(data.valid, data.vocabulary)
        say(
            f"{data.name}: {len(data.train):,} images with {len(train):,} captions to learn from, "
            f"{len(data.vocabulary):,} words known"
        )
        return WhichCaption(
            train.to(device), valid.to(device), config.batch_size, config.seed, method, net
        )


@dataclass(frozen=True)
class WhichCaption:
    """What the training loop knows of a captioner."""

    train: EncodedCaptions
    valid: EncodedCaptions
    batch_size: int
    seed: int
    method: Method[Any]
    net: nn.Module

    unit: ClassVar[str] = "caption"
    measure: ClassVar[str] = "perplexity"

    def minibatches(self, epoch: int) -> CaptionBatches:
        """The training captions in another order in every epoch."""
        return CaptionBatches(self.train, self.batch_size, self.seed, epoch)

    def objective(self, batch: CaptionBatch, state: Any) -> Objective:
        """The loss of a minibatch, summed over words and mean over captions; there is no state."""
        del state

        def objective(network: Network) -> Outcome:
            return Outcome(caption_nll(network, batch) / batch.inputs.shape[1], None)

        return objective

    def figures(self, nll: float) -> dict[str, float]:
        """The perplexity of a word."""
        return {"perplexity": math.exp(nll) if nll < 700 else math.inf}

    def validate(self) -> dict[str, float]:
        """How well the mean weights predict the validation captions."""
        draws = Draws(self.method, self.net, 0, torch.Generator())
        found = caption_likelihood(draws, self.valid)
        return {"perplexity": found.perplexity, "nll": found.nll}


def train_captions(arguments: RunArguments, given: Mapping[str, Any]) -> Path:
    """Train a captioner, or continue to; gives the folder of the run."""
    return train_run(CaptionsTask(), arguments, given)


@dataclass(frozen=True)
class TrainedCaptioner(TrainedRun[CaptionsConfig]):
    """A trained captioner, ready to speak."""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words that it knows."""
        return read_vocabulary(self.files)

    def captions(self) -> Captions:
        """The images that the run learnt from, with the same words, captions and features."""
        task = CaptionsTask()
        captions = task.load(self.config)
        if task.fingerprint(captions) != self.fingerprint:
            raise RunError(
                f"the captions or features of {self.config.data} are not those that {self.path} "
                "was trained on; give back the same data"
            )
        return captions


def load_captions_run(
    path: Path, checkpoint: str = "best", device: str = "auto"
) -> TrainedCaptioner:
    """Load a trained captioner from the folder of its run."""
    task = CaptionsTask()
    advice = f"give a run of `bayesrnn train {task.name}`"
    if path.is_file():
        raise ConfigError(f"{path} is a file; {advice}")
    if task_name(path) != task.name:
        raise ConfigError(f"{path} is a run of `bayesrnn train {task_name(path)}`; {advice}")
    return TrainedCaptioner(
        **vars(load_network(task, path, checkpoint, device, (VOCABULARY_FILE,)))
    )
