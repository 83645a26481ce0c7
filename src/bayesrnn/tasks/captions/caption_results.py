"""What a captioner says of images, as plain numbers and texts."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CaptionedWord:
    """A word of a caption, or the `<eos>` after the last one, and its metrics.

    probability: of this word after those before it, mean over the draws.
    entropy: how open the prediction was, in nats; the sum of aleatoric, which single draws have,
        and epistemic, which comes from their disagreement.
    """

    word: str
    probability: float
    entropy: float
    aleatoric: float
    epistemic: float


@dataclass(frozen=True)
class RankedCaption:
    """A caption, and how sure the run is of it.

    log_prob: the log of the probability of all its words and its end, in nats.
    confidence: the same for a word, on average.
    word_probability: e to the power of the confidence: the geometric mean over the words.
    cut: whether it had not come to its end when it was as long as captions may be.
    """

    text: str
    log_prob: float
    confidence: float
    word_probability: float
    words: Sequence[CaptionedWord]
    cut: bool = False


@dataclass(frozen=True)
class DrawnCaption:
    """A caption that single draws say when each always takes its likeliest word; how many do.

    cut: as in `RankedCaption`.
    """

    text: str
    draws: int
    cut: bool = False


@dataclass(frozen=True)
class CaptionedImage:
    """What was said of an image.

    confidence: that of the best caption.
    captions: the best ones, best first.
    draws: what single draws say, commonest first; none with fewer than two.
    """

    image: str
    confidence: float
    captions: Sequence[RankedCaption]
    draws: Sequence[DrawnCaption]

    @property
    def best(self) -> RankedCaption:
        """The caption that the run is surest of."""
        return self.captions[0]


@dataclass(frozen=True)
class LeftOut:
    """An image that cannot be read, and why."""

    image: str
    reason: str


@dataclass(frozen=True)
class Captioning:
    """All images, and who captioned them.

    samples: draws that were averaged; 0 is the mean network.
    beam: how many unfinished captions the search pursued.
    """

    run: str
    method: str
    step: int
    seed: int
    samples: int
    beam: int
    images: Sequence[CaptionedImage]
    left_out: Sequence[LeftOut] = ()

    @property
    def several_draws(self) -> bool:
        """Whether there are several draws, which can disagree."""
        return self.samples > 1
