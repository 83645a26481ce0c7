"""Does a run know which of its answers are wrong, and which inputs are unlike its data?

For tasks with one answer for each example: a label, or a number. A task gives its inputs, regular
and shifted, and a function that answers them; everything else is the same for all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from bayesrnn.options import option
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.report.table import distinct_names
from bayesrnn.runs.arguments import UncertaintyOptions
from bayesrnn.runs.file_summary import summarise
from bayesrnn.runs.places import moved
from bayesrnn.runs.summary import RunSummary
from bayesrnn.runs.task import Task, TrainedRun
from bayesrnn.uncertainty.average import entropy
from bayesrnn.uncertainty.calibration import Reliability, reliability
from bayesrnn.uncertainty.detection import Detection, detection
from bayesrnn.uncertainty.draws import Draws, networks_to_read
from bayesrnn.uncertainty.metrics import score_probabilities
from bayesrnn.uncertainty.selective import RiskCoverage, risk_coverage

#: Scores by which an answer is doubtful.
ENTROPY, INFORMATION, LEAST_CONFIDENT = "H", "MI", "1-p"


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(UncertaintyOptions):
    """What to measure, and with how much effort."""

    samples: tuple[int, ...] = option(
        (0, 10), "numbers of draws", ge=0, zero="the mean weights", commas=True
    )
    shifts: tuple[str, ...] = option(
        (), "one more set of shifted inputs", repeated=True, flag="shift", metavar="NAME|PATH"
    )


class Answers(NamedTuple):
    """The answers for some inputs.

    scores: how doubtful each answer is, by the name of the score; higher is more doubtful.
    loss: of each answer: 1 for a wrong label, or the squared error of a number.
    metrics: of all, by their titles.
    reliability: of labels.
    """

    scores: Mapping[str, Tensor]
    loss: Tensor
    metrics: Mapping[str, float]
    reliability: Reliability | None


Inputs = TypeVar("Inputs")
#: Called with the number of inputs that a network has processed.
Advance = Callable[[int], object]


class Exam(NamedTuple, Generic[Inputs]):
    """What a run is asked.

    inputs: the regular ones, named "", and the shifted ones; they have a length.
    answer: what the averaged draws say of them. Truths that shifted inputs do not have may be
        anything: nothing that depends on them is used.
    """

    inputs: Mapping[str, Inputs]
    answer: Callable[[Draws, Inputs, Advance], Answers]


@dataclass(frozen=True)
class ScoreShift:
    """The mean of a score on regular and on shifted inputs, and how well it tells them apart."""

    regular: float
    shifted: float
    detection: Detection


@dataclass(frozen=True)
class AnswerLevel:
    """What the mean network (`samples` 0) or an average over draws says.

    withholding: by the name of the score that says which answers to withhold.
    shifts: by the name of the shifted inputs, then of the score.
    """

    samples: int
    metrics: Mapping[str, float]
    reliability: Reliability | None
    #: How many answers there are for each kind of input; the regular ones are named "".
    sizes: Mapping[str, int]
    withholding: Mapping[str, RiskCoverage]
    shifts: Mapping[str, Mapping[str, ScoreShift]]


@dataclass(frozen=True)
class AnswerUncertainty:
    """What is found of one run.

    squared: whether the risk is a mean squared error, else a share of wrong answers.
    noun: what the inputs are, in the singular.
    """

    name: str
    path: Path
    method: str
    data: str
    settings: str
    split: str
    step: int
    seed: int
    bootstrap: int
    noun: str
    squared: bool
    levels: tuple[AnswerLevel, ...]


def examine(
    task: Task[Any, Any],
    runs: Sequence[Path],
    settings: AnswerOptions,
    checkpoint: str,
    device: str,
    exam_of: Callable[[Any, Any], Exam[Any]],
    noun: str,
) -> list[AnswerUncertainty]:
    """What is found of each run; `exam_of` makes the exam of a run, given the settings."""
    seeded(settings.seed)  # refuses one that is out of range
    summaries = [summarise(task, run) for run in runs]
    # All are loaded before the long work begins, so that a mistake is reported at once.
    trained = [moved(task, task.open_run(run, checkpoint, device), settings) for run in runs]
    exams = [exam_of(one, settings) for one in trained]
    return [
        _examined(one, name, summary, exam, settings, noun)
        for one, name, summary, exam in zip(
            trained, distinct_names(summaries), summaries, exams, strict=True
        )
    ]


def _examined(
    trained: TrainedRun[Any],
    name: str,
    summary: RunSummary,
    exam: Exam[Any],
    settings: AnswerOptions,
    noun: str,
) -> AnswerUncertainty:
    inputs = sum(map(len, exam.inputs.values()))
    samples = sorted(set(settings.samples))
    networks = sum(networks_to_read(trained.method, trained.net, number) for number in samples)
    scaling = trained.scaling(samples[-1], settings.uncalibrated)

    def answers(number: int) -> dict[str, Answers]:
        draws = Draws(trained.method, trained.net, number, seeded(settings.seed), scaling)
        return {
            shift: exam.answer(draws, inputs, bar.update) for shift, inputs in exam.inputs.items()
        }

    with progress_bar(networks * inputs, " inputs", name) as bar:
        levels = [_level(number, answers(number), settings) for number in samples]
    return AnswerUncertainty(
        name=name,
        path=trained.path,
        method=trained.config.method,
        data=summary.data,
        settings=f"{summary.network}, {summary.settings}",
        split=settings.split,
        step=trained.step,
        seed=settings.seed,
        bootstrap=settings.bootstrap,
        noun=noun,
        squared=levels[0].reliability is None,
        levels=tuple(levels),
    )


def _level(samples: int, found: Mapping[str, Answers], settings: AnswerOptions) -> AnswerLevel:
    regular = found[""]

    def shift(scores: Mapping[str, Tensor]) -> dict[str, ScoreShift]:
        return {
            name: ScoreShift(
                regular=regular.scores[name].mean().item(),
                shifted=shifted.mean().item(),
                detection=detection(
                    regular.scores[name], shifted, seeded(settings.seed), settings.bootstrap
                ),
            )
            for name, shifted in scores.items()
        }

    return AnswerLevel(
        samples=samples,
        metrics=regular.metrics,
        reliability=regular.reliability,
        sizes={name: len(answers.loss) for name, answers in found.items()},
        withholding={n: risk_coverage(score, regular.loss) for n, score in regular.scores.items()},
        shifts={name: shift(answers.scores) for name, answers in found.items() if name},
    )


def label_answers(
    probabilities: Tensor, aleatoric: Tensor, truths: Tensor, draws_differ: bool
) -> Answers:
    """Labels by averaged probabilities [examples, labels] and the mean entropy of single draws."""
    total = entropy(probabilities)
    confidence, answers = probabilities.max(-1)
    scores = {ENTROPY: total, LEAST_CONFIDENT: 1 - confidence}
    if draws_differ:
        scores[INFORMATION] = (total - aleatoric).clamp_min(0)
    found = score_probabilities(probabilities, truths)
    correct = answers == truths
    return Answers(
        scores=scores,
        loss=(~correct).to(torch.double),
        metrics={
            "error": found.error,
            "NLL": found.nll,
            "ECE": found.ece,
            "Brier": found.brier,
        },
        reliability=reliability(confidence, correct),
    )
