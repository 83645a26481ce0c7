"""Sharpening of a run on what it reads: settings, and the likelihood and bound that they give."""

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, get_args

from torch import Tensor

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.data.batches import TrainingBatches
from bayesrnn.errors import ConfigError, RunError
from bayesrnn.options import CheckedOptions, option
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.tasks.lm.data import Corpus
from bayesrnn.tasks.lm.dynamic import copied, gradient_statistics
from bayesrnn.tasks.lm.likelihood import text_minibatches
from bayesrnn.tasks.lm.trained import TrainedLanguageModel
from bayesrnn.training.run_directory import RunDirectory
from bayesrnn.uncertainty.sharpening import SegmentSharpening, SharpenedReading, read_sharpened

#: What settings are best for: predictions from what was read, or the bound.
Aim = Literal["read", "bound"]
AIMS: Final[tuple[Aim, ...]] = get_args(Aim)

#: The file in a run's folder with the settings that tuning found.
_FILE = "sharpening.json"

#: At least so many minibatches of training text, spread over it, give the mean squared gradients;
#: the words of each.
_MINIBATCHES, _WORDS = 300, 35

_BIAS: dict[str, Any] = {"ge": 0, "le": 1e3}
_CARRY: dict[str, Any] = {"ge": 0, "le": 1}
_SEGMENT: dict[str, Any] = {"gt": 0, "le": 10**6}


@dataclass(frozen=True, kw_only=True)
class SharpenOptions(CheckedOptions):
    """What the user asks of sharpening; None is left to tuning, or else to defaults."""

    sharpen: bool = option(
        False,
        "sharpen the mean weights of any run, segment by segment: the likelihood with weights "
        "sharpened on what was read before (no targets), and an upper bound with those of the "
        "segment",
    )
    sharpen_bias: float | None = option(
        None, "sigma0 of the output bias (default: as tuned, else 0.5)", **_BIAS
    )
    sharpen_weights: float | None = option(
        None,
        "sigma0 of all other weights, in sigmas of the posterior where there is one; 0: they stay "
        "(default: as tuned, else 0)",
        **_BIAS,
    )
    sharpen_carry: float | None = option(
        None,
        "share of what a segment taught that the next one starts from (default: as tuned, else 1)",
        **_CARRY,
    )
    sharpen_segment: int | None = option(
        None, "words of a segment (default: as tuned, else 35)", **_SEGMENT
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sharpen and self.settings_given():
            raise ConfigError(
                "--sharpen-bias, -weights, -carry and -segment belong to --sharpen; add it"
            )

    def settings_given(self) -> dict[str, Any]:
        """The settings that the user gave."""
        settings = {
            "bias": self.sharpen_bias,
            "weights": self.sharpen_weights,
            "carry": self.sharpen_carry,
            "segment": self.sharpen_segment,
        }
        return {name: value for name, value in settings.items() if value is not None}


@dataclass(frozen=True)
class SharpenSettings(CheckedOptions):
    """One complete choice, and where it comes from. See `SharpenOptions`."""

    bias: float = option(0.5, "sigma0 of the output bias", **_BIAS)
    weights: float = option(0.0, "sigma0 of other weights", **_BIAS)
    carry: float = option(1.0, "share of what was learnt that stays", **_CARRY)
    segment: int = option(35, "words of a segment", **_SEGMENT)
    source: str = "default"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.bias or self.weights):
            raise ConfigError("--sharpen-bias and --sharpen-weights are both 0: nothing would move")

    def __str__(self) -> str:
        weights = f", weights {self.weights:.3g}" if self.weights else ""
        return (
            f"sigma0 {self.bias:.3g}{weights}, carry {self.carry:.5g}, segments of {self.segment}"
        )

    def numbers(self) -> dict[str, float]:
        """The settings themselves, to write down."""
        return {name: value for name, value in asdict(self).items() if name != "source"}


def choose_sharpening(path: Path, options: SharpenOptions) -> dict[Aim, SharpenSettings]:
    """The user's settings for each aim, completed by what tuning found, or else by defaults."""
    tuned, given = tuned_sharpening(path), options.settings_given()
    found = {aim: tuned.get(aim, SharpenSettings()) for aim in AIMS}
    if not given:
        return found
    return {aim: replace(settings, **given, source="given") for aim, settings in found.items()}


class SharpenedScorer:
    """Likelihood and bound of a text under sharpening with given settings."""

    def __init__(self, trained: TrainedLanguageModel, corpus: Corpus, text: Tensor) -> None:
        self.trained, self.corpus, self.text = trained, corpus, text
        trained.note_one_network("sharpening")
        self.module, self.parameters = copied(trained.method.mean_module(trained.net))

    @property
    def has_posterior(self) -> bool:
        """Whether the weights have sigmas."""
        return isinstance(self.trained.net, Bayesian)

    def __call__(self, settings: SharpenSettings, seed: int) -> SharpenedReading:
        """Read the text; `seed` is that of the bound's draws."""
        sigma0 = self._sigma0(settings)
        # Without weights that move, the closed form of the output bias is all that is needed.
        squares = self._squares if len(sigma0) > 1 else {}
        sharpening = SegmentSharpening(sigma0, settings.carry, "output", squares)
        minibatches = text_minibatches(self.text, 1, settings.segment)
        with progress_bar(len(self.text) - 1, " words", "sharpening") as bar:
            return read_sharpened(self.module, minibatches, sharpening, seeded(seed), bar.update)

    def _sigma0(self, settings: SharpenSettings) -> dict[str, Tensor]:
        """The prior's standard deviations, of the posterior's width where there is one."""
        net = self.trained.net
        sigmas = net.sigmas() if isinstance(net, Bayesian) else {}
        found = {}
        for name, weight in self.parameters.items():
            sigma = sigmas.get(name, weight.new_ones(())) * settings.weights
            sigma = weight.new_tensor(settings.bias) if name == "output.bias" else sigma
            if bool(sigma.any()):
                found[name] = sigma
        return found

    @cached_property
    def _squares(self) -> dict[str, Tensor]:
        """Mean squared gradients of a word of training text, in place of curvatures."""
        train = self.corpus.train.to(self.trained.device)
        words = max(1, min(_WORDS, len(train) - 1))
        batches = TrainingBatches(train, 1, words)
        step = max(1, len(batches) // _MINIBATCHES)
        chosen = [batches[number] for number in range(0, len(batches), step)]
        with progress_bar(len(chosen) * words, " words", "gathering") as bar:
            found = gradient_statistics(self.module, chosen, bar.update)
        return {name: squares / words for name, squares in found.items()}


def tuned_sharpening(path: Path) -> dict[Aim, SharpenSettings]:
    """What tuning found, by aim."""
    if not (path / _FILE).exists():
        return {}
    try:
        found = RunDirectory(path).read_sealed(_FILE)
        return {
            aim: SharpenSettings(
                bias=entry["bias"],
                weights=entry["weights"],
                carry=entry["carry"],
                segment=entry["segment"],
                source="tuned on valid",
            )
            for aim, entry in found.items()
            if aim in AIMS
        }
    except (ValueError, AttributeError, KeyError, TypeError, ConfigError):
        raise RunError(
            f"{path / _FILE} is damaged; remove it, or run `bayesrnn tune-sharpening` again"
        ) from None


def keep_sharpening(path: Path, found: dict[Aim, SharpenSettings]) -> None:
    """Keep what tuning found, beside what it found for the other aim."""
    together = {**tuned_sharpening(path), **found}
    entries: dict[str, Any] = {aim: settings.numbers() for aim, settings in together.items()}
    RunDirectory(path).write_sealed(_FILE, entries)
