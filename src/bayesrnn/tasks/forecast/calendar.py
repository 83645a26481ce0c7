"""The calendar as inputs: where in the day, the week and the year a place of the grid is."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from bayesrnn.data.series import MONTHS, SECONDS, Floats, Frequency, Series

_DAY, _WEEK = SECONDS["day"], SECONDS["week"]
_YEAR_DAYS = 365.2425
#: Waves in a day, a year and a season without dates.
_DAY_WAVES, _YEAR_WAVES, _SEASON_WAVES = 6, 4, 3
#: A year has to be seen twice before its course can be learnt.
_YEARS: Final = 2


def calendar_inputs(frequency: Frequency | None, season: int, longest: int) -> tuple[str, ...]:
    """The names of the inputs that suit a frequency, where the longest series is `longest`."""
    if frequency is None:
        waves = min(_SEASON_WAVES, season // 2)
        return _waves("season", waves)
    if frequency.unit in MONTHS:
        months = MONTHS[frequency.unit] * frequency.step
        return tuple(f"month {month}" for month in range(12)) if months < 12 else ()
    length = frequency.seconds
    names: list[str] = []
    if length < _DAY:
        names += _waves("day", min(_DAY_WAVES, _DAY // length // 2))
    if length < _WEEK:
        names += [f"weekday {day}" for day in range(7)]
    if longest * length >= _YEARS * _YEAR_DAYS * _DAY:
        names += _waves("year", _YEAR_WAVES)
    return tuple(names)


def calendar_values(
    names: Sequence[str],
    frequency: Frequency | None,
    season: int,
    series: Series,
    first: int,
    count: int,
) -> Floats:
    """The inputs [count, names] at the places first, ... of a series."""
    if not names:
        return np.zeros((count, 0))
    if frequency is None:
        turns: dict[str, Any] = {
            "season": (np.arange(first, first + count) + series.number) / season
        }
    else:
        stamps = frequency.stamps(series.start, first, count)
        days = stamps.astype("datetime64[D]")
        months = stamps.astype("datetime64[M]")
        seconds = (stamps - days).astype("timedelta64[s]").astype(np.int64)
        of_year = (stamps - stamps.astype("datetime64[Y]")).astype("timedelta64[s]")
        turns = {
            "day": seconds / _DAY,
            "year": of_year.astype(np.int64) / (_YEAR_DAYS * _DAY),
            "weekday": (days.astype(np.int64) + 3) % 7,
            "month": months.astype(np.int64) % 12,
        }
    return np.stack([_values(name, turns) for name in names], axis=1)


def _values(name: str, turns: Mapping[str, Any]) -> Floats:
    kind, *rest = name.split()
    if kind in ("weekday", "month"):
        there: Floats = (turns[kind] == int(rest[0])).astype(np.float64)
        return there
    wave = np.sin if rest[0] == "sin" else np.cos
    found: Floats = wave(2 * math.pi * int(rest[1]) * turns[kind])
    return found


def _waves(kind: str, count: int) -> tuple[str, ...]:
    return tuple(f"{kind} {wave} {n}" for n in range(1, count + 1) for wave in ("sin", "cos"))
