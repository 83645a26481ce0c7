"""Dynamic evaluation of a run: its settings, how they are tuned, and the row that it gives."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from torch import Tensor

from bayesrnn.data import Batch, Corpus, TrainingBatches
from bayesrnn.errors import RunError, TrainingDivergedError
from bayesrnn.evaluation import (
    GradientDescent,
    Likelihood,
    RootMeanSquare,
    dynamic_log_probs,
    gradient_statistics,
    target_log_probs,
)
from bayesrnn.progress import progress_bar, say
from bayesrnn.tasks.language_model import TrainedLanguageModel, load_language_model
from bayesrnn.tasks.rows import Row
from bayesrnn.training import RunDirectory

RULES: Final = ("sgd", "rms")

#: The file of a run's folder that keeps what tuning found.
_FILE = "dynamic.json"

#: Minibatches of training text behind the statistics of rms, and their sequences side by side.
_STATISTICS_MINIBATCHES, _STATISTICS_SEQUENCES = 500, 20

#: Tuning moves on by this factor as long as a step gains this many nats a word.
_TUNING_FACTOR, _WORTH_WHILE = 2.0, 1e-3


@dataclass(frozen=True)
class DynamicOptions:
    """What the user asks of dynamic evaluation; None is left to tuning, or else to defaults."""

    rule: str = "sgd"
    lr: float | None = None
    decay: float | None = None
    segment: int | None = None


@dataclass(frozen=True)
class DynamicSettings:
    """One complete choice; `decay` is for rms only."""

    lr: float
    decay: float
    segment: int


#: The paper's for sgd; for rms those of Krause et al. (2018).
_DEFAULTS = {
    "sgd": DynamicSettings(lr=0.1, decay=0.0, segment=5),
    "rms": DynamicSettings(lr=5e-5, decay=2e-3, segment=5),
}


def dynamic_row(
    trained: TrainedLanguageModel, corpus: Corpus, text: Tensor, options: DynamicOptions
) -> Row:
    """The row of dynamic evaluation, from the mean weights."""
    settings, source = _settings(trained.path, options)
    rule = options.rule
    score = _Scorer(trained, corpus, text, rule)
    found = score(settings)
    how = f"lr {settings.lr:g}" + f", decay {settings.decay:g}" * (rule == "rms")
    label = f"dynamic {rule}, {how}, segments of {settings.segment} ({source})"
    return {
        "inference": f"dynamic-{rule}",
        "label": label,
        "samples": 0,
        "perplexity": found.perplexity,
        **asdict(found),
        "dynamic": asdict(settings),
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
    trained = load_language_model(run, checkpoint, device)
    corpus = trained.corpus()
    text = corpus.valid[: words + 1].to(trained.device)
    score = _Scorer(trained, corpus, text, rule)
    start = _DEFAULTS[rule]
    if segment is not None:
        start = replace(start, segment=segment)

    def nll(settings: DynamicSettings) -> float:
        try:
            value = score(settings).nll if settings.decay <= 1 else math.inf
        except TrainingDivergedError:
            value = math.inf
        decay = f", decay {settings.decay:.3g}" * (rule == "rms")
        say(f"lr {settings.lr:.3g}{decay}: perplexity {Likelihood(value, 1).perplexity:.2f}")
        return value

    best, lowest = _climb(nll, start, ("lr",) if rule == "sgd" else ("lr", "decay"))
    network = trained.method.mean(trained.net)
    static = Likelihood(-target_log_probs(network, text).double().mean().item(), len(text) - 1)
    found = Likelihood(lowest, len(text) - 1)
    kept = {**_read(run), rule: {**asdict(best), "words": len(text) - 1, "nll": lowest}}
    RunDirectory(run).write_text(_FILE, json.dumps(kept, indent=2) + "\n")
    decay = f", decay {best.decay:.3g}" * (rule == "rms")
    return (
        f"best on the first {len(text) - 1:,} words of valid: {rule}, lr {best.lr:.3g}{decay}, "
        f"segments of {best.segment}: perplexity {found.perplexity:.2f}, without "
        f"{static.perplexity:.2f}; `bayesrnn evaluate {run} --dynamic {rule}` will use it"
    )


class _Scorer:
    """The likelihood of a text under dynamic evaluation with given settings."""

    def __init__(
        self, trained: TrainedLanguageModel, corpus: Corpus, text: Tensor, rule: str
    ) -> None:
        self.trained, self.corpus, self.text, self.rule = trained, corpus, text, rule
        self.module = trained.method.mean_module(trained.net)
        self.statistics: dict[int, dict[str, Tensor]] = {}

    def __call__(self, settings: DynamicSettings) -> Likelihood:
        rule: GradientDescent | RootMeanSquare = GradientDescent(settings.lr)
        if self.rule == "rms":
            statistics = self._statistics(settings.segment)
            rule = RootMeanSquare(settings.lr, settings.decay, statistics)
        with progress_bar(len(self.text) - 1, " words", "dynamic evaluation") as bar:
            scores = dynamic_log_probs(self.module, self.text, rule, settings.segment, bar.update)
        return Likelihood(-scores.double().mean().item(), len(scores))

    def _statistics(self, segment: int) -> dict[str, Tensor]:
        if segment not in self.statistics:
            train = self.corpus.train.to(self.trained.device)
            sequences = max(1, min(_STATISTICS_SEQUENCES, len(train) // (segment + 1)))
            batches = TrainingBatches(train, sequences, segment)
            count = min(len(batches), _STATISTICS_MINIBATCHES)
            with progress_bar(count * sequences * segment, " words", "gathering") as bar:
                first: Iterable[Batch] = islice(batches, count)
                self.statistics[segment] = gradient_statistics(self.module, first, bar.update)
        return self.statistics[segment]


Settings = TypeVar("Settings", bound=Any)


def _climb(
    score: Callable[[Settings], float], start: Settings, names: Iterable[str]
) -> tuple[Settings, float]:
    """The lowest score found by doubling or halving one setting after the other."""
    best, lowest = start, score(start)
    for name in names:
        for factor in (_TUNING_FACTOR, 1 / _TUNING_FACTOR):
            moved = False
            while True:
                tried = replace(best, **{name: getattr(best, name) * factor})
                value = score(tried)
                if not value < lowest - _WORTH_WHILE:
                    break
                best, lowest, moved = tried, value, True
            if moved:
                break  # downhill in this direction, so uphill in the other
    return best, lowest


def _settings(path: Path, options: DynamicOptions) -> tuple[DynamicSettings, str]:
    """The settings, and where they come from in a word."""
    tuned = _read(path).get(options.rule)
    base, source = _DEFAULTS[options.rule], "default"
    if tuned is not None:
        base = DynamicSettings(tuned["lr"], tuned["decay"], tuned["segment"])
        source = "tuned on valid"
    given = {n: v for n, v in vars(options).items() if n != "rule" and v is not None}
    return replace(base, **given), "given" if given else source


def _read(path: Path) -> dict[str, Any]:
    """What tuning found, by rule."""
    if not (path / _FILE).exists():
        return {}
    try:
        found: dict[str, Any] = json.loads(RunDirectory(path).read_text(_FILE))
        for rule in found.values():
            DynamicSettings(**{name: rule[name] for name in ("lr", "decay", "segment")})
    except (ValueError, AttributeError, KeyError, TypeError):
        raise RunError(
            f"{path / _FILE} is damaged; remove it, or run `bayesrnn tune-dynamic` again"
        ) from None
    return found
