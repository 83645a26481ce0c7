"""What a run expected at each word of a text, and after it, as plain numbers."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class InspectedWord:
    """A word of the text, as it is shown, and its metrics; entropies in nats.

    known: whether the vocabulary has it; if not, the metrics are those of `<unk>`.
    low, high: 5% and 95% quantile of the probability over the draws; None with fewer than two.
    """

    word: str
    known: bool
    probability: float
    low: float | None
    high: float | None
    entropy: float
    aleatoric: float
    epistemic: float
    likeliest: str
    likeliest_probability: float


@dataclass(frozen=True)
class InspectedLine:
    """A line of the text, counted from 1, and the means over its words, its end included.

    unknown: how many of its words the vocabulary lacks.
    surprise: the mean of -log p, in nats; perplexity: e to it. largest_surprise: of one word.
    """

    line: int
    text: str
    words: int
    unknown: int
    perplexity: float
    surprise: float
    largest_surprise: float
    entropy: float
    epistemic: float


@dataclass(frozen=True)
class Continuation:
    """A word that may follow the text; `spread` is the standard deviation over the draws."""

    word: str
    probability: float
    spread: float | None


@dataclass(frozen=True)
class InspectedText:
    """A whole text as one run saw it.

    samples: draws that were averaged; 0 is the mean network.
    lines: the lines of the text, where it was read line by line.
    """

    run: str
    method: str
    step: int
    seed: int
    samples: int
    perplexity: float
    words: Sequence[InspectedWord]
    next: Sequence[Continuation]
    lines: Sequence[InspectedLine] = ()

    @property
    def several_draws(self) -> bool:
        """Whether there are several draws, which can disagree."""
        return self.samples > 1
