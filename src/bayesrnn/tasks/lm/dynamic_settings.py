"""Dynamic evaluation of a run: its settings, how they are tuned, and the row that it gives."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final, Literal, get_args

from torch import Tensor

from bayesrnn.data.batches import TrainingBatches
from bayesrnn.errors import ConfigError, RunError, TrainingDivergedError
from bayesrnn.progress import progress_bar, say
from bayesrnn.runs.evaluation import Row, likelihood_figures
from bayesrnn.tasks.lm.data import Corpus
from bayesrnn.tasks.lm.dynamic import (
    GradientDescent,
    RootMeanSquare,
    dynamic_log_probs,
    gradient_statistics,
)
from bayesrnn.tasks.lm.likelihood import target_log_probs
from bayesrnn.tasks.lm.task import TrainedLanguageModel, load_language_model
from bayesrnn.training.run_directory import RunDirectory
from bayesrnn.uncertainty.likelihood import Likelihood

DynamicRule = Literal["sgd", "rms"]
RULES: Final[tuple[str, ...]] = get_args(DynamicRule)

#: The file of a run's folder that keeps what tuning found.
_FILE = "dynamic.json"

#: Minibatches of training text behind the statistics of rms, and their sequences side by side.
_STATISTICS_MINIBATCHES, _STATISTICS_SEQUENCES = 500, 20

#: Tuning moves a setting by these factors in turn, each as long as that gains so many nats a word.
_TUNING_FACTORS, _WORTH_WHILE = (8.0, 2.0), 1e-4


@dataclass(frozen=True)
class DynamicOptions:
    """What the user asks of dynamic evaluation; None is left to tuning, or else to defaults."""

    rule: str = "sgd"
    lr: float | None = None
    decay: float | None = None
    segment: int | None = None


@dataclass(frozen=True)
class DynamicSettings:
    """One complete choice, and where it comes from in a word; `decay` is for rms only."""

    rule: str
    lr: float
    decay: float
    segment: int
    source: str = "default"

    def __post_init__(self) -> None:
        limits = {"lr": (0.0, 1e9), "decay": (-1e-300, 1.0), "segment": (0, 10**6)}
        for name, (above, most) in limits.items():
            value = getattr(self, name)
            kinds = int if name == "segment" else int | float
            if not isinstance(value, kinds) or isinstance(value, bool) or not above < value <= most:
                least = "from 0" if name == "decay" else "above 0"
                raise ConfigError(
                    f"--dynamic-{name} is {value}; it has to be a{' whole' * (kinds is int)} "
                    f"number {least} and at most {most:g}"
                )

    def __str__(self) -> str:
        decay = f", decay {self.decay:.3g}" * (self.rule == "rms")
        return f"{self.rule}, lr {self.lr:.3g}{decay}, segments of {self.segment}"

    def numbers(self) -> dict[str, float]:
        """The settings themselves, to write down."""
        return {"lr": self.lr, "decay": self.decay, "segment": self.segment}


#: The paper's for sgd; for rms near those of Krause et al. (2018).
_DEFAULTS = {
    "sgd": DynamicSettings("sgd", lr=0.1, decay=0.0, segment=5),
    "rms": DynamicSettings("rms", lr=1e-4, decay=1e-3, segment=5),
}


def choose_settings(path: Path, options: DynamicOptions) -> DynamicSettings:
    """The user's settings for a run, completed by what tuning found, or else by defaults."""
    given = {n: v for n, v in vars(options).items() if n != "rule" and v is not None}
    if options.rule == "sgd" and "decay" in given:
        raise ConfigError("--dynamic-decay belongs to --dynamic rms; leave it out, or use rms")
    base = _tuned(path).get(options.rule, _DEFAULTS[options.rule])
    return replace(base, **given, source="given") if given else base


def dynamic_row(
    trained: TrainedLanguageModel, corpus: Corpus, text: Tensor, settings: DynamicSettings
) -> Row:
    """The row of dynamic evaluation, from the mean weights."""
    found = _Scorer(trained, corpus, text)(settings)
    return {
        "inference": f"dynamic-{settings.rule}",
        "label": f"dynamic {settings} ({settings.source})",
        "samples": 0,
        **likelihood_figures(found),
        "streams": 1,
        "dynamic": settings.numbers(),
    }


