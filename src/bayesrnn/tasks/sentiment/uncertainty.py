"""Does a text predictor know its errors, and texts that are unlike those it learnt from?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from bayesrnn.data.text import read_text
from bayesrnn.data.vocabulary import UNK
from bayesrnn.errors import CorpusError
from bayesrnn.random import RandomStreams
from bayesrnn.runs.answers import (
    Advance,
    AnswerOptions,
    Answers,
    AnswerUncertainty,
    Exam,
    examine,
    label_answers,
)
from bayesrnn.runs.answers_report import answers_json, answers_page, answers_text
from bayesrnn.runs.task import UncertaintyReport
from bayesrnn.tasks.sentiment.data import Labels, Numbers, review_words
from bayesrnn.tasks.sentiment.predictions import predict_labels, predict_numbers
from bayesrnn.tasks.sentiment.segments import Segments
from bayesrnn.tasks.sentiment.shifts import (
    random_words,
    shuffled_words,
    unknown_share,
    unknown_words,
)
from bayesrnn.tasks.sentiment.tables import is_table, read_texts
from bayesrnn.tasks.sentiment.task import TASK
from bayesrnn.tasks.sentiment.trained import TrainedTextPredictor
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.metrics import INTERVALS, regression_metrics

#: The score that is the share of unknown words.
UNKNOWN = "unknown"
#: The scores of numbers: the standard deviation of a prediction, and that between draws.
TOTAL, EPISTEMIC = "deviation", "epistemic"


@dataclass(frozen=True, kw_only=True)
class TextUncertaintyOptions(AnswerOptions):
    """What to measure; `shifts` are CSV files, or files with one text a line."""


def text_uncertainty(
    runs: Sequence[Path], settings: TextUncertaintyOptions, checkpoint: str, device: str
) -> list[AnswerUncertainty]:
    """What is found of each run, on its own texts and on shifted ones."""
    return examine(TASK, runs, settings, checkpoint, device, _exam, "text")


def _exam(run: TrainedTextPredictor, settings: TextUncertaintyOptions) -> Exam[Segments]:
    regular: Segments = getattr(run.reviews(), settings.split)
    streams, unknown = RandomStreams(settings.seed), run.vocabulary.index(UNK)
    inputs = {
        "": regular,
        "shuffled": shuffled_words(regular, streams["shuffled"]),
        "random words": random_words(regular, len(run.vocabulary), streams["random words"]),
        "unknown words": unknown_words(regular, unknown, streams["unknown words"]),
    }
    for given in settings.shifts:
        path = Path(given)
        inputs[path.name] = _other_texts(run, path, regular.targets)

    def answer(draws: Draws, segments: Segments, advance: Advance) -> Answers:
        found = _answers(draws, segments, run.target, advance)
        return found._replace(
            scores={**found.scores, UNKNOWN: unknown_share(segments, unknown).cpu()}
        )

    return Exam({name: texts.to(run.device) for name, texts in inputs.items()}, answer)


def _other_texts(run: TrainedTextPredictor, path: Path, targets: Tensor) -> Segments:
    """The texts of a file; their targets are made up, since nothing asks for them."""
    if is_table(path):
        lines = [*read_texts(path, run.config.text_column, run.config.delimiter).values()]
    else:
        lines = read_text(path).splitlines()
    words = [found for line in lines if (found := review_words(line))]
    if not words:
        raise CorpusError(f"--shift is {path}, which has no words; give a file of texts")
    encoded = [run.vocabulary.encode(text) for text in words]
    return Segments.cut(encoded, targets[:1].expand(len(words)), run.config.segment)


def _answers(
    draws: Draws, segments: Segments, target: Numbers | Labels, advance: Advance
) -> Answers:
    truths = segments.targets.cpu()
    differ = draws.differing(len(draws)) > 1
    if isinstance(target, Labels):
        labels = predict_labels(draws, segments, advance)
        return label_answers(labels.texts, labels.aleatoric, truths, differ)
    numbers = predict_numbers(draws, segments, target, advance).texts
    found = regression_metrics(numbers, truths)
    held = zip(INTERVALS, found.coverage, strict=True)
    return Answers(
        scores={
            TOTAL: numbers.total.sqrt(),
            **({EPISTEMIC: numbers.epistemic.sqrt()} if differ else {}),
        },
        loss=(numbers.mean - truths).square(),
        metrics={
            "RMSE": found.rmse,
            "NLL": found.nll,
            **{f"{share:.0%} holds": share_held for share, share_held in held},
        },
        reliability=None,
    )


REPORT = UncertaintyReport(
    TextUncertaintyOptions, text_uncertainty, answers_page, answers_json, answers_text
)
