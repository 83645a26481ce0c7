"""How far metrics over windows move when series, and the windows of each, are drawn anew.

Windows of one series have much in common, so that windows alone would promise too much; a single
series stays, and its windows are drawn.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Final, TypeVar

import torch
from torch import Tensor

from bayesrnn.uncertainty.bootstrap import Interval

#: Windows that are drawn at once, to limit memory: all resamples of all windows may be gigabytes.
_SLICE: Final = 2**21
_LEVEL: Final = 0.95


#: The name of a metric.
Key = TypeVar("Key", bound=Hashable)


def times_drawn(series: Tensor, resamples: int, generator: torch.Generator) -> Iterator[Tensor]:
    """How often each window is drawn in each resample: float64 [some resamples, windows] each time.

    series: int64 [windows], the number of the series that a window is of. Of as many series as
    there are, drawn with replacement, as many windows as each has are drawn with replacement.
    """
    _, number = torch.unique(series, return_inverse=True)
    sizes = torch.bincount(number)
    order = number.argsort(stable=True)
    firsts, most, count = sizes.cumsum(0) - sizes, int(sizes.max()), len(sizes)
    at_once = max(1, _SLICE // (count * most))
    for start in range(0, resamples, at_once):
        rows = min(at_once, resamples - start)
        drawn = torch.randint(count, (rows, count), generator=generator)
        size, first = (of[drawn][..., None] for of in (sizes, firsts))
        share = torch.rand((rows, count, most), generator=generator, dtype=torch.double)
        window = order[first + (share * size).long()]
        there = torch.arange(most) < size
        found = torch.zeros(rows, len(series), dtype=torch.double)
        yield found.scatter_add_(1, window.flatten(1), there.double().flatten(1))


def drawn_ratios(
    series: Tensor,
    sums: Mapping[Key, tuple[Tensor, Tensor]],
    resamples: int,
    generator: torch.Generator,
) -> dict[Key, Tensor]:
    """Of each pair, above and below, the `ratios` of the same resamples, float64 [resamples]."""
    found: dict[Key, list[Tensor]] = {key: [] for key in sums}
    for times in times_drawn(series, resamples, generator):
        for key, (above, below) in sums.items():
            found[key].append(ratios(times, above, below))
    return {key: torch.cat(parts) for key, parts in found.items()}


def ratios(times: Tensor, above: Tensor, below: Tensor) -> Tensor:
    """Of each resample, the sum of `above` over that of `below`, both [windows]; NaN without any.

    With `below` all 1 that is a mean over windows. A window whose `above` is NaN has no part in it.
    """
    there = ~above.isnan()
    sums = times @ torch.where(there, above, 0.0)
    counted = times @ (below * there)
    return torch.where(counted > 0, sums / counted.clamp_min(1e-300), torch.nan)


def interval(value: float, drawn: Tensor) -> Interval:
    """A metric with the central 95% of its resamples; the value itself where there are none."""
    known = drawn[~drawn.isnan()]
    if not len(known):
        return Interval(value, value, value)
    tails = torch.tensor([(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], dtype=torch.double)
    low, high = known.quantile(tails).tolist()
    return Interval(value, low, high)
