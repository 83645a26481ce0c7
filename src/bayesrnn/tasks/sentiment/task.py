"""The sentiment task: a recurrent network that predicts the rating or the label of a text.

With the reviews of Pang & Lee (2005) it is the experiment of Gal & Ghahramani (2016).
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bayesrnn.data.batches import ShuffledBatches
from bayesrnn.data.vocabulary import UNK, VOCABULARY_FILE, read_vocabulary, vocabulary_text
from bayesrnn.methods.base import (
    DETERMINISTIC,
    Method,
    Network,
    Objective,
    Outcome,
    build_word_network,
)
from bayesrnn.progress import say
from bayesrnn.random import RandomStreams
from bayesrnn.runs.config import Recipes
from bayesrnn.runs.evaluation import EvaluationSettings
from bayesrnn.runs.held_out import HeldOut
from bayesrnn.runs.load import load_run
from bayesrnn.runs.places import moved
from bayesrnn.runs.tab import Tab
from bayesrnn.runs.task import Measure, Task, UncertaintyReport, ValidationScore
from bayesrnn.runs.verdict import Verdict
from bayesrnn.tasks.sentiment import ENTRY
from bayesrnn.tasks.sentiment.calibrate import review_score, review_verdict, text_log_probs
from bayesrnn.tasks.sentiment.config import RECIPES, SentimentConfig
from bayesrnn.tasks.sentiment.data import Labels, Numbers, Reviews, read_target, target_text
from bayesrnn.tasks.sentiment.evaluate import (
    SentimentEvaluation,
    SentimentRow,
    evaluate_sentiment,
    evaluation_notes,
    row_text,
    text_metrics,
)
from bayesrnn.tasks.sentiment.model import NOISE, TextPredictor
from bayesrnn.tasks.sentiment.predictions import (
    segment_chunks,
    segment_nll,
    segment_outputs,
    wanted,
)
from bayesrnn.tasks.sentiment.segments import SegmentBatch, Segments
from bayesrnn.tasks.sentiment.trained import TARGET_FILE, TrainedTextPredictor, reviews_of
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.fitting import fitted_nll


class SentimentTask(Task[SentimentConfig, Reviews]):
    """Learn the ratings or labels of texts."""

    name: ClassVar[str] = SentimentConfig.task
    summary: ClassVar[str] = ENTRY.summary
    example: ClassVar[str] = (
        "bayesrnn train sentiment --data my-reviews.csv --cell gru --method bbb"
    )
    config_type: ClassVar[type[SentimentConfig]] = SentimentConfig
    recipes: ClassVar[Recipes] = RECIPES
    unit: ClassVar[str] = "segment"
    data_key: ClassVar[str] = "data"
    file_names: ClassVar[tuple[str, ...]] = (VOCABULARY_FILE, TARGET_FILE)
    problem_file: ClassVar[str | None] = TARGET_FILE
    flush_denormals: ClassVar[bool] = True

    def run_name(self, config: SentimentConfig) -> str:
        """Named by data, cell, method and seed."""
        return f"{Path(config.data).stem}-{config.cell}-{config.method}-seed{config.seed}"

    def load(self, config: SentimentConfig) -> Reviews:
        """The texts, cut into segments."""
        return reviews_of(config)

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
            TARGET_FILE: target_text(data.target),
        }

    def measure(self, read: Callable[[str], str]) -> Measure:
        """The error of numbers, or the share of wrong labels."""
        return _measure(read_target(read(TARGET_FILE)))

    def build(
        self,
        config: SentimentConfig,
        files: Mapping[str, str],
        method: Method[Any],
        streams: RandomStreams,
    ) -> nn.Module:
        """A recurrent network between words and a number, or the labels."""
        vocabulary, target = read_vocabulary(files), read_target(files[TARGET_FILE])
        classes = len(target.names) if isinstance(target, Labels) else None
        grows = config.noise == "unknown-words" and UNK in vocabulary.words
        module = TextPredictor(
            len(vocabulary),
            hidden=config.hidden,
            layers=config.layers,
            cell=config.cell,
            classes=classes,
            unknown=vocabulary.index(UNK) if grows else None,
        )
        noise = [name for name, _ in module.named_parameters() if name in NOISE]
        return build_word_network(
            method, module, config.init, streams["init"], (*DETERMINISTIC, *noise)
        )

    def problem(
        self,
        config: SentimentConfig,
        data: Reviews,
        method: Method[Any],
        net: nn.Module,
        device: torch.device,
    ) -> "SentimentProblem":
        """Predict the targets of the training texts' segments; prints what they are."""
        say(described_reviews(data, config.segment, may_be_labels=config.target == "auto"))
        replaced = (config.unknown_words or 0.0) * (UNK in data.vocabulary.words)
        return SentimentProblem(
            train=data.train.to(device),
            valid=data.valid.to(device),
            target=data.target,
            data=config.data,
            batch_size=config.batch_size,
            seed=config.seed,
            method=method,
            net=net,
            unknown=data.vocabulary.index(UNK) if replaced else 0,
            unknown_words=replaced,
        )

    def open_run(
        self, path: Path, checkpoint: str = "best", device: str = "auto"
    ) -> TrainedTextPredictor:
        """A trained text predictor."""
        return load_run(self, path, checkpoint, device, TrainedTextPredictor)

    def evaluate(
        self, path: Path, settings: EvaluationSettings, options: Any
    ) -> SentimentEvaluation:
        """Error, likelihood and calibration, or intervals, on a split of the run's own texts."""
        run = moved(self, self.open_run(path, settings.checkpoint, settings.device), settings)
        return evaluate_sentiment(run, settings)

    def held_out(self, run: TrainedTextPredictor, data: Reviews, most: int) -> HeldOut:
        """Segments of validation texts; numbers are standardised, as the network learns them."""
        train = wanted(data.train.targets[data.train.texts], data.target)
        return HeldOut(segment_chunks(data.valid.to(run.device), data.target, most), train)

    def tab(self) -> Tab:
        """Its tab on the page of `bayesrnn serve`."""
        from bayesrnn.tasks.sentiment.tab import TAB  # late: it opens runs of this task

        return TAB

    def score(
        self, run: TrainedTextPredictor, data: Reviews, whole: bool = False
    ) -> ValidationScore:
        """The likelihood of the targets of validation texts."""
        return review_score(run, data, whole)

    def verdict(self, run: TrainedTextPredictor, data: Reviews) -> Verdict | None:
        """Whether its probabilities or intervals can be believed."""
        return review_verdict(run, data)

    def line(self, row: SentimentRow) -> str:
        """The metrics of a row."""
        return row_text(row)

    def notes(self, evaluation: SentimentEvaluation) -> list[str]:
        """What metrics are of, and what a constant prediction reaches."""
        return evaluation_notes(evaluation)

    def uncertainty(self) -> UncertaintyReport:
        """Calibration, selective prediction, and shifted texts told from regular ones."""
        from bayesrnn.tasks.sentiment.uncertainty import REPORT  # late: it opens runs of this task

        return REPORT