def tune_dynamic(
    run: Path,
    rule: str = "sgd",
    segment: int | None = None,
    words: int = 20_000,
    checkpoint: str = "best",
    device: str = "auto",
) -> str:
    """Find settings on the validation text and keep them in the run; gives them as a line."""
    start = _DEFAULTS[rule]
    if segment is not None:
        start = replace(start, segment=segment)
    if words < 10 * start.segment:
        raise ConfigError(
            f"--words is {words}; for segments of {start.segment} it has to be "
            f"{10 * start.segment} or more"
        )
    if run.is_file():
        raise ConfigError(f"{run} is a file, which keeps no settings; give the folder of a run")
    trained = load_language_model(run, checkpoint, device)
    corpus = trained.corpus()
    text = corpus.valid[: words + 1].to(trained.device)
    score = _Scorer(trained, corpus, text)
    network = trained.method.mean(trained.net)
    static = Likelihood(-target_log_probs(network, text).double().mean().item(), len(text) - 1)

    def nll(settings: DynamicSettings) -> float:
        try:
            found = score(settings)
        except TrainingDivergedError:
            found = Likelihood(math.inf, len(text) - 1)
        say(f"{settings}: perplexity {found.perplexity:.2f}")
        return found.nll

    best, lowest = _climb(nll, start, ("lr",) if rule == "sgd" else ("lr", "decay"))
    where = f"the first {len(text) - 1:,} words of valid"
    if not lowest < static.nll:
        return (
            f"no setting that was tried is better on {where} than perplexity "
            f"{static.perplexity:.2f} without dynamic evaluation; nothing is kept"
        )
    kept = {name: settings.numbers() for name, settings in _tuned(run).items()}
    kept[rule] = best.numbers()
    RunDirectory(run).write_text(_FILE, json.dumps(kept, indent=2) + "\n")
    return (
        f"best on {where}: {best}: perplexity {Likelihood(lowest, 1).perplexity:.2f}, without "
        f"{static.perplexity:.2f}; `bayesrnn evaluate {run} --dynamic {rule}` will use it"
    )


class _Scorer:
    """The likelihood of a text under dynamic evaluation with given settings."""

    def __init__(self, trained: TrainedLanguageModel, corpus: Corpus, text: Tensor) -> None:
        self.trained, self.corpus, self.text = trained, corpus, text
        trained.note_one_network("dynamic evaluation")
        self.module = trained.method.mean_module(trained.net)
        self.statistics: dict[int, dict[str, Tensor]] = {}

    def __call__(self, settings: DynamicSettings) -> Likelihood:
        rule: GradientDescent | RootMeanSquare = GradientDescent(settings.lr)
        if settings.rule == "rms":
            statistics = self._statistics(settings.segment)
            rule = RootMeanSquare(settings.lr, settings.decay, statistics)
        with progress_bar(len(self.text) - 1, " words", "dynamic evaluation") as bar:
            scores = dynamic_log_probs(self.module, self.text, rule, settings.segment, bar.update)
        return Likelihood(-scores.double().mean().item(), len(scores))

    def _statistics(self, segment: int) -> dict[str, Tensor]:
        if segment not in self.statistics:
            train = self.corpus.train.to(self.trained.device)
            sequences = min(_STATISTICS_SEQUENCES, len(train) // (segment + 1))
            if not sequences:
                raise ConfigError(
                    f"--dynamic-segment is {segment}, but the training text has only "
                    f"{len(train):,} words to gather statistics from; give shorter segments"
                )
            batches = TrainingBatches(train, sequences, segment)
            count = min(len(batches), _STATISTICS_MINIBATCHES)
            with progress_bar(count * sequences * segment, " words", "gathering") as bar:
                first = islice(batches, count)
                self.statistics[segment] = gradient_statistics(self.module, first, bar.update)
        return self.statistics[segment]


def _climb(
    score: Callable[[DynamicSettings], float], start: DynamicSettings, names: Iterable[str]
) -> tuple[DynamicSettings, float]:
    """The lowest score found by moving one setting after the other, in large steps, then small."""
    best, lowest = start, score(start)
    for name in names:
        for factor in _TUNING_FACTORS:
            for move in (factor, 1 / factor):
                before = best
                while name != "decay" or best.decay * move <= 1:
                    tried = replace(best, **{name: getattr(best, name) * move})
                    if not (found := score(tried)) < lowest - _WORTH_WHILE:
                        break
                    best, lowest = tried, found
                if best is not before:
                    break  # downhill in this direction, so uphill in the other
    return best, lowest


def _tuned(path: Path) -> dict[str, DynamicSettings]:
    """What tuning found, by rule."""
    if not (path / _FILE).exists():
        return {}
    try:
        found = json.loads(RunDirectory(path).read_text(_FILE))
        return {
            rule: DynamicSettings(
                rule, kept["lr"], kept["decay"], kept["segment"], "tuned on valid"
            )
            for rule, kept in found.items()
        }
    except (ValueError, AttributeError, KeyError, TypeError, ConfigError):
        raise RunError(
            f"{path / _FILE} is damaged; remove it, or run `bayesrnn tune-dynamic` again"
        ) from None
