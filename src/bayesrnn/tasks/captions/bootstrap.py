"""Whether one way to caption images is better than another: the paired bootstrap over images."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesrnn.errors import ConfigError
from bayesrnn.tasks.captions.scores import CaptionScores, bleu

# Resamples are worked through in slices of about so many numbers.
_SLICE = 2**20


@dataclass(frozen=True)
class Difference:
    """How much higher one system scores than another on the same images.

    value: the difference of their figures.
    low, high: its percentile interval over the resamples.
    below: the share of resamples in which it is below 0, that is, the first is the worse one.
    """

    value: float
    low: float
    high: float
    below: float


def paired_bootstrap(
    ours: CaptionScores,
    theirs: CaptionScores,
    generator: torch.Generator,
    resamples: int = 1000,
    level: float = 0.95,
) -> dict[str, Difference]:
    """The differences `ours` - `theirs` of all figures, by the names of `CaptionScores.figures`.

    Images are drawn anew with replacement, the same ones for both (Efron 1979; Koehn 2004). BLEU
    is worked out again from the sums of what was drawn; ROUGE-L and CIDEr are means over images,
    whose scores stay: the document frequencies are those of the whole set.
    """
    if len(ours) != len(theirs):
        raise ConfigError(
            f"the first system has scores for {len(ours):,} images and the second for "
            f"{len(theirs):,}; score both on the same images"
        )
    if resamples < 1:
        raise ConfigError(f"resamples is {resamples}; it has to be 1 or more")
    if not 0 < level < 1:
        raise ConfigError(f"level is {level}; it has to be between 0 and 1, say 0.95")
    pair = [_columns(ours), _columns(theirs)]
    once = torch.ones(1, len(ours), dtype=torch.double)
    values = _difference(once, *pair)[0]
    rows = max(1, _SLICE // len(ours))
    parts = []
    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        parts.append(_difference(_resample(len(ours), size, generator), *pair))
    drawn = torch.cat(parts)
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.double)
    low, high = drawn.quantile(tails, 0)
    below = (drawn < 0).double().mean(0)
    table = torch.stack([values, low, high, below], 1).tolist()
    return {name: Difference(*row) for name, row in zip(ours.figures(), table, strict=True)}


def _columns(scores: CaptionScores) -> Tensor:
    """What the figures are made of, float64 `[images, 12]`; each is a sum over images."""
    parts = (scores.bleu_counts.double(), scores.rouge[:, None], scores.cider[:, None])
    return torch.cat(parts, 1)


def _difference(times: Tensor, ours: Tensor, theirs: Tensor) -> Tensor:
    """The differences `[samples, figures]` where images are drawn so many `times`."""
    first, second = (_figures(times @ columns, times.shape[1]) for columns in (ours, theirs))
    return first - second


def _figures(sums: Tensor, images: int) -> Tensor:
    return torch.cat([bleu(sums[:, :-2]), sums[:, -2:] / images], 1)


def _resample(images: int, size: int, generator: torch.Generator) -> Tensor:
    """How often each image is drawn in each of `size` resamples, float64 `[size, images]`."""
    drawn = torch.randint(images, (size, images), generator=generator)
    times = torch.zeros(size, images, dtype=torch.double)
    return times.scatter_add_(1, drawn, torch.ones_like(times))
