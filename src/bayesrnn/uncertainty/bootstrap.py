"""The bootstrap (Efron 1979): how far metrics move when the examples are resampled."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Interval(NamedTuple):
    """A metric with its bootstrap interval."""

    value: float
    low: float
    high: float


def resampled(
    metrics: Callable[..., Tensor],
    sizes: Sequence[int],
    generator: torch.Generator,
    resamples: int,
    at_once: int,
) -> Tensor:
    """The metrics [resamples, metrics] of examples resampled with replacement.

    sizes: of each set of examples; each set is resampled by itself.
    metrics: from the indices drawn from each set, [n, size], to [n, metrics].
    at_once: how many resamples are computed together, to limit memory.
    """
    parts = []
    for start in range(0, resamples, at_once):
        count = min(at_once, resamples - start)
        drawn = [torch.randint(size, (count, size), generator=generator) for size in sizes]
        parts.append(metrics(*drawn))
    return torch.cat(parts) if parts else torch.empty(0)


def counts(places: Tensor, size: int) -> Tensor:
    """How often each of `size` indices occurs in each row of `places` [n, drawn]: [n, size]."""
    found = torch.zeros(len(places), size, dtype=torch.long)
    return found.scatter_add_(1, places, torch.ones_like(places))


def percentiles(drawn: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """The ends [metrics] of the central interval that holds a share `level` of the resamples."""
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.double)
    low, high = drawn.quantile(tails, 0)
    return low, high


def intervals(values: Tensor, drawn: Tensor, level: float) -> list[Interval]:
    """The metrics `values` with their percentiles over resamples; with none, the value itself."""
    low, high = percentiles(drawn, level) if len(drawn) else (values, values)
    return [Interval(*metric) for metric in torch.stack([values, low, high], 1).tolist()]
