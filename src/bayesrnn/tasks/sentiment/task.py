"""The sentiment task: a recurrent network that reads a text and predicts its rating or label.

With the reviews of Pang & Lee (2005) it is the experiment of Gal & Ghahramani (2016).
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bayesrnn.core.init import relative
from bayesrnn.data.vocabulary import VOCABULARY_FILE, Vocabulary, read_vocabulary, vocabulary_text
from bayesrnn.errors import ConfigError, RunError
from bayesrnn.methods.base import Hints, Method, Network, Objective, Outcome
from bayesrnn.progress import say
from bayesrnn.random import RandomStreams
from bayesrnn.runs.load import load_network, task_name
from bayesrnn.runs.start import RunArguments, train_run
from bayesrnn.runs.task import Task, TrainedRun
from bayesrnn.tasks.sentiment.config import SentimentConfig, resolve_sentiment
from bayesrnn.tasks.sentiment.data import (
    SCALE,
    Labels,
    Numbers,
    Reviews,
    load_reviews,
    read_target,
    target_text,
)
from bayesrnn.tasks.sentiment.metrics import text_figures
from bayesrnn.tasks.sentiment.model import TextReader
from bayesrnn.tasks.sentiment.predictions import segment_nll
from bayesrnn.tasks.sentiment.segments import BucketedBatches, SegmentBatch, Segments
from bayesrnn.training.process import denormals_flushed
from bayesrnn.uncertainty.draws import Draws

_TARGET_FILE = "target.json"


class SentimentTask(Task[SentimentConfig, Reviews]):
    """Learn what texts are rated, or how they are labelled."""

    name: ClassVar[str] = SentimentConfig.task

    def resolve(
        self, given: Mapping[str, Any], file: Mapping[str, Any] | None = None
    ) -> SentimentConfig:
        """A full configuration from what the user gave and a configuration file."""
        return resolve_sentiment(given, file)

    def run_name(self, config: SentimentConfig) -> str:
        """Named by data, cell, method and seed."""
        return f"{Path(config.data).stem}-{config.cell}-{config.method}-seed{config.seed}"

    def load(self, config: SentimentConfig) -> Reviews:
        """The texts, cut into segments."""
        for_own = {
            "--text-column": config.text_column,
            "--target-column": config.target_column,
            "--target label": config.target == "label",
        }
        given = [flag for flag, value in for_own.items() if value]
        if config.data == SCALE and given:
            raise ConfigError(
                f"{' and '.join(given)} cannot go with --data {SCALE}, whose targets are numbers; "
                "leave it out, or give a CSV file of your own with --data"
            )
        return load_reviews(
            config.data,
            config.data_dir,
            text_column=config.text_column,
            target_column=config.target_column,
            target=config.target,
            vocabulary_limit=config.vocabulary_limit,
            segment=config.segment,
        )

    def fingerprint(self, data: Reviews) -> str:
        """A hash of the words, and of the training texts and their targets."""
        digest = hashlib.sha256("\n".join(data.vocabulary.words).encode())
        for part in (data.train.words, data.train.lengths, data.train.targets):
            digest.update(part.numpy().tobytes())
        return digest.hexdigest()

    def files(self, data: Reviews) -> dict[str, str]:
        """The words, in the order of their numbers, and what is predicted, with its scale."""
        return {
            VOCABULARY_FILE: vocabulary_text(data.vocabulary),
            _TARGET_FILE: target_text(data.target),
        }

    def build(
        self,
        config: SentimentConfig,
        files: Mapping[str, str],
        method: Method[Any],
        streams: RandomStreams,
    ) -> nn.Module:
        """A recurrent network between words and a number, or the labels."""
        words, target = len(read_vocabulary(files)), read_target(files[_TARGET_FILE])
        classes = len(target.names) if isinstance(target, Labels) else None
        module = TextReader(words, config.hidden, config.layers, config.cell, classes)

        def initialise(made: nn.Module, generator: torch.Generator) -> None:
            assert isinstance(made, TextReader)
            made.initialise(config.init or None, generator)

        initialise(module, streams["init"])
        noise = () if classes else ("log_noise",)
        return method.build(
            module,
            Hints(
                deterministic=("output.bias", *noise),
                sigma_init={"recurrent.*": relative(0.25, 0.5), "*": relative(0.5, 1.0)},
                initialise=initialise,
                before_recurrent=("input_dropout",),
            ),
        )

    def problem(
        self,
        config: SentimentConfig,
        data: Reviews,
        method: Method[Any],
        net: nn.Module,
        device: torch.device,
    ) -> "WhatRating":
        """Predict the targets of the training texts' segments; says what they are."""
        say(described_reviews(data, config.segment, may_be_labels=config.target == "auto"))
        train, valid = data.train.to(device), data.valid.to(device)
        return WhatRating(
            train, valid, data.target, config.data, config.batch_size, config.seed, method, net
        )


