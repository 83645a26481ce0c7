"""What the uncertainty benchmark finds about one run, as plain numbers."""

from collections.abc import Mapping
from dataclasses import dataclass

from bayesrnn.uncertainty.calibration import Reliability
from bayesrnn.uncertainty.detection import Detection
from bayesrnn.uncertainty.likelihood import Likelihood
from bayesrnn.uncertainty.selective import RiskCoverage


@dataclass(frozen=True)
class TextMetrics:
    """Means over the words of one text, in nats a word.

    entropy: of the averaged prediction; it splits into the mean entropy of single draws,
        `aleatoric`, and the mutual `information` between prediction and weights.
    nll: negative log-likelihood of the words that came.
    """

    entropy: float
    aleatoric: float
    information: float
    nll: float
    words: int

    @property
    def perplexity(self) -> float:
        """exp(nll)."""
        return Likelihood(self.nll, self.words).perplexity

    @property
    def overconfidence(self) -> float:
        """NLL minus entropy: 0 for a model as surprised as it expects to be, more if too sure."""
        return self.nll - self.entropy


@dataclass(frozen=True)
class ShiftMetrics:
    """A shifted text beside the regular one.

    gap: entropy on the shifted text minus entropy on the regular one (eq. 20 of the paper).
    by_entropy, by_information, by_surprise: how well that score detects windows of the shifted
        text; the second is None where there is no information: fewer than two different draws.
    surprise: the mean surprise of the words that came minus that of the regular text, unknown words
        spelt out (`spelt_surprise`).
    """

    figures: TextMetrics
    gap: float
    by_entropy: Detection
    by_information: Detection | None
    by_surprise: Detection
    surprise: float


@dataclass(frozen=True)
class DrawLevel:
    """All metrics of the mean network (`samples` 0), or of an average over `samples` draws.

    temperature: what the logarithms of the probabilities were divided by; 1 leaves them alone.
    error: share of words that were not the most probable one.
    """

    samples: int
    temperature: float
    regular: TextMetrics
    error: float
    brier: float
    reliability: Reliability
    reliability_equal_mass: Reliability
    risk_coverage: RiskCoverage
    shifts: Mapping[str, ShiftMetrics]


@dataclass(frozen=True)
class RunUncertainty:
    """The benchmark of one run.

    levels: one for each number of draws, in that order.
    scaled: for the fewest and the most draws, once more with the temperature that makes the
        validation text most probable: a control, since a flatter model widens the gap for free.
    unigram_entropy: that of the word counts of the regular text, in nats.
    window: words per window of the detection.
    unknown: the share of words outside the vocabulary in each shifted text.
    """

    name: str
    path: str
    method: str
    corpus: str
    #: A hash of the vocabulary: runs with different ones cannot be compared.
    vocabulary: str
    settings: str
    split: str
    step: int
    seed: int
    window: int
    streams: int
    bootstrap: int
    temperature_words: int
    unknown: Mapping[str, float]
    unigram_entropy: float
    levels: tuple[DrawLevel, ...]
    scaled: tuple[DrawLevel, ...]
