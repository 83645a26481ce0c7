"""Time series on a regular grid of dates: what every reader gives and every forecaster takes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bayesrnn.errors import ConfigError

Floats: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.int64]
Stamps: TypeAlias = NDArray[np.datetime64]

#: Seconds of the units whose length is always the same, and months of the others.
SECONDS: Final = {
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86400,
    "business-day": 86400,
    "week": 7 * 86400,
}
MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
UNITS: Final = (*SECONDS, *MONTHS)
WEEK: Final = 7 * 86400

_WEEKEND = (5, 6)
#: From the Monday before 1970 to its first day, in seconds: phases are counted from Mondays.
_FROM_MONDAY = 3 * 86400


@dataclass(frozen=True)
class Frequency:
    """How far the places of a grid lie apart: `step` units.

    closed: the phases of the week that the grid leaves out, such as nights or Sundays, counted in
        steps from Monday, 00:00. Business days leave out Saturdays and Sundays by themselves.
    """

    unit: str
    step: int = 1
    closed: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ConfigError(f"{self.unit!r} is no unit of time; there are: {', '.join(UNITS)}")
        if self.step < 1:
            raise ConfigError(f"a frequency of {self.step} {self.unit}s is not possible; give 1")
        if self.closed and (not self.phases or not set(self.closed) < set(range(self.phases))):
            raise ConfigError(
                f"the closed phases {list(self.closed)[:5]} are none, or all, of a week in "
                f"steps of {self.words}"
            )

    def __str__(self) -> str:
        """The step and what is closed, as `--freq` takes it back: "hour closed 0-7,20-31"."""
        runs = list[tuple[int, int]]()
        for phase in self.closed:
            last = runs.pop() if runs and runs[-1][1] == phase - 1 else (phase, phase)
            runs.append((last[0], phase))
        texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
        return f"{self.words} closed {','.join(texts)}" if texts else self.words

    @property
    def words(self) -> str:
        """The step: "hour", "30 minutes"."""
        return self.unit if self.step == 1 else f"{self.step} {self.unit}s"

    @property
    def seconds(self) -> int:
        """The length of a step; 0 where it differs from step to step."""
        return 0 if self.unit in MONTHS else SECONDS[self.unit] * self.step

    @property
    def phases(self) -> int:
        """How many steps a week has; 0 where that is no whole number above 1."""
        if self.unit == "business-day":
            return 7
        whole = self.seconds and self.seconds < WEEK and WEEK % self.seconds == 0
        return WEEK // self.seconds if whole else 0

    @property
    def open_phases(self) -> Places:
        """The phases of the week that the grid has, in order."""
        weekend = _WEEKEND if self.unit == "business-day" else ()
        return np.setdiff1d(np.arange(self.phases), np.array([*self.closed, *weekend], dtype=int))

    def phase(self, stamps: Any) -> Places:
        """The phase of the week of each stamp, 0 from Monday, 00:00."""
        length = SECONDS["day"] if self.unit == "business-day" else self.seconds
        phase: Places = (_seconds(stamps) + _FROM_MONDAY) // length % self.phases
        return phase

    def stamps(self, start: Any, first: int, count: int) -> Stamps:
        """The dates of the places first, ..., first + count - 1 counted from `start`."""
        places = np.arange(first, first + count, dtype=np.int64)
        if self.unit in MONTHS:
            return _months_later(start, places * MONTHS[self.unit] * self.step)
        start_seconds = _seconds(start)
        if not self._has_phases:
            return _dates(start_seconds + places * self.seconds)
        steps = places * (self.step if self.unit == "business-day" else 1)
        ordinal, rest = self._open_ordinal(start_seconds)
        week, rank = np.divmod(ordinal + steps, len(self.open_phases))
        ticks = week * self.phases + self.open_phases[rank]
        length = WEEK // self.phases
        return _dates(ticks * length + rest - _FROM_MONDAY)

    def place(self, start: Any, stamps: Any) -> Places:
        """The place of each stamp counted from `start`; -1 where it is before that or off the grid.

        Of months, quarters and years the day does not count: month ends are as regular as first
        days. `start` may be one date, or one for each stamp.
        """
        if self.unit in MONTHS:
            apart = _month(stamps) - _month(start)
            place, rest = np.divmod(apart, MONTHS[self.unit] * self.step)
            return np.where((rest == 0) & (place >= 0), place, -1)
        seconds, start_seconds = _seconds(stamps), _seconds(start)
        if not self._has_phases:
            place, rest = np.divmod(seconds - start_seconds, self.seconds)
            return np.where((rest == 0) & (place >= 0), place, -1)
        (there, there_rest), (here, here_rest) = map(self._open_ordinal, (seconds, start_seconds))
        place, rest = np.divmod(there - here, self.step if self.unit == "business-day" else 1)
        is_there = (there_rest == here_rest) & (rest == 0) & (place >= 0)
        is_open = np.isin(self.phase(stamps), self.open_phases)
        return np.where(is_there & is_open, place, -1)

    @property
    def _has_phases(self) -> bool:
        return bool(self.closed) or self.unit == "business-day"

    def _open_ordinal(self, seconds: Places) -> tuple[Places, Places]:
        """The number of each stamp among all open places, and its seconds after the step."""
        ticks, rest = np.divmod(seconds + _FROM_MONDAY, WEEK // self.phases)
        week, phase = np.divmod(ticks, self.phases)
        return week * len(self.open_phases) + np.searchsorted(self.open_phases, phase), rest


@dataclass(frozen=True)
class Series:
    """One series and its covariates.

    start: the date of the first value, datetime64[s]; NaT where there are no dates.
    target: float64 [time], NaN where a value is missing.
    known: covariates known ahead, [time] or longer. past: those known only up to now, [time].
    static: what does not change with time.
    number: without dates, the number of the first value.
    """

    name: str
    start: np.datetime64
    target: Floats
    known: Mapping[str, Floats] = field(default_factory=dict)
    past: Mapping[str, Floats] = field(default_factory=dict)
    static: Mapping[str, str | float] = field(default_factory=dict)
    number: int = 1


@dataclass(frozen=True)
class SeriesSet:
    """Series that share a frequency.

    frequency: None where there are no dates, but numbers or the order of rows.
    season: the values after which a series repeats itself best; 1 if it does not.
    seasons: the candidates for it, the shortest first.
    description: the line "Read as ...". notes: what the user should know besides.
    stride: without dates, how far the numbers of successive values are apart.
    """

    series: tuple[Series, ...]
    frequency: Frequency | None
    season: int
    seasons: tuple[int, ...]
    description: str = ""
    notes: tuple[str, ...] = ()
    stride: int = 1

    def fingerprint(self) -> str:
        """A hash of names, dates, values and covariates, not of where they were read."""
        digest = hashlib.sha256(repr((self.frequency, self.season)).encode())
        for one in self.series:
            head = (one.name, str(one.start), one.number, len(one.target))
            digest.update(repr((*head, sorted(one.static.items()))).encode())
            digest.update(_bytes(one.target))
            for kind, arrays in (("known", one.known), ("past", one.past)):
                for name, values in sorted(arrays.items()):
                    digest.update(repr((kind, name, len(values))).encode() + _bytes(values))
        return digest.hexdigest()

    def part(self, one: Series, first: int, stop: int) -> Series:
        """The places first, ..., stop - 1 of a series, as if there were no others."""
        start = one.start
        if self.frequency is not None:
            start = self.frequency.stamps(one.start, first, 1)[0]
        return replace(
            one,
            start=start,
            number=one.number + first * self.stride,
            target=one.target[first:stop],
            known={name: values[first:stop] for name, values in one.known.items()},
            past={name: values[first:stop] for name, values in one.past.items()},
        )

    def labels(self, one: Series, first: int, count: int) -> list[str]:
        """How files and tables name the places first, ... of a series: dates, or numbers."""
        if self.frequency is None:
            return [str(one.number + place * self.stride) for place in range(first, first + count)]
        stamps = self.frequency.stamps(one.start, first, count)
        of_days = self.frequency.unit in MONTHS or self.frequency.seconds % SECONDS["day"] == 0
        if of_days and _seconds(one.start) % SECONDS["day"] == 0:
            return [str(stamp) for stamp in stamps.astype("datetime64[D]")]
        return [str(stamp).replace("T", " ") for stamp in stamps]


def _bytes(values: Floats) -> bytes:
    """Bytes that are equal where the numbers are: there are several NaNs and two zeros."""
    plain = np.where(np.isnan(values), np.nan, values + 0.0)
    return np.ascontiguousarray(plain, dtype="<f8").tobytes()


def _seconds(stamps: Any) -> Any:
    return np.asarray(stamps, dtype="datetime64[s]").astype(np.int64)


def _dates(seconds: Places) -> Stamps:
    return seconds.astype("datetime64[s]")


def _month(stamps: Any) -> Any:
    return np.asarray(stamps, dtype="datetime64[M]").astype(np.int64)


def _months_later(start: Any, months: Places) -> Stamps:
    """The same day some months later, or the month's last; from a last day, always the last."""
    begin = np.asarray(start, dtype="datetime64[s]")
    first = begin.astype("datetime64[M]")
    day = (begin.astype("datetime64[D]") - first.astype("datetime64[D]")).astype(np.int64)
    targets = first + months
    lengths = _days_in(targets)
    days = np.minimum(lengths - 1, 31 if day == _days_in(first) - 1 else day)
    clock = begin - begin.astype("datetime64[D]").astype("datetime64[s]")
    whole: Stamps = (targets.astype("datetime64[D]") + days).astype("datetime64[s]") + clock
    return whole


def _days_in(months: Any) -> Any:
    after = (months + 1).astype("datetime64[D]") - months.astype("datetime64[D]")
    return after.astype(np.int64)