@dataclass(frozen=True)
class WhatRating:
    """What the training loop knows of a reader of texts."""

    train: Segments
    valid: Segments
    target: Numbers | Labels
    data: str
    batch_size: int
    seed: int
    method: Method[Any]
    net: nn.Module

    unit: ClassVar[str] = "segment"

    @property
    def measure(self) -> str:
        """The error of numbers, or the share of wrong labels."""
        return "rmse" if isinstance(self.target, Numbers) else "error"

    def minibatches(self, epoch: int) -> BucketedBatches:
        """The training segments in another order in every epoch."""
        return BucketedBatches(self.train, self.batch_size, self.seed, epoch)

    def objective(self, batch: SegmentBatch, state: Any) -> Objective:
        """The mean loss of a minibatch; there is no state."""
        del state

        def objective(network: Network) -> Outcome:
            outputs = network(batch.words, batch.lengths)
            return Outcome(segment_nll(outputs, batch.targets, self.target), None)

        return objective

    def figures(self, nll: float) -> dict[str, float]:
        """The loss itself; of numbers in the user's unit, where one more digit is log 10 less."""
        log_unit = math.log(self.target.sd) if isinstance(self.target, Numbers) else 0.0
        return {"nll": nll + log_unit}

    def validate(self) -> dict[str, float]:
        """How well the mean weights predict validation texts, and as many of the training texts.

        Those training texts are always the same; their order is as good as random.
        """
        seen = self.train.first_texts(min(len(self.valid.targets), len(self.train.targets)))
        of_training = self._figures(seen)[self.measure]
        return {**self._figures(self.valid), f"train_{self.measure}": of_training}

    def _figures(self, segments: Segments) -> dict[str, float]:
        found = text_figures(
            Draws(self.method, self.net, 0, torch.Generator()), segments, self.target, self.data
        )
        return {name: value for name, value in found.items() if isinstance(value, float)}


def train_sentiment(arguments: RunArguments, given: Mapping[str, Any]) -> Path:
    """Train a reader of texts, or continue to; gives the folder of the run."""
    with denormals_flushed():
        return train_run(SentimentTask(), arguments, given)


@dataclass(frozen=True)
class TrainedReader(TrainedRun[SentimentConfig]):
    """A trained reader of texts, ready to predict."""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words that it knows."""
        return read_vocabulary(self.files)

    @property
    def target(self) -> Numbers | Labels:
        """What it predicts."""
        return read_target(self.files[_TARGET_FILE])

    def reviews(self) -> Reviews:
        """The texts that the run learnt from, with the same words."""
        reviews = SentimentTask().load(self.config)
        if (reviews.vocabulary, reviews.target) != (self.vocabulary, self.target):
            raise RunError(
                f"the texts of {self.config.data} are not those that {self.path} was trained on; "
                "give back the same data"
            )
        return reviews


def load_sentiment_run(path: Path, checkpoint: str = "best", device: str = "auto") -> TrainedReader:
    """Load a trained reader of texts from the folder of its run."""
    task = SentimentTask()
    advice = f"give a run of `bayesrnn train {task.name}`"
    if path.is_file():
        raise ConfigError(f"{path} is a file; {advice}")
    if task_name(path) != task.name:
        raise ConfigError(f"{path} is a run of `bayesrnn train {task_name(path)}`; {advice}")
    files = (VOCABULARY_FILE, _TARGET_FILE)
    return TrainedReader(**vars(load_network(task, path, checkpoint, device, files)))


_SHOWN_LABELS = 5
#: So many different whole numbers, or fewer, may be the names of classes.
_FEW_NUMBERS = 10


def described_reviews(reviews: Reviews, segment: int, may_be_labels: bool) -> str:
    """One line: how many texts there are of each part, cut into what, and what is predicted.

    may_be_labels: whether to say how numbers that look like the names of classes become labels.
    """
    train, valid, test = reviews.train, reviews.valid, reviews.test
    texts = (
        f"{len(train.targets):,} texts to train on, {len(valid.targets):,} to validate with, "
        f"{len(test.targets):,} to test with"
    )
    cut = f"{len(train) + len(valid) + len(test):,} segments of up to {segment:,} words"
    known = f"a vocabulary of {len(reviews.vocabulary):,} words"
    predicted = _predicted(reviews.target, train.targets, may_be_labels)
    return f"{reviews.name}: {texts}; {cut}; {known}; to predict: {predicted}"


def _predicted(target: Numbers | Labels, of_training: Tensor, may_be_labels: bool) -> str:
    if isinstance(target, Labels):
        more = len(target.names) - _SHOWN_LABELS
        shown = ", ".join(target.names[:_SHOWN_LABELS])
        return f"{len(target.names):,} labels: {shown}{f' and {more:,} more' if more > 0 else ''}"
    low, high = of_training.min().item(), of_training.max().item()
    said = f"numbers from {low:g} to {high:g}, mean {target.mean:.3g}"
    different = set(of_training.tolist())
    whole = all(map(float.is_integer, different))
    if may_be_labels and whole and len(different) <= _FEW_NUMBERS:
        said += f"; if these {len(different)} whole numbers name classes, give --target label"
    return said
