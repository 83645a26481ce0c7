"""The captions task: a recurrent network that says what an image shows.

It is the second experiment of Fortunato et al. (2017), on features that an image network made.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from bayesrnn.data.batches import ShuffledBatches
from bayesrnn.data.vocabulary import VOCABULARY_FILE, read_vocabulary, vocabulary_text
from bayesrnn.methods.base import Method, Network, Objective, Outcome, build_word_network
from bayesrnn.progress import say
from bayesrnn.random import RandomStreams
from bayesrnn.runs.config import Recipes
from bayesrnn.runs.evaluation import EvaluationSettings, perplexity_row_text
from bayesrnn.runs.held_out import HeldOut
from bayesrnn.runs.load import load_run
from bayesrnn.runs.places import moved
from bayesrnn.runs.summary import RunSummary
from bayesrnn.runs.tab import Tab
from bayesrnn.runs.task import (
    PERPLEXITY,
    Measure,
    OwnComparison,
    Task,
    UncertaintyReport,
    ValidationScore,
)
from bayesrnn.runs.verdict import Verdict
from bayesrnn.tasks.captions import ENTRY
from bayesrnn.tasks.captions.batches import (
    CaptionBatch,
    EncodedCaptions,
    captions_fingerprint,
)
from bayesrnn.tasks.captions.calibrate import caption_score, caption_verdict
from bayesrnn.tasks.captions.compare import compare_captions, paired_sentence
from bayesrnn.tasks.captions.config import RECIPES, CaptionsConfig
from bayesrnn.tasks.captions.data import Captions, load_flickr8k
from bayesrnn.tasks.captions.evaluate import (
    SCORES_NOTE,
    CaptionEvaluation,
    CaptionOptions,
    CaptionRow,
    evaluate_captions,
    score_lines,
)
from bayesrnn.tasks.captions.features import FEATURE_WIDTH
from bayesrnn.tasks.captions.likelihood import caption_chunks, caption_likelihood, caption_nll
from bayesrnn.tasks.captions.model import Captioner
from bayesrnn.tasks.captions.trained import TrainedCaptioner
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.likelihood import perplexity


class CaptionsTask(Task[CaptionsConfig, Captions]):
    """Learn to say what people say of images."""

    name: ClassVar[str] = CaptionsConfig.task
    summary: ClassVar[str] = ENTRY.summary
    example: ClassVar[str] = "bayesrnn train captions --data flickr8k --method bbb"
    config_type: ClassVar[type[CaptionsConfig]] = CaptionsConfig
    recipes: ClassVar[Recipes] = RECIPES
    unit: ClassVar[str] = "caption"
    data_key: ClassVar[str] = "data"
    file_names: ClassVar[tuple[str, ...]] = (VOCABULARY_FILE,)
    problem_file: ClassVar[str | None] = VOCABULARY_FILE
    evaluate_options: ClassVar[type] = CaptionOptions

    def run_name(self, config: CaptionsConfig) -> str:
        """Named by data, method and seed."""
        return f"{config.data}-{config.method}-seed{config.seed}"

    def load(self, config: CaptionsConfig) -> Captions:
        """The images and their captions."""
        return load_flickr8k(config.data_dir)

    def fingerprint(self, data: Captions) -> str:
        """A hash of the known words, and of the training captions and features."""
        return captions_fingerprint(data)

    def files(self, data: Captions) -> dict[str, str]:
        """The words, in the order of their numbers."""
        return {VOCABULARY_FILE: vocabulary_text(data.vocabulary)}

    def measure(self, read: Callable[[str], str]) -> Measure:
        """The perplexity of a word."""
        del read
        return PERPLEXITY

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
        return build_word_network(method, module, config.init, streams["init"])

    def problem(
        self,
        config: CaptionsConfig,
        data: Captions,
        method: Method[Any],
        net: nn.Module,
        device: torch.device,
    ) -> "CaptionProblem":
        """Predict the words of the training captions; says what they are."""
        train = EncodedCaptions.encode(data.train, data.vocabulary)
        valid = EncodedCaptions.encode(data.valid, data.vocabulary)
        say(
            f"{data.name}: {len(data.train):,} images with {len(train):,} captions to learn from, "
            f"{len(data.vocabulary):,} words known"
        )
        return CaptionProblem(
            train.to(device), valid.to(device), config.batch_size, config.seed, method, net
        )

    def open_run(
        self, path: Path, checkpoint: str = "best", device: str = "auto"
    ) -> TrainedCaptioner:
        """A trained captioner."""
        return load_run(self, path, checkpoint, device, TrainedCaptioner)

    def evaluate(
        self, path: Path, settings: EvaluationSettings, options: CaptionOptions
    ) -> CaptionEvaluation:
        """Perplexity and scores of captions on a split of the run's own images."""
        run = moved(self, self.open_run(path, settings.checkpoint, settings.device), settings)
        return evaluate_captions(run, settings, options)

    def held_out(self, run: TrainedCaptioner, data: Captions, most: int) -> HeldOut:
        """Captions of the first validation images."""
        train = EncodedCaptions.encode(data.train, data.vocabulary)
        starts = torch.zeros(len(train.words), dtype=torch.bool)
        starts[train.starts] = True
        valid = EncodedCaptions.encode(data.valid, data.vocabulary).to(run.device)
        return HeldOut(caption_chunks(valid, most), train.words[~starts])

    def uncertainty(self) -> UncertaintyReport:
        """Which captions are bad, and which images are unlike those that were learnt."""
        from bayesrnn.tasks.captions.uncertainty import REPORT  # late: it opens runs of this task

        return REPORT

    def tab(self) -> Tab:
        """Its tab on the page of `bayesrnn serve`."""
        from bayesrnn.tasks.captions.tab import TAB  # late: it opens runs of this task

        return TAB

    def score(self, run: TrainedCaptioner, data: Captions, whole: bool = False) -> ValidationScore:
        """The likelihood of validation captions."""
        return caption_score(run, data, whole)

    def verdict(self, run: TrainedCaptioner, data: Captions) -> Verdict | None:
        """Whether it is as surprised as it expects to be, and more so by captions that are none."""
        return caption_verdict(run, data)

    def line(self, row: CaptionRow) -> str:
        """The likelihood of a row; captions found without one have none."""
        return "" if row.nll is None else perplexity_row_text(row)

    def details(self, row: CaptionRow) -> list[str]:
        """The scores of each search for captions."""
        return score_lines(row)

    def notes(self, evaluation: CaptionEvaluation) -> list[str]:
        """What perplexity and scores are of."""
        return [evaluation.convention, SCORES_NOTE]

    def compare(self, summaries: Sequence[RunSummary]) -> OwnComparison | None:
        """The captions that evaluations kept, side by side."""
        table = compare_captions([s for s in summaries if s.task is self])
        if table is None:
            return None
        return OwnComparison("What was said of images", table, paired_sentence(table))


@dataclass(frozen=True)
class CaptionProblem:
    """What the training loop knows of a captioner."""

    train: EncodedCaptions
    valid: EncodedCaptions
    batch_size: int
    seed: int
    method: Method[Any]
    net: nn.Module

    def minibatches(self, epoch: int) -> ShuffledBatches[CaptionBatch]:
        """The training captions in another order in every epoch."""
        return ShuffledBatches(self.train, self.batch_size, self.seed, epoch)

    def objective(self, batch: CaptionBatch, state: Any) -> Objective:
        """The loss of a minibatch, summed over words and mean over captions; there is no state."""
        del state

        def objective(network: Network) -> Outcome:
            return Outcome(caption_nll(network, batch) / batch.inputs.shape[1], None)

        return objective

    def loss_metrics(self, nll: float) -> dict[str, float]:
        """The perplexity of a word."""
        return {"perplexity": perplexity(nll)}

    def validate(self) -> dict[str, float]:
        """How well the mean weights predict the validation captions."""
        draws = Draws(self.method, self.net, 0, torch.Generator())
        found = caption_likelihood(draws, self.valid).of_all()
        return {"perplexity": found.perplexity, "nll": found.nll}


TASK = CaptionsTask()
