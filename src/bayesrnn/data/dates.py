"""Texts to dates, in the formats that tables come with."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from bayesrnn.data.series import Places, Stamps
from bayesrnn.errors import ConfigError

_CLOCK = (
    r"(?:[T ]+(?P<H>\d{1,2})(?::(?P<M>\d\d)(?::(?P<S>\d\d)(?:[.,]0+)?)?)?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?)?"
)
_ZONE = r"(?: ?(?P<zone>Z|UTC|[+-]\d\d:?\d\d))?"
_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_NAME = rf"(?P<name>{'|'.join(_MONTHS)})[a-z]*\.?"

#: Each way to write a date, the commonest first.
_FORMATS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?P<y>\d{4})-(?P<m>\d{1,2})(?:-(?P<d>\d{1,2}))?" + _CLOCK + _ZONE,
        r"(?P<y>1[5-9]\d\d|2[01]\d\d)(?P<m>\d\d)(?P<d>\d\d)" + _CLOCK,
        r"(?P<y>\d{4})([/.])(?P<m>\d{1,2})(?:\2(?P<d>\d{1,2}))?" + _CLOCK,
        r"(?P<y>\d{4})[ -]?Q(?P<q>[1-4])",
        r"Q(?P<q>[1-4])[ -]?(?P<y>\d{4})",
        r"(?P<y>\d{4})[ -]?W(?P<w>\d{1,2})",
        r"(?P<y>\d{4})[ -]" + _NAME,
        _NAME + r"[ -](?P<y>\d{4})",
        r"(?P<d>\d{1,2})[ -]" + _NAME + r"[ -](?P<y>\d{4})" + _CLOCK,
        _NAME + r" (?P<d>\d{1,2}),? (?P<y>\d{4})" + _CLOCK,
        r"(?P<m>\d{1,2})[/.-](?P<y>\d{4})",
    )
)
_TWO_NUMBERS = re.compile(r"(?P<a>\d{1,2})([/.-])(?P<b>\d{1,2})\2(?P<y>\d{4}|\d\d)" + _CLOCK)
_EPOCH = re.compile(r"\d{9,10}|\d{12,13}")
_YEAR = re.compile(r"1[5-9]\d\d|2[01]\d\d")

_NAT = np.iinfo(np.int64).min


class Dates(NamedTuple):
    """Dates of texts, NaT where one is none.

    other: the dates with day and month exchanged, where both readings are possible.
    """

    stamps: Stamps
    other: Stamps | None = None
    note: str = ""


def parse_dates(texts: Sequence[str], numbers: bool = False) -> Dates:
    """The dates of different texts; `numbers` also takes years and seconds since 1970.

    The format is that of the first text that has one, for all: a second format in one column would
    be a guess for each row.
    """
    texts = [text.strip() for text in texts]
    sample = next((text for text in texts if text), "")
    if numbers and _EPOCH.fullmatch(sample):
        return Dates(_each(texts, _epoch))
    if numbers and _YEAR.fullmatch(sample):
        years = [int(text) if _YEAR.fullmatch(text) else None for text in texts]
        return Dates(_stamps([None if year is None else _seconds(year) for year in years]))
    if _TWO_NUMBERS.fullmatch(sample):
        return _two_numbers(texts)
    for pattern in _FORMATS:
        if pattern.fullmatch(sample) and _of_match(pattern.fullmatch(sample)) is not None:
            return _with_zones(texts, pattern)
    return Dates(np.full(len(texts), "NaT", dtype="datetime64[s]"))


def formatted_dates(texts: Sequence[str], date_format: str) -> Dates:
    """Dates written as `date_format` says, in the letters of strftime."""

    def one(text: str) -> int | None:
        try:
            read = datetime.datetime.strptime(text.strip(), date_format)
        except ValueError:
            return None
        return _seconds(read.year, read.month, read.day, read.hour, read.minute, read.second)

    if "%" not in date_format:
        raise ConfigError(
            f"--date-format {date_format!r} has no %; write it like %d/%m/%Y %H:%M, with %Y year, "
            "%m month, %d day, %H hour, %M minute, %S second"
        )
    try:
        return Dates(_each(texts, one))
    except re.error as error:
        raise ConfigError(f"--date-format {date_format!r} cannot be used: {error}") from None


def dates_of_parts(
    year: Places, month: Places | int = 1, day: Places | int = 1, hour: Places | int = 0
) -> Stamps:
    """Dates of columns of their own, NaT where there is no such hour."""
    months = (year - 1970) * 12 + (month - 1)
    days = months.astype("datetime64[M]").astype("datetime64[D]") + (day - 1)
    in_month = days.astype("datetime64[M]").astype(np.int64) == months
    is_there = in_month & (month >= 1) & (month <= 12) & (hour >= 0) & (hour <= 23)
    stamps = days.astype("datetime64[s]") + np.asarray(hour * 3600, dtype="timedelta64[s]")
    return np.where(is_there, stamps, np.datetime64("NaT", "s"))


def clock_seconds(texts: Sequence[str]) -> Places | None:
    """Seconds since midnight of texts like 13:30; None if one is no time of day."""
    found = [re.fullmatch(r"(\d{1,2}):(\d\d)(?::(\d\d))?", text.strip()) for text in texts]
    if not all(found):
        return None
    parts = [tuple(int(part or 0) for part in match.groups()) for match in found if match]
    return np.array([hour * 3600 + minute * 60 + second for hour, minute, second in parts])


def _with_zones(texts: Sequence[str], pattern: re.Pattern[str]) -> Dates:
    """Dates of one format; of one zone they keep its clock, of several they become UTC."""
    matches = [pattern.fullmatch(text) for text in texts]
    stamps = _stamps([_of_match(match) for match in matches])
    if "zone" not in pattern.groupindex:
        return Dates(stamps)
    zones = [match["zone"] for match in matches if match]
    if len(set(zones)) == 1:
        return Dates(stamps, None, f"times are of the zone {zones[0]}" if zones[0] else "")
    offsets = np.array([_offset(match["zone"]) if match else 0 for match in matches])
    return Dates(stamps - offsets.astype("timedelta64[s]"), None, "times are turned into UTC")


def _offset(zone: str | None) -> int:
    if zone is None or zone.upper() in ("Z", "UTC"):
        return 0
    sign = -1 if zone[0] == "-" else 1
    return sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)


def _two_numbers(texts: Sequence[str]) -> Dates:
    """Dates like 3/4/2024: day first or month first, whichever is possible for all."""
    matches = [_TWO_NUMBERS.fullmatch(text) for text in texts]
    day_first, month_first = (
        _stamps([_of_match(match, day=day, month=month) for match in matches])
        for day, month in (("a", "b"), ("b", "a"))
    )
    wrong = [int(np.isnat(stamps).sum()) for stamps in (day_first, month_first)]
    if wrong[0] != wrong[1]:
        return Dates(day_first if wrong[0] < wrong[1] else month_first)
    return Dates(day_first) if (day_first == month_first).all() else Dates(day_first, month_first)


def _of_match(match: re.Match[str] | None, day: str = "d", month: str = "m") -> int | None:
    """Seconds since 1970 of the parts of a date; None if there is no such day."""
    if match is None:
        return None
    found = {name: part for name, part in match.groupdict().items() if part is not None}
    year = int(found["y"])
    if len(found["y"]) == 2:
        year += 2000 if year < 70 else 1900
    if "w" in found:
        try:
            monday = datetime.date.fromisocalendar(year, int(found["w"]), 1)
        except ValueError:
            return None
        return _seconds(monday.year, monday.month, monday.day)
    if "q" in found:
        number = 3 * int(found["q"]) - 2
    elif "name" in found:
        number = _MONTHS.index(found["name"].lower()) + 1
    else:
        number = int(found[month])
    hour = int(found.get("H", 0))
    if "half" in found:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found["half"].lower() == "p" else 0)
    clock = (hour, int(found.get("M", 0)), int(found.get("S", 0)))
    return _seconds(year, number, int(found.get(day, 1)), *clock)


def _epoch(text: str) -> int | None:
    if not _EPOCH.fullmatch(text):
        return None
    seconds, rest = divmod(int(text), 1000) if len(text) > 10 else (int(text), 0)
    return None if rest else seconds


def _seconds(
    year: int, month: int = 1, day: int = 1, hour: int = 0, minute: int = 0, second: int = 0
) -> int | None:
    """Seconds since 1970; 24:00 is the midnight after."""
    late = 86400 if (hour, minute, second) == (24, 0, 0) else 0
    try:
        at = datetime.datetime(year, month, day, hour % 24 if late else hour, minute, second)
    except ValueError:
        return None
    return (at - datetime.datetime(1970, 1, 1)) // datetime.timedelta(seconds=1) + late


def _each(texts: Sequence[str], one: Callable[[str], int | None]) -> Stamps:
    return _stamps([one(text) for text in texts])


def _stamps(seconds: Sequence[int | None]) -> Stamps:
    filled = [_NAT if second is None else second for second in seconds]
    return np.array(filled, dtype=np.int64).astype("datetime64[s]")
