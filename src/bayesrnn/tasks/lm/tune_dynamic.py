"""Find settings of dynamic evaluation on the validation text, and keep them in the run."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from bayesrnn.errors import TrainingDivergedError
from bayesrnn.options import option
from bayesrnn.progress import say
from bayesrnn.tasks.lm.dynamic_settings import (
    DEFAULTS,
    DynamicRule,
    DynamicScorer,
    DynamicSettings,
    keep_settings,
)
from bayesrnn.tasks.lm.tuning import TuningOptions, open_tuning_text
from bayesrnn.uncertainty.likelihood import Likelihood

#: Tuning moves a setting by these factors in turn, while that gains this many nats a word.
_TUNING_FACTORS, _WORTH_WHILE = (8.0, 2.0), 1e-4


@dataclass(frozen=True, kw_only=True)
class TuneOptions(TuningOptions):
    """The rule whose settings to find, and on how much text."""

    rule: DynamicRule = option("sgd", "the kind of update")
    segment: int = option(5, "words between updates", ge=1)
    words: int = option(20_000, "words of the validation text to tune on", ge=1)


def tune_dynamic(options: TuneOptions) -> str:
    """Find settings on the validation text and keep them in the run; gives them as a line."""
    run, rule = options.run, options.rule
    start = replace(DEFAULTS[rule], segment=options.segment)
    tuning = open_tuning_text(options, options.words, options.segment, segments=10)
    static, where = tuning.static, tuning.where
    score = DynamicScorer(tuning.trained, tuning.corpus, tuning.text)

    def nll(settings: DynamicSettings) -> float:
        try:
            found = score(settings)
        except TrainingDivergedError:
            found = Likelihood(math.inf, static.tokens)
        say(f"{settings}: perplexity {found.perplexity:.2f}")
        return found.nll

    best, lowest = _climb(nll, start, ("lr",) if rule == "sgd" else ("lr", "decay"))
    if not lowest < static.nll:
        return (
            f"no setting that was tried is better on {where} than perplexity "
            f"{static.perplexity:.2f} without dynamic evaluation; nothing is kept"
        )
    keep_settings(run, best)
    return (
        f"best on {where}: {best}: perplexity {Likelihood(lowest, 1).perplexity:.2f}, without "
        f"{static.perplexity:.2f}; `bayesrnn evaluate {run} --dynamic {rule}` will use it"
    )


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
