"""Dynamic evaluation of a run: its settings, and the likelihood that they give."""

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, get_args

from torch import Tensor

from bayesrnn.data.batches import TrainingBatches
from bayesrnn.errors import ConfigError, RunError
from bayesrnn.options import REQUIRED, CheckedOptions, option
from bayesrnn.progress import progress_bar
from bayesrnn.tasks.lm.data import Corpus
from bayesrnn.tasks.lm.dynamic import (
    GradientDescent,
    RootMeanSquare,
    dynamic_log_probs,
    gradient_statistics,
)
from bayesrnn.tasks.lm.trained import TrainedLanguageModel
from bayesrnn.training.run_directory import RunDirectory
from bayesrnn.uncertainty.likelihood import Likelihood

DynamicRule = Literal["sgd", "rms"]
RULES: Final[tuple[str, ...]] = get_args(DynamicRule)

#: The file in a run's folder with the settings that tuning found.
_FILE = "dynamic.json"

#: Where settings come from. Another formula had other numbers: its settings of rms lack a mark.
_TUNED, _OUTDATED = "tuned on valid", "tuned on valid by an earlier version; tune again"
_RMS_MARK = {"formula": 2}

#: Minibatches of training text behind the statistics of rms, and their sequences side by side.
#: As many sequences as in the program of Krause et al.: s shrinks with the root of their number.
_STATISTICS_MINIBATCHES, _STATISTICS_SEQUENCES = 500, 100


#: What a setting of dynamic evaluation can be.
_LR: dict[str, Any] = {"gt": 0, "le": 1e9}
_DECAY: dict[str, Any] = {"ge": 0, "le": 1}
_SEGMENT: dict[str, Any] = {"gt": 0, "le": 10**6}


@dataclass(frozen=True, kw_only=True)
class DynamicOptions(CheckedOptions):
    """What the user asks of dynamic evaluation; None is left to tuning, or else to defaults."""

    dynamic: DynamicRule | None = option(
        None,
        "dynamic evaluation: go on learning from the text while reading it, on a copy of the mean "
        "weights; --dynamic alone means sgd, rms adds a pull back to the trained weights",
    )
    dynamic_lr: float | None = option(
        None, "its learning rate (default: as tuned, else 0.1, for rms 0.00005)", **_LR
    )
    dynamic_decay: float | None = option(
        None, "rms: the pull back (default: as tuned, else 0.002)", **_DECAY
    )
    dynamic_segment: int | None = option(
        None,
        "dynamic evaluation: words between updates (default: as tuned, else 5)",
        **_SEGMENT,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dynamic is None and self.given():
            raise ConfigError("--dynamic-lr, -decay and -segment belong to --dynamic; add it")
        if self.dynamic == "sgd" and self.dynamic_decay is not None:
            raise ConfigError("--dynamic-decay belongs to --dynamic rms; leave it out, or use rms")

    def given(self) -> dict[str, Any]:
        """The settings that the user gave."""
        settings = {
            "lr": self.dynamic_lr,
            "decay": self.dynamic_decay,
            "segment": self.dynamic_segment,
        }
        return {name: value for name, value in settings.items() if value is not None}


@dataclass(frozen=True)
class DynamicSettings(CheckedOptions):
    """One complete choice, and where it comes from; `decay` is for rms only."""

    rule: DynamicRule = option(REQUIRED, "the kind of update")
    lr: float = option(REQUIRED, "learning rate", **_LR)
    decay: float = option(REQUIRED, "pull back to the trained weights", **_DECAY)
    segment: int = option(REQUIRED, "words between updates", **_SEGMENT)
    source: str = "default"

    def __str__(self) -> str:
        decay = f", decay {self.decay:.3g}" * (self.rule == "rms")
        return f"{self.rule}, lr {self.lr:.3g}{decay}, segments of {self.segment}"

    def numbers(self) -> dict[str, float]:
        """The settings themselves, to write down."""
        return {"lr": self.lr, "decay": self.decay, "segment": self.segment}


#: The paper's for sgd; for rms those of Krause et al. (2018).
DEFAULTS = {
    "sgd": DynamicSettings("sgd", lr=0.1, decay=0.0, segment=5),
    "rms": DynamicSettings("rms", lr=5e-5, decay=2e-3, segment=5),
}


def choose_settings(path: Path, options: DynamicOptions) -> DynamicSettings:
    """The user's settings for a run, completed by what tuning found, or else by defaults."""
    rule: DynamicRule = options.dynamic or "sgd"
    base, given = tuned_settings(path).get(rule, DEFAULTS[rule]), options.given()
    return replace(base, **given, source="given") if given else base


class DynamicScorer:
    """The likelihood of a text under dynamic evaluation with given settings."""

    def __init__(self, trained: TrainedLanguageModel, corpus: Corpus, text: Tensor) -> None:
        self.trained, self.corpus, self.text = trained, corpus, text
        trained.note_one_network("dynamic evaluation")
        self.module = trained.method.mean_module(trained.net)
        self.statistics: dict[int, dict[str, Tensor]] = {}

    def __call__(self, settings: DynamicSettings) -> Likelihood:
        """Read the text, learning from it."""
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


def tuned_settings(path: Path) -> dict[str, DynamicSettings]:
    """What tuning found, by rule."""
    if not (path / _FILE).exists():
        return {}
    try:
        found = RunDirectory(path).read_sealed(_FILE)
        return {
            rule: DynamicSettings(
                rule, entry["lr"], entry["decay"], entry["segment"], _source(rule, entry)
            )
            for rule, entry in found.items()
        }
    except (ValueError, AttributeError, KeyError, TypeError, ConfigError):
        raise RunError(
            f"{path / _FILE} is damaged; remove it, or run `bayesrnn tune-dynamic` again"
        ) from None


def keep_settings(path: Path, best: DynamicSettings) -> None:
    """Keep what tuning found, beside what it found for the other rule."""
    tuned = {**tuned_settings(path), best.rule: replace(best, source=_TUNED)}
    entries = {
        rule: settings.numbers() | (_RMS_MARK if _is_marked(settings) else {})
        for rule, settings in tuned.items()
    }
    RunDirectory(path).write_sealed(_FILE, entries)


def _source(rule: str, entry: dict[str, Any]) -> str:
    return _OUTDATED if rule == "rms" and not _RMS_MARK.items() <= entry.items() else _TUNED


def _is_marked(settings: DynamicSettings) -> bool:
    return settings.rule == "rms" and settings.source != _OUTDATED