def _measure(target: Numbers | Labels) -> Measure:
    on_part = "with the mean, on a part as large"
    if isinstance(target, Numbers):
        return Measure("rmse", "RMSE", digits=4, train=on_part)
    return Measure("error", "error in %", 100, train=on_part)


@dataclass(frozen=True)
class SentimentProblem:
    """The training loop's view of the sentiment task."""

    train: Segments
    valid: Segments
    target: Numbers | Labels
    data: str
    batch_size: int
    seed: int
    method: Method[Any]
    net: nn.Module
    #: The number of the word <unk>, and the most of a segment's words that it replaces.
    unknown: int = 0
    unknown_words: float = 0.0

    def minibatches(self, epoch: int) -> ShuffledBatches[SegmentBatch]:
        """The training segments in another order in every epoch, other words left out in each."""
        train = self.train
        if self.unknown_words:
            # By the epoch alone, so that a run that is resumed leaves out the same ones.
            generator = RandomStreams(self.seed)[f"unknown words of epoch {epoch}"]
            train = train.with_unknown(self.unknown_words, self.unknown, generator)
        return ShuffledBatches(train, self.batch_size, self.seed, epoch)

    def objective(self, batch: SegmentBatch, state: Any) -> Objective:
        """The mean loss of a minibatch; there is no state."""
        del state

        def objective(network: Network) -> Outcome:
            outputs = network(batch.words, batch.lengths)
            return Outcome(segment_nll(outputs, batch.targets, self.target), None)

        return objective

    def loss_metrics(self, nll: float) -> dict[str, float]:
        """The loss itself; of numbers in the user's unit."""
        log_unit = math.log(self.target.sd) if isinstance(self.target, Numbers) else 0.0
        return {"nll": nll + log_unit}

    def validate(self) -> dict[str, float]:
        """How well the mean weights predict validation texts, and as many of the training texts.

        Those training texts are always the same; their order is as good as random.
        """
        seen = self.train.first_texts(min(len(self.valid.targets), len(self.train.targets)))
        measure = _measure(self.target).key
        outputs = segment_outputs(self.method.mean(self.net), self.valid)
        return {
            **self._metrics(self.valid),
            "fitted_nll": fitted_nll(
                lambda ts: text_log_probs(outputs, self.valid, self.target, ts)
            ),
            f"train_{measure}": self._metrics(seen)[measure],
        }

    def _metrics(self, segments: Segments) -> dict[str, float]:
        draws = Draws(self.method, self.net, 0, torch.Generator())
        found = asdict(text_metrics(draws, segments, self.target, self.data))
        return {name: value for name, value in found.items() if isinstance(value, float)}


_SHOWN_LABELS = 5
#: At most this many different whole numbers may be the names of classes.
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


TASK = SentimentTask()
