"""How probable a language model finds a text."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from bayesrnn.data.tokens import UNITS, WORD
from bayesrnn.methods.base import Bounded
from bayesrnn.options import option
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.runs.evaluation import (
    Evaluation,
    EvaluationSettings,
    Inference,
    Row,
    about,
    asked_row,
    inference_rows,
)
from bayesrnn.tasks.lm.about_text import bits_per_character
from bayesrnn.tasks.lm.data import Corpus
from bayesrnn.tasks.lm.dynamic_settings import (
    DynamicOptions,
    DynamicScorer,
    DynamicSettings,
    choose_settings,
)
from bayesrnn.tasks.lm.likelihood import likelihood, text_minibatches
from bayesrnn.tasks.lm.scored_text import ScoredText, other_text, own_text
from bayesrnn.tasks.lm.sharpening import (
    Aim,
    SharpenedScorer,
    SharpenOptions,
    SharpenSettings,
    choose_sharpening,
)
from bayesrnn.tasks.lm.trained import TrainedLanguageModel
from bayesrnn.uncertainty.bound import likelihood_bound
from bayesrnn.uncertainty.draws import networks_to_read
from bayesrnn.uncertainty.likelihood import Likelihood


@dataclass(frozen=True, kw_only=True)
class TextOptions(DynamicOptions, SharpenOptions):
    """What `bayesrnn evaluate` can be asked of language models alone."""

    streams: int = option(
        1, "parts of the text read side by side; 1 is exact, more are faster", ge=1
    )
    unroll: int = option(100, "words per step; does not change the result", ge=1)
    corpus: tuple[str, ...] = option(
        (),
        "score another text in the words of the run: all of one or more plain-text files, or the "
        "--split of a folder or of a corpus with a name",
        metavar="NAME|PATH ...",
    )


@dataclass(frozen=True, kw_only=True)
class TextRow(Row):
    """The likelihood of a text: nats a word, over `tokens` predictions.

    streams: parts of the text that were read side by side.
    unit: what a token is called.
    unknown: the share of `<unk>`.
    bits_per_character: what a character of the text costs, which other tokens can be compared by.
    kl: of the nll, what a bound pays for networks that have seen the targets.
    standard_error: of the nll of a bound, for the draws behind it.
    unroll: words of a minibatch, where the result depends on it.
    dynamic: the settings of dynamic evaluation.
    sharpening: those of sharpening a run on what it reads.
    """

    perplexity: float
    nll: float
    tokens: int
    streams: int
    unit: str = UNITS[WORD]
    unknown: float | None = None
    bits_per_character: float | None = None
    kl: float | None = None
    standard_error: float | None = None
    unroll: int | None = None
    dynamic: dict[str, float] | None = None
    sharpening: dict[str, float] | None = None


@dataclass(frozen=True, kw_only=True)
class TextEvaluation(Evaluation):
    """The rows of a language model."""

    asked: TextRow
    corpus: str
    #: Whether it is another text than the run's, and all of it.
    whole: bool | None = None

    @property
    def part(self) -> str:
        """What of the text was evaluated."""
        return "(all of it)" if self.whole else super().part


def evaluate_text(
    run: TrainedLanguageModel, settings: EvaluationSettings, options: TextOptions
) -> TextEvaluation:
    """The rows of a language model on a split of its own corpus, or on another text."""
    # First of all, so that a mistake in the settings is reported before the long work.
    dynamic = choose_settings(run.path, options) if options.dynamic else None
    sharpening = choose_sharpening(run.path, options) if options.sharpen else None
    own = not options.corpus or dynamic is not None or sharpening is not None
    corpus, streams = run.corpus() if own else None, options.streams
    if options.corpus:
        scored = other_text(run, options.corpus, settings.split, settings.data_dir)
    else:
        scored = own_text(run, run.corpus() if corpus is None else corpus, settings.split)
    text = scored.text.to(run.device)

    def averaged(inference: Inference) -> TextRow:
        networks = networks_to_read(run.method, run.net, inference.samples)
        with progress_bar(networks * (len(text) - 1), " words", "evaluating") as bar:
            found = likelihood(
                run.method,
                run.net,
                text,
                samples=inference.samples,
                generator=seeded(settings.seed),
                streams=streams,
                unroll=options.unroll,
                advance=bar.update,
                scaling=inference.scales,
            )
        return _row(inference, found, streams=streams)

    def bounded(inference: Inference, method: Bounded) -> TextRow:
        # Over minibatches as long as in training: the bound depends on it, unlike the rest.
        steps = run.config.unroll
        minibatches = text_minibatches(text, streams, steps)
        with progress_bar(len(text) - 1, " words", "bounding") as bar:
            found = likelihood_bound(
                method, run.net, minibatches, seeded(settings.seed), bar.update
            )
        return _row(inference, found, streams=streams, unroll=steps)

    rows = inference_rows(run, settings, averaged, bounded)
    asked = rows.index(asked_row(rows, settings.samples))
    if corpus is not None and dynamic is not None:
        asked = len(rows)
        rows.append(dynamic_row(run, corpus, text, dynamic))
    if corpus is not None and sharpening is not None:
        rows.extend(sharpened_rows(run, corpus, text, sharpening, settings.seed))
    rows = [_of_text(row, scored, run.unit) for row in rows]
    return TextEvaluation(
        **{**about(run, settings), "split": scored.split},
        corpus=scored.name,
        whole=scored.whole or None,
        rows=tuple(rows),
        asked=rows[asked],
    )


def _of_text(row: TextRow, scored: ScoredText, unit: str) -> TextRow:
    """The row with what there is to say of the text itself."""
    bits = bits_per_character(row.nll, row.tokens, scored.characters, scored.spelling)
    return replace(row, unit=unit, unknown=scored.unknown, bits_per_character=bits)


def dynamic_row(
    run: TrainedLanguageModel, corpus: Corpus, text: Tensor, settings: DynamicSettings
) -> TextRow:
    """The row of dynamic evaluation, from the mean weights."""
    label = f"dynamic {settings} ({settings.source})"
    inference = Inference(f"dynamic-{settings.rule}", label, 0)
    found = DynamicScorer(run, corpus, text)(settings)
    return _row(inference, found, streams=1, dynamic=settings.numbers())


def sharpened_rows(
    run: TrainedLanguageModel,
    corpus: Corpus,
    text: Tensor,
    settings: dict[Aim, SharpenSettings],
    seed: int,
) -> list[TextRow]:
    """What sharpening on the text gives: predictions from what was read, and the bound."""
    scorer = SharpenedScorer(run, corpus, text)
    found = {one: scorer(one, seed) for one in dict.fromkeys(settings.values())}
    read, bound = settings["read"], settings["bound"]
    labels = {
        "read": f"sharpened on what was read, {read} ({read.source})",
        "bound": f"sharpened bound, NLL + KL, {bound} ({bound.source})",
    }
    return [
        _row(
            Inference("sharpened-read", labels["read"], 0),
            found[read].read,
            streams=1,
            unroll=read.segment,
            sharpening=read.numbers(),
        ),
        _row(
            Inference("sharpened-bound", labels["bound"], 0),
            found[bound].bound,
            streams=1,
            unroll=bound.segment,
            sharpening=bound.numbers(),
        ),
    ]


def _row(inference: Inference, found: Likelihood, **others: Any) -> TextRow:
    return TextRow(**inference._asdict(), perplexity=found.perplexity, **asdict(found), **others)
