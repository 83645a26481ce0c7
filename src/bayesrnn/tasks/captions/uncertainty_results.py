"""What is found about the uncertainty of one captioner, as plain numbers."""

from dataclasses import dataclass

from bayesrnn.uncertainty.bootstrap import Interval
from bayesrnn.uncertainty.detection import Detection


@dataclass(frozen=True)
class SelectiveCaptions:
    """How well the confidence of captions tells good ones from bad ones.

    coverage: share of captions kept, rising in tenths to 1; the least confident are withheld.
    score: mean score of those that are kept.
    area: mean of that score over every number of kept captions, not only those listed; more is
        better. A random order gives `random`, the mean score; the order of the scores `oracle`.
    gain: (area - random) / (oracle - random): 0 for a random order, 1 for the best one (the
        prediction rejection ratio of Malinin & Gales 2021); 0 where all scores are equal.
    correlation: of the ranks of confidence and score (`rank_correlation`).
    """

    coverage: tuple[float, ...]
    score: tuple[float, ...]
    area: Interval
    random: float
    oracle: float
    gain: Interval
    correlation: Interval


@dataclass(frozen=True)
class UnknownImages:
    """Images of another kind than those that were learnt from, beside regular ones.

    confidence: mean over their captions, in nats a word.
    information: mean over their captions of the mutual information between word and weights, in
        nats a word; None where there is none: fewer than two different draws.
    by_confidence: how well low confidence detects them.
    by_information: the same by high information.
    """

    confidence: float
    information: float | None
    by_confidence: Detection
    by_information: Detection | None


@dataclass(frozen=True)
class CaptionLevel:
    """All metrics of the mean network (`samples` 0), or of an average over `samples` draws.

    confidence, information: means over the captions of the regular images, as in `UnknownImages`.
    doubts: what withholding gains, with the CIDEr of each caption, times 100, as its score.
    unknown: None where there were no other images.
    """

    samples: int
    confidence: float
    information: float | None
    doubts: SelectiveCaptions
    unknown: UnknownImages | None


@dataclass(frozen=True)
class CaptionUncertainty:
    """The uncertainty of one captioner.

    images: how many regular images were captioned, of the split `split` of `data`.
    unknown: how many images of `unknown_data`, which is another data set.
    levels: one for each number of draws, rising.
    """

    name: str
    path: str
    method: str
    data: str
    settings: str
    split: str
    images: int
    unknown_data: str
    unknown: int
    step: int
    seed: int
    beam: int
    bootstrap: int
    levels: tuple[CaptionLevel, ...]
