"""The language-model task: predict the next word of a text."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from bayesrnn.data.batches import Batch, TrainingBatches
from bayesrnn.data.vocabulary import VOCABULARY_FILE, read_vocabulary, vocabulary_text
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Method, Network, Objective, Outcome, build_word_network
from bayesrnn.random import RandomStreams
from bayesrnn.runs.config import Recipes
from bayesrnn.runs.evaluation import EvaluationSettings
from bayesrnn.runs.held_out import HeldOut
from bayesrnn.runs.load import load_run
from bayesrnn.runs.places import moved
from bayesrnn.runs.pruning.bench import Measurement
from bayesrnn.runs.tab import Tab
from bayesrnn.runs.task import PERPLEXITY, Measure, Task, UncertaintyReport, ValidationScore
from bayesrnn.runs.verdict import Verdict
from bayesrnn.tasks.lm import ENTRY
from bayesrnn.tasks.lm.about_text import about_corpus, row_text, unknown_warning
from bayesrnn.tasks.lm.calibrate import text_score, text_verdict
from bayesrnn.tasks.lm.config import RECIPES, LanguageModelConfig
from bayesrnn.tasks.lm.data import Corpus, corpus_fingerprint
from bayesrnn.tasks.lm.evaluate import TextEvaluation, TextOptions, TextRow, evaluate_text
from bayesrnn.tasks.lm.likelihood import likelihood, text_chunks
from bayesrnn.tasks.lm.model import LanguageModel
from bayesrnn.tasks.lm.prune import VALIDATION_STREAMS, TextPruneOptions, text_measurement
from bayesrnn.tasks.lm.sparse import smallest, whole
from bayesrnn.tasks.lm.trained import TrainedLanguageModel, corpus_of
from bayesrnn.training.run_directory import RunDirectory
from bayesrnn.uncertainty.likelihood import Likelihood


class LanguageModelTask(Task[LanguageModelConfig, Corpus]):
    """Learn to predict the next word of a text."""

    name: ClassVar[str] = LanguageModelConfig.task
    summary: ClassVar[str] = ENTRY.summary
    example: ClassVar[str] = "bayesrnn train lm --corpus my-novel.txt --method bbb --size tiny"
    config_type: ClassVar[type[LanguageModelConfig]] = LanguageModelConfig
    recipes: ClassVar[Recipes] = RECIPES
    unit: ClassVar[str] = "word"
    data_key: ClassVar[str] = "corpus"
    can_start_from: ClassVar[bool] = True
    file_names: ClassVar[tuple[str, ...]] = (VOCABULARY_FILE,)
    problem_file: ClassVar[str | None] = VOCABULARY_FILE
    evaluate_options: ClassVar[type] = TextOptions
    prune_options: ClassVar[type] = TextPruneOptions
    own_inferences: ClassVar[Mapping[str, tuple[str, str]]] = {
        "dynamic-sgd": (
            "dyn. sgd",
            "test, dynamic evaluation: it learns from the text that it reads",
        ),
        "dynamic-rms": ("dyn. rms", "as dyn. sgd, by the rule of Krause et al. 2018"),
        "sharpened-read": ("sharp. read", "test, weights sharpened on what was read before"),
        "sharpened-bound": ("sharp. bound", "test, an upper bound by sharpening on what it scores"),
    }

    def run_name(self, config: LanguageModelConfig) -> str:
        """Named by corpus, method, size and seed."""
        corpus = "+".join(Path(part).stem for part in config.corpus)
        return f"{corpus}-{config.method}-{config.size}-seed{config.seed}"

    def load(self, config: LanguageModelConfig) -> Corpus:
        """The corpus; in the words of the run that training starts from, if from one."""
        known = None
        if config.start_from is not None:
            text = RunDirectory(config.start_from).read_text(VOCABULARY_FILE)
            known = read_vocabulary({VOCABULARY_FILE: text})
        return corpus_of(config, known)

    def load_for(self, run: TrainedLanguageModel) -> Corpus:
        """The corpus of a run, with its words."""
        return run.corpus()

    def about_data(self, data: Corpus) -> list[str]:
        """Its size, and the share of unknown tokens."""
        return about_corpus(data)

    def fingerprint(self, data: Corpus) -> str:
        """A hash of the words and the training text."""
        return corpus_fingerprint(data)

    def files(self, data: Corpus) -> dict[str, str]:
        """The words, in the order of their numbers."""
        return {VOCABULARY_FILE: vocabulary_text(data.vocabulary)}

    def measure(self, read: Callable[[str], str]) -> Measure:
        """The perplexity."""
        del read
        return PERPLEXITY

    def build(
        self,
        config: LanguageModelConfig,
        files: Mapping[str, str],
        method: Method[Any],
        streams: RandomStreams,
    ) -> nn.Module:
        """A recurrent network between words and words."""
        words = len(read_vocabulary(files))
        module = LanguageModel(words, config.hidden, config.layers, config.cell, config.tied)
        # Tied to the embedding, the output's weights have another curvature.
        softmax_layer = None if config.tied else "output"
        return build_word_network(
            method, module, config.init, streams["init"], softmax_layer=softmax_layer
        )

    def problem(
        self,
        config: LanguageModelConfig,
        data: Corpus,
        method: Method[Any],
        net: nn.Module,
        device: torch.device,
    ) -> "LanguageModelProblem":
        """Predict the next word of the training text."""
        batches = TrainingBatches(data.train.to(device), config.batch_size, config.unroll)
        return LanguageModelProblem(batches, data.valid.to(device), method, net)

    def open_run(
        self,
        path: Path,
        checkpoint: str = "best",
        device: str = "auto",
        for_inference: bool = False,
    ) -> TrainedLanguageModel:
        """A trained language model from the folder of its run, or a pruned one from its file.

        for_inference: the network of a file may be one that only predicts, without the weights
            that were dropped where leaving them out is faster.
        """
        packed = smallest if for_inference else whole
        return load_run(self, path, checkpoint, device, TrainedLanguageModel, packed)

    def evaluate(
        self, path: Path, settings: EvaluationSettings, options: TextOptions
    ) -> TextEvaluation:
        """Perplexity on a split of the run's own corpus, or on another text."""
        # What learns while it reads needs all of the network.
        run = self.open_run(
            path,
            settings.checkpoint,
            settings.device,
            for_inference=not (options.dynamic or options.sharpen),
        )
        if not options.corpus or options.dynamic or options.sharpen:
            run = moved(self, run, settings)
        elif settings.data:
            raise ConfigError(
                f"--data is {' '.join(settings.data)} and --corpus is "
                f"{' '.join(options.corpus)}: --data says where the run's own text is, which is "
                "not read for another one; leave one of them out"
            )
        return evaluate_text(run, settings, options)

    def held_out(self, run: TrainedLanguageModel, data: Corpus, most: int) -> HeldOut:
        """The beginning of the validation text."""
        text = data.valid[: most + 1].to(run.device)
        return HeldOut(text_chunks(text, VALIDATION_STREAMS, len(data.vocabulary)), data.train)

    def pruning_measurement(
        self, run: TrainedLanguageModel, data: Corpus, options: TextPruneOptions
    ) -> Measurement:
        """The likelihood of a text of the corpus."""
        return text_measurement(run, data, options)

    def uncertainty(self) -> UncertaintyReport:
        """Entropy gap, calibration, and how well shifted text is detected."""
        from bayesrnn.tasks.lm.uncertainty import REPORT  # late: it opens runs of this task

        return REPORT

    def tab(self) -> Tab:
        """Its tab on the page of `bayesrnn serve`."""
        from bayesrnn.tasks.lm.tab import TAB  # late: it opens runs of this task

        return TAB

    def score(
        self, run: TrainedLanguageModel, data: Corpus, whole: bool = False
    ) -> ValidationScore:
        """The likelihood of a part of the validation text."""
        return text_score(run, data, whole)

    def verdict(self, run: TrainedLanguageModel, data: Corpus) -> Verdict | None:
        """Whether it is as surprised as it expects to be, and more so by text that is none."""
        return text_verdict(run, data)

    def line(self, row: TextRow) -> str:
        """The metrics of a row."""
        return row_text(row)

    def notes(self, evaluation: TextEvaluation) -> list[str]:
        """A warning where much of the text is unknown."""
        row: TextRow = evaluation.asked
        return unknown_warning(row.unknown or 0.0, "the text", row.unit)


@dataclass(frozen=True)
class LanguageModelProblem:
    """What the training loop knows of a language model."""

    batches: TrainingBatches
    valid: torch.Tensor
    method: Method[Any]
    net: nn.Module

    def minibatches(self, epoch: int) -> TrainingBatches:
        """The text in order, in every epoch."""
        del epoch
        return self.batches

    def objective(self, batch: Batch, state: Any) -> Objective:
        """The loss of a minibatch of sequences: summed over time, averaged over the sequences."""

        def objective(network: Network) -> Outcome:
            logits, after = network(batch.inputs, state)
            per_word = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
            return Outcome(per_word * len(batch.targets), after)

        return objective

    def loss_metrics(self, nll: float) -> dict[str, float]:
        """The perplexity."""
        return {"perplexity": Likelihood(nll, tokens=1).perplexity}

    def validate(self) -> dict[str, float]:
        """The likelihood of the validation text with the mean weights."""
        found = likelihood(self.method, self.net, self.valid, streams=VALIDATION_STREAMS)
        return {"perplexity": found.perplexity, "nll": found.nll}


TASK = LanguageModelTask()
