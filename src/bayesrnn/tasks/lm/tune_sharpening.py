"""Find settings of sharpening on the validation text, and keep them in the run."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bayesrnn.errors import TrainingDivergedError
from bayesrnn.options import option
from bayesrnn.progress import say
from bayesrnn.runs.arguments import seed_option
from bayesrnn.tasks.lm.sharpening import (
    AIMS,
    Aim,
    SharpenedScorer,
    SharpenSettings,
    keep_sharpening,
)
from bayesrnn.tasks.lm.tuning import TuningOptions, TuningText, open_tuning_text
from bayesrnn.uncertainty.likelihood import Likelihood

#: A change of a setting has to gain this many nats a word.
_WORTH_WHILE = 2e-4

#: What is tried of each setting, beside neighbours of what was best: factors, and other values.
_FACTORS: dict[str, tuple[float, ...]] = {"weights": (4.0, 2.0), "bias": (2.0,), "segment": (4.0,)}
_CARRIES = (1.0, 0.999, 0.99, 0.95)

#: Shorter segments take long, and were never better.
_SHORTEST = 5

_ORDER = ("weights", "bias", "carry", "segment")

#: Where weights without a posterior start; with one they start from its own sigma.
_FIRST_STD = 0.05


@dataclass(frozen=True, kw_only=True)
class TuneSharpeningOptions(TuningOptions):
    """Which settings to try, and on how much text."""

    words: int = option(7_000, "words of the validation text to tune on", ge=1)
    segment: int = option(35, "words of a segment to start from", ge=1)
    bias_only: bool = option(False, "sharpen the output bias alone: faster by far")
    independent: bool = option(
        False, "segments have nothing to do with each other, as in training (carry 0)"
    )
    seed: int = seed_option()


#: Nats a word with some settings, for each aim.
Score = Callable[[SharpenSettings], dict[Aim, float]]


def tune_sharpening(options: TuneSharpeningOptions) -> str:
    """Find settings for both aims on the validation text and keep them; gives them as lines."""
    tuning = open_tuning_text(options, options.words, options.segment, segments=2)
    scorer = SharpenedScorer(tuning.trained, tuning.corpus, tuning.text)
    seen: dict[SharpenSettings, dict[Aim, float]] = {}

    def score(settings: SharpenSettings) -> dict[Aim, float]:
        if settings not in seen:
            seen[settings] = _score(scorer, settings, options.seed)
            shown = {aim: Likelihood(nll, 1).perplexity for aim, nll in seen[settings].items()}
            say(f"{settings}: read {shown['read']:.2f}, bound {shown['bound']:.2f}")
        return seen[settings]

    bias = SharpenSettings(segment=options.segment, carry=0.0 if options.independent else 1.0)
    starts = [bias]
    if not options.bias_only:
        starts.append(replace(bias, weights=1.0 if scorer.has_posterior else _FIRST_STD))
    found = {}
    for aim in AIMS[1:] if options.independent else AIMS:
        climbed = [_climb(score, aim, start, options) for start in starts]
        best = min(climbed, key=lambda settings: score(settings)[aim])
        found[aim] = (best, score(best)[aim])
    return _kept(options.run, found, tuning)


def _score(scorer: SharpenedScorer, settings: SharpenSettings, seed: int) -> dict[Aim, float]:
    """Nats a word, for each aim."""
    try:
        found = scorer(settings, seed)
    except TrainingDivergedError:
        return dict.fromkeys(AIMS, math.inf)
    bound = math.inf if math.isnan(found.bound.nll) else found.bound.nll
    return {"read": found.read.nll, "bound": bound}


def _kept(
    run: Path,
    found: dict[Aim, tuple[SharpenSettings, float]],
    tuning: TuningText,
) -> str:
    """Keep what is better than the mean weights, and say what it is."""
    static, where = tuning.static, tuning.where
    better = {aim: settings for aim, (settings, nll) in found.items() if nll < static.nll}
    if not better:
        return (
            f"no setting that was tried is better on {where} than perplexity "
            f"{static.perplexity:.2f} without sharpening; nothing is kept"
        )
    keep_sharpening(run, better)
    names = {"read": "sharpened on what was read", "bound": "sharpened bound"}
    lines = [
        f"{names[aim]}: {settings}: perplexity {'<= ' * (aim == 'bound')}"
        f"{Likelihood(found[aim][1], 1).perplexity:.2f}"
        for aim, settings in better.items()
    ]
    return "\n".join(
        [
            f"best on {where}, where the mean weights have perplexity {static.perplexity:.2f}:",
            *lines,
            f"`bayesrnn evaluate {run} --sharpen` will use it",
        ]
    )


def _climb(
    score: Score,
    aim: Aim,
    start: SharpenSettings,
    options: TuneSharpeningOptions,
) -> SharpenSettings:
    """The lowest score found by moving one setting after the other."""
    best, lowest = start, score(start)[aim]
    wanted = {"weights": start.weights > 0, "carry": not options.independent}
    for name in filter(lambda name: wanted.get(name, True), _ORDER):
        for moves in _moves(name):
            for move in moves:
                moved = False
                while (tried := _moved(best, name, move, options.words)) is not None:
                    if not (found := score(tried)[aim]) < lowest - _WORTH_WHILE:
                        break
                    best, lowest, moved = tried, found, True
                    if name == "carry":
                        break
                if moved and name != "carry":
                    break  # downhill in this direction, so uphill in the other
    return best


def _moves(name: str) -> list[tuple[float, ...]]:
    """What is tried of a setting: factors in both directions, or values."""
    if name == "carry":
        return [_CARRIES]
    return [(factor, 1 / factor) for factor in _FACTORS[name]]


def _moved(settings: SharpenSettings, name: str, move: float, words: int) -> SharpenSettings | None:
    """The settings after a move; None if there is nowhere to go."""
    if name == "carry":
        return None if settings.carry == move else replace(settings, carry=move)
    value = getattr(settings, name) * move
    if name == "segment":
        value = round(value)
        return replace(settings, segment=value) if _SHORTEST <= value <= words // 2 else None
    return replace(settings, **{name: value}) if 0 < value <= 100 else None
