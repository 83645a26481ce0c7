"""How well a score tells one text from another."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bayesrnn.errors import ConfigError, CorpusError

# Resamples are worked through in slices of about so many numbers: small enough for the cache.
SLICE = 2**15


class Interval(NamedTuple):
    """A figure with its bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Detection:
    """How well a score tells `shifted` (the positives: higher scores expected) from `regular`.

    auroc: chance that a shifted window scores higher than a regular one; a tie counts half.
    aupr: average precision, sum_k (R_k - R_{k-1}) P_k over thresholds with recall R, precision P.
        Guessing gives the share of shifted windows.
    fpr95: share of regular windows taken for shifted at the highest threshold that finds at least
        95% of the shifted ones; less is better.
    windows: number of scores, regular and shifted together.
    """

    auroc: Interval
    aupr: Interval
    fpr95: Interval
    windows: int


def window_means(values: Tensor, window: int) -> Tensor:
    """Means of `values` [words] over windows side by side, in float64; a rest is dropped."""
    if values.dim() != 1:
        raise ConfigError(f"values have the shape {list(values.shape)}; they have to be [words]")
    require_window(len(values), window)
    whole = len(values) // window * window
    return values[:whole].detach().cpu().double().view(-1, window).mean(1)


def require_window(words: int, window: int, name: str = "the text") -> None:
    """Refuse a window that a text of so many words cannot fill."""
    if window < 1:
        raise ConfigError(f"--window is {window}; it has to be 1 or more")
    if window > words:
        raise ConfigError(
            f"--window is {window}, but {name} has only {words} words to foresee; give a smaller "
            "window, or more text"
        )


def detection(
    regular: Tensor,
    shifted: Tensor,
    generator: torch.Generator,
    bootstrap: int = 1000,
    level: float = 0.95,
) -> Detection:
    """The figures of the scores of `regular` and `shifted` windows, each [windows].

    Intervals are percentiles at `level` over `bootstrap` resamples (Efron 1979), in which regular
    and shifted windows are drawn anew, each from their own. The words of a window stay together,
    since neighbouring words are not independent. Without resamples, low and high are the value.
    """
    require_bootstrap(bootstrap, level)
    regular, shifted = _checked("regular", regular), _checked("shifted", shifted)
    # Sorted once: thresholds are the distinct scores, the highest first, and a sample is how many
    # windows there are at each.
    scores, place = torch.unique(torch.cat([regular, shifted]), return_inverse=True)
    thresholds = len(scores)
    ranks = (thresholds - 1 - place).tensor_split([len(regular)])
    value = _figures(*(rank.bincount(minlength=thresholds)[None] for rank in ranks))[0]
    low = high = value
    if bootstrap:
        rows = max(1, SLICE // thresholds)
        parts = []
        for start in range(0, bootstrap, rows):
            size = min(rows, bootstrap - start)
            parts.append(_figures(*(_resample(r, thresholds, size, generator) for r in ranks)))
        tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.double)
        low, high = torch.cat(parts).quantile(tails, 0)
    auroc, aupr, fpr95 = (
        Interval(*figure) for figure in torch.stack([value, low, high], 1).tolist()
    )
    return Detection(auroc, aupr, fpr95, len(regular) + len(shifted))


def require_bootstrap(bootstrap: int, level: float) -> None:
    """Refuse a number of resamples, or a share of them, that cannot be meant."""
    if bootstrap < 0:
        raise ConfigError(f"bootstrap is {bootstrap}; it has to be 0 (no interval) or more")
    if not 0 < level < 1:
        raise ConfigError(f"level is {level}; it has to be between 0 and 1, say 0.95")


def _resample(ranks: Tensor, thresholds: int, size: int, generator: torch.Generator) -> Tensor:
    """Counts [size, thresholds] of `size` resamples of windows with these ranks."""
    drawn = torch.randint(len(ranks), (size, len(ranks)), generator=generator)
    places = ranks.index_select(0, drawn.view(-1)).view_as(drawn)
    counts = torch.zeros(size, thresholds, dtype=torch.long)
    return counts.scatter_add_(1, places, torch.ones_like(places))


def _figures(regular: Tensor, shifted: Tensor) -> Tensor:
    """AUROC, AUPR and FPR95 [samples, 3] from counts [samples, thresholds], the highest first."""
    false, true = regular.cumsum(1), shifted.cumsum(1)  # at or above each threshold
    negatives, positives = int(false[0, -1]), int(true[0, -1])
    needed = -(-95 * positives // 100)  # rounded up; in whole numbers, since 0.95 is not a float
    place = torch.searchsorted(true, torch.full_like(true[:, :1], needed))
    fpr95 = false.gather(1, place)[:, 0].double() / negatives
    alarms, hits = (true + false).double(), true.double()
    regular, shifted = regular.double(), shifted.double()
    auroc = torch.linalg.vecdot(regular, hits - shifted / 2) / (negatives * positives)
    # Above the first window, where there are no alarms, no shifted one counts either.
    aupr = torch.linalg.vecdot(shifted, hits / alarms.clamp_(min=1)) / positives
    return torch.stack([auroc, aupr, fpr95], 1)


def _checked(name: str, scores: Tensor) -> Tensor:
    """The scores as float64 on the CPU, when they can be sorted."""
    if scores.dim() != 1:
        raise ConfigError(f"{name} has the shape {list(scores.shape)}; it has to be [windows]")
    if not len(scores):
        raise CorpusError(f"{name} has no scores; give at least one window")
    if bad := int(scores.isnan().sum()):
        raise ConfigError(f"{name} is NaN for {bad} of {len(scores)} windows; give numbers")
    return scores.detach().cpu().double()
