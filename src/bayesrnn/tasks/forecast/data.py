"""From series to what a forecaster learns from: its layout, its tensors, and its slices in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from bayesrnn.data.batches import EpochBatches, shuffling
from bayesrnn.data.series import MONTHS, SECONDS, Floats, Frequency, Series, SeriesSet
from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.tasks.forecast.calendar import calendar_inputs
from bayesrnn.tasks.forecast.layout import (
    Layout,
    usual_context,
    usual_differences,
    usual_lags,
)
from bayesrnn.tasks.forecast.panel import Panel, filled, make_panel
from bayesrnn.tasks.forecast.slices import Places, Slices, make_slices
from bayesrnn.tasks.forecast.windows import Windows, cut_windows

#: Steps that are forecast where the user does not say, by the unit of the grid.
_HORIZONS: Final = {
    "second": 60,
    "minute": 60,
    "hour": 24,
    "day": 28,
    "business-day": 20,
    "week": 12,
    "month": 12,
    "quarter": 8,
    "year": 4,
}
_NO_DATES = 24
#: A daily series knows how it was a year ago once it is three years long.
_YEARLY_FROM: Final = 3 * 366
#: Counts are small whole numbers; larger ones are as good as continuous.
_LARGEST_COUNT_MEAN: Final = 10.0
_CATEGORIES: Final = 50
#: The error of another base, as a share of the seasonal one's, below which it is taken.
_CLEARLY: Final = 0.75


@dataclass(frozen=True)
class Wishes:
    """What the user said of the forecaster; None or `auto` is decided by the training part."""

    horizon: int | None = None
    context: int | None = None
    lags: tuple[int, ...] | None = None
    base: str = "auto"
    likelihood: str = "auto"
    non_negative: str = "auto"
    valid: int | None = None
    calibration: int | None = None
    test: int | None = None


@dataclass(frozen=True)
class ForecastData:
    """Series, cut into parts in time."""

    series: SeriesSet
    layout: Layout
    panel: Panel
    slices: Slices

    def windows(self, places: Places) -> Windows:
        """The windows that start at these places."""
        device = self.panel.values.device
        return cut_windows(self.panel, places.series.to(device), places.starts.to(device))

    def places(self, part: str) -> Places:
        """Where the windows of a part start: valid, calibration or test.

        Of train, places a horizon apart from the end of the part.
        """
        if part != "train":
            return self.slices.of(part)
        places, stops = self.slices.train(), self.slices.train_stops
        apart = (stops[places.series] - places.starts) % self.slices.horizon == 0
        return Places(places.series[apart], places.starts[apart])

    def split(self, part: str) -> Windows:
        """The windows of a part."""
        return self.windows(self.places(part))

    def of_others(self, series: SeriesSet) -> ForecastData:
        """Other series for the same network, with as many windows in each part."""
        require_suits(series, self.layout)
        lengths = torch.tensor([len(one.target) for one in series.series])
        slices = replace(self.slices, lengths=lengths)
        return ForecastData(series, self.layout, make_panel(series, self.layout), slices)

    def to(self, device: torch.device) -> ForecastData:
        """The same with its tensors on a device."""
        return replace(self, panel=self.panel.to(device))


def prepare(series: SeriesSet, wishes: Wishes) -> ForecastData:
    """Decide on the layout by the training part, the base by the validation windows, and make the
    tensors."""
    horizon = wishes.horizon or usual_horizon(series.frequency)
    season = max(series.season, 1)
    lengths = torch.tensor([len(one.target) for one in series.series])
    given = {"valid": wishes.valid, "calibration": wishes.calibration, "test": wishes.test}
    slices = make_slices(lengths, horizon, season + 2, given)
    stops = slices.train_stops.tolist()
    past = [one.target[:stop] for one, stop in zip(series.series, stops, strict=True)]
    values = np.concatenate(past)
    values = values[~np.isnan(values)]
    if not len(values):
        raise CorpusError(
            f"the longest series has {int(lengths.max())} values, and validation and test, in "
            f"windows of {horizon}, leave none to train on; give longer series, a smaller "
            "--horizon, or fewer --validation-windows and --test-windows"
        )
    likelihood = _likelihood(wishes, values)
    base = wishes.base
    if likelihood == "negative-binomial" and base in ("seasonal", "last"):
        raise ConfigError(
            f"--base is {base}, but counts of --likelihood negative-binomial have no base; give "
            "--base none, or leave it out"
        )
    if base == "auto":
        is_count = likelihood == "negative-binomial"
        base = "none" if is_count else chosen_base(series, slices, season)
    seasons = tuple(sorted({*series.seasons, season} - {1})) or (season,)
    seasons = tuple(one for one in seasons if 3 * one <= max(stops)) or (season,)
    daily = series.frequency is not None and (series.frequency.unit, series.frequency.step) == (
        "day",
        1,
    )
    yearly = daily and not (series.frequency and series.frequency.closed)
    layout = Layout(
        frequency=str(series.frequency or ""),
        base=base,
        likelihood=likelihood,
        horizon=horizon,
        context=wishes.context or usual_context(season),
        season=season,
        seasons=seasons,
        lags=wishes.lags or usual_lags(season, seasons),
        differences=usual_differences(season, seasons, yearly and max(stops) >= _YEARLY_FROM),
        calendar=calendar_inputs(series.frequency, season, max(stops)),
        non_negative=_non_negative(wishes.non_negative, values),
    )
    layout = replace(layout, **_covariates(series.series, stops))
    return ForecastData(series, layout, make_panel(series, layout), slices)


def require_suits(series: SeriesSet, layout: Layout) -> None:
    """Refuse series that a trained forecaster cannot read."""
    step = str(series.frequency or "")
    if step != layout.frequency:
        raise CorpusError(
            f"the series have a step of {step or 'no date'}, but the run was trained on steps of "
            f"{layout.frequency or 'no date'}; give series with the same step"
        )
    short = [one.name for one in series.series if len(one.target) < layout.fewest]
    if short:
        raise CorpusError(
            f"{len(short)} of the series are too short, such as {short[0]}: a forecast needs at "
            f"least {layout.fewest} values before it; leave them out"
        )


def usual_horizon(frequency: Frequency | None) -> int:
    """A day of hours, four weeks of days, a year of months."""
    if frequency is None:
        return _NO_DATES
    if frequency.unit in MONTHS or not frequency.seconds:
        return max(1, _HORIZONS[frequency.unit] // frequency.step)
    day = SECONDS["day"]
    if frequency.seconds < day and frequency.unit in ("minute", "hour"):
        return max(1, min(day // frequency.seconds, 96))
    return max(1, _HORIZONS[frequency.unit] // frequency.step)


def chosen_base(series: SeriesSet, slices: Slices, season: int) -> str:
    """The base that by itself forecasts the validation windows best.

    That is the season before, the last value, or the mean of the last seasons (`none`); errors are
    in units of each series' own seasonal difference. A network learns a level or a trend more
    easily than a season, so that another base has to be clearly better than the seasonal one.
    """
    if season == 1:
        return "last"
    places = slices.of("valid")
    errors: dict[str, list[float]] = {"seasonal": [], "last": [], "none": []}
    rows = {int(number) for number in places.series}
    gaps_filled = {number: filled(series.series[number].target, season) for number in rows}
    steps = np.arange(slices.horizon)
    for number, start in zip(places.series.tolist(), places.starts.tolist(), strict=True):
        values = gaps_filled[number]
        past, truth = values[:start], series.series[number].target[start:][: slices.horizon]
        unit = float(np.abs(past[season:] - past[:-season]).mean())
        if not unit or np.isnan(truth).all():
            continue
        forecasts = {
            "seasonal": past[start - season + steps % season],
            "last": past[-1],
            "none": past[-4 * season :].mean(),
        }
        for name, forecast in forecasts.items():
            errors[name].append(float(np.nanmean(np.abs(truth - forecast))) / unit)
    means = {name: float(np.mean(found)) if found else 0.0 for name, found in errors.items()}
    best = min(means, key=means.__getitem__)
    return best if means[best] < _CLEARLY * means["seasonal"] else "seasonal"


def _likelihood(wishes: Wishes, values: Floats) -> str:
    is_count = bool((values >= 0).all() and (values == np.round(values)).all())
    if wishes.likelihood == "auto":
        small = is_count and values.mean() < _LARGEST_COUNT_MEAN
        return "negative-binomial" if small else "student-t"
    if wishes.likelihood == "negative-binomial" and not is_count:
        raise ConfigError(
            "--likelihood is negative-binomial, which is for counts, but there are values below 0 "
            "or with a fraction; give --likelihood student-t"
        )
    return wishes.likelihood


def _non_negative(wish: str, values: Floats) -> bool:
    if wish == "yes" and (values < 0).any():
        raise ConfigError(
            f"--non-negative is yes, but there are values below 0, such as {values.min():g}; leave "
            "it out"
        )
    return wish == "yes" or (wish == "auto" and not (values < 0).any())


def _covariates(series: Sequence[Series], stops: Sequence[int]) -> dict[str, Any]:
    """Names, and what standardises them: mean and standard deviation of the training parts."""
    first = series[0]
    centres: dict[str, float] = {}
    widths: dict[str, float] = {}
    categories: dict[str, tuple[str, ...]] = {}
    rows: dict[str, list[Floats]] = {}
    for one, stop in zip(series, stops, strict=True):
        for name, values in {**one.known, **one.past}.items():
            rows.setdefault(name, []).append(values[:stop])
        for name, value in one.static.items():
            if isinstance(value, str):
                categories[name] = tuple(sorted({*categories.get(name, ()), value}))
            else:
                rows.setdefault(name, []).append(np.array([float(value)]))
    for name, of_series in rows.items():
        values = np.concatenate(of_series)
        values = values[~np.isnan(values)]
        centres[name] = float(values.mean()) if len(values) else 0.0
        widths[name] = float(values.std()) or 1.0 if len(values) else 1.0
    # A text that is another one for each series tells nothing that could be learnt.
    told = [
        n for n, of in categories.items() if len(of) <= _CATEGORIES and 2 * len(of) <= len(series)
    ]
    static = [n for n in first.static if n not in categories or n in told]
    return {
        "known": tuple(first.known),
        "past": tuple(first.past),
        "static": tuple(static),
        "centres": centres,
        "widths": widths,
        "categories": {name: categories[name] for name in told},
    }


class WindowBatches(EpochBatches[Windows]):
    """Windows of the training part at random, side by side: a pure function of seed and epoch.

    An epoch is so many windows, of which there may be more, or fewer. `passes` says how often it
    meets each value that there is to learn from.
    """

    def __init__(
        self, data: ForecastData, batch_size: int, windows: int, seed: int, epoch: int
    ) -> None:
        super().__init__(max(1, windows // batch_size), batch_size, steps=1)
        self._data = data
        self._places = data.slices.train()
        drawn = torch.randint(
            len(self._places.series),
            (len(self), batch_size),
            generator=shuffling(seed, epoch),
        )
        self._chosen = drawn
        lengths = self._targets(drawn.flatten())
        self.passes = float(lengths.sum()) / max(1, training_targets(data))
        self._lengths = lengths.view(drawn.shape).double().mean(1).clamp_min(1.0)

    def length(self, number: int) -> float:
        """How many values each window of a minibatch has, on average."""
        return float(self._lengths[number])

    def part(self, number: int, sequences: slice) -> Windows:
        """Some windows of a minibatch."""
        return self._data.windows(self._of(self._chosen[number, sequences]))

    def _of(self, chosen: Tensor) -> Places:
        return Places(self._places.series[chosen], self._places.starts[chosen])

    def _targets(self, chosen: Tensor) -> Tensor:
        series, starts = self._of(chosen)
        layout, panel = self._data.layout, self._data.panel
        return panel.scored(series, starts - layout.context, starts + layout.horizon)


def training_targets(data: ForecastData) -> int:
    """The values of the training part that can be learnt from."""
    stops = data.slices.train_stops
    numbers = torch.arange(len(stops))
    return int(data.panel.scored(numbers, torch.zeros_like(stops), stops).sum())
