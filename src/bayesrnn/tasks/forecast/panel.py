"""All series of a set as tensors, in one long row each of values, calendar and covariates."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor

from bayesrnn.data.series import Floats, Places, Series, SeriesSet
from bayesrnn.errors import CorpusError
from bayesrnn.tasks.forecast.calendar import calendar_values
from bayesrnn.tasks.forecast.layout import Layout

_SMALL: Final = 1e-9


@dataclass(frozen=True)
class Panel:
    """The series, one after the other; each has `reach` places before its first, and `horizon`
    after its last value.

    values: float64 [places]; what is missing is filled by the value a season before.
    observed: whether there is a value. exists: whether the series has begun.
    inputs: float32 [places, n]: calendar and covariates, in the order of the network's inputs.
    offsets, lengths: int64 [series], the place of a series' first value, and its values.
    """

    layout: Layout
    names: tuple[str, ...]
    values: Tensor
    observed: Tensor
    exists: Tensor
    inputs: Tensor
    offsets: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    def to(self, device: torch.device) -> Panel:
        """The same on a device."""
        parts: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        made: dict[str, Any] = {
            n: of.to(device) if isinstance(of, Tensor) else of for n, of in parts.items()
        }
        return Panel(**made)

    @cached_property
    def scored_before(self) -> Tensor:
        """How many values lie before each place, int64 [places + 1], that a base a season ago has.

        These are what is learnt from.
        """
        has_base = torch.zeros_like(self.exists)
        has_base[self.layout.season :] = self.exists[: -self.layout.season]
        counts = (self.observed & has_base).long().cumsum(0).cpu()
        return torch.cat([counts.new_zeros(1), counts])

    def scored(self, series: Tensor, first: Tensor, stop: Tensor) -> Tensor:
        """How many such values series have from their place `first` up to `stop`."""
        offsets = self.offsets.cpu()[series]
        return self.scored_before[offsets + stop] - self.scored_before[offsets + first]


def make_panel(series: SeriesSet, layout: Layout) -> Panel:
    """The tensors of a set of series, for a network of this layout."""
    parts = [_one(series, one, layout) for one in series.series]
    lengths = torch.tensor([len(one.target) for one in series.series])
    padded = lengths + layout.reach + layout.horizon
    offsets = padded.cumsum(0) - padded + layout.reach
    values, observed, exists, inputs = (
        torch.from_numpy(np.concatenate(of)) for of in zip(*parts, strict=True)
    )
    names = tuple(one.name for one in series.series)
    return Panel(layout, names, values, observed, exists, inputs.float(), offsets, lengths)


def _one(series: SeriesSet, one: Series, layout: Layout) -> tuple[Floats, ...]:
    before, after = layout.reach, layout.horizon
    present = ~np.isnan(one.target)
    if not present.any():
        raise CorpusError(f"the series {one.name} has no value; leave it out")
    first = int(present.argmax())
    values = filled(one.target, layout.season)
    exists = np.arange(len(values)) >= first

    return (
        np.pad(values, (before, after)),
        np.pad(present, (before, after)),
        # A series goes on after its last value.
        np.pad(exists, ((before, after)), constant_values=((False, True),)),
        np.concatenate([_calendar(series, one, layout), _covariates(one, layout)], axis=1),
    )


def _calendar(series: SeriesSet, one: Series, layout: Layout) -> Floats:
    before, count = layout.reach, len(one.target) + layout.horizon
    found = calendar_values(
        layout.calendar, series.frequency, layout.season, one, -before, before + count
    )
    return found.astype(np.float32)


def _covariates(one: Series, layout: Layout) -> Floats:
    """Known ones, past ones with a place for whether they are there, and static ones."""
    length, count = len(one.target), layout.reach + len(one.target) + layout.horizon
    columns: list[Floats] = []
    for name in (*layout.known, *layout.past):
        is_past = name in layout.past
        given = covariate(one, name, "past" if is_past else "known")
        row = np.zeros(count)
        there = np.zeros(count)
        # A past covariate is known one step late.
        start = layout.reach + is_past
        values = standardised(given[: length + (0 if is_past else layout.horizon)], name, layout)
        values = values[: count - start]
        row[start : start + len(values)] = np.nan_to_num(values)
        there[start : start + len(values)] = ~np.isnan(values)
        columns += [row, there] if is_past else [row]
    for name in layout.static:
        categories = (layout.categories or {}).get(name)
        value = one.static.get(name)
        if categories is None:
            number = standardised(np.array([float(value or 0.0)]), name, layout)[0]
            columns.append(np.full(count, number))
        else:
            columns += [np.full(count, float(value == category)) for category in categories]
    return np.stack(columns, 1).astype(np.float32) if columns else np.zeros((count, 0), np.float32)


def covariate(series: Series, name: str, kind: Literal["known", "past"]) -> Floats:
    """The values of a covariate that a series has to have."""
    given = (series.known if kind == "known" else series.past).get(name)
    if given is None:
        raise CorpusError(f"the series {series.name} has no {kind} covariate {name}")
    return given


def standardised(values: Floats, name: str, layout: Layout) -> Floats:
    """A covariate with the mean and standard deviation of the training data at 0 and 1."""
    centre, width = (layout.centres or {})[name], (layout.widths or {})[name]
    return (values - centre) / max(width, _SMALL)


def filled(values: Floats, season: int) -> Floats:
    """What is missing replaced by the value a season before, or by the last one before it.

    Nothing is taken from what comes after. Before the first value there are zeros.
    """
    made = np.array(values, dtype=np.float64)
    missing: Places = np.flatnonzero(np.isnan(made))
    for place in missing:
        source = place - season if place >= season else place - 1
        made[place] = made[source] if place else 0.0
    return made
