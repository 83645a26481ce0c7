"""The frequency of dates: the commonest step, known to the calendar, that all others agree with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesrnn.data.series import MONTHS, SECONDS, WEEK, Frequency, Places, Stamps
from bayesrnn.errors import ConfigError, CorpusError

#: How frequencies may be written; numbers before them are steps.
_WORDS: Final = {
    **dict.fromkeys(("s", "sec"), "second"),
    **dict.fromkeys(("min", "t"), "minute"),
    "h": "hour",
    "d": "day",
    **dict.fromkeys(("b", "business day", "businessday"), "business-day"),
    "w": "week",
    **dict.fromkeys(("m", "ms", "me"), "month"),
    **dict.fromkeys(("q", "qs", "qe"), "quarter"),
    **dict.fromkeys(("y", "ys", "ye", "a"), "year"),
}
_SHOWN = 3
#: Equal long steps in a row that are another frequency and no gaps.
_RUN = 10
#: The share of all steps that they have to be, unless they are a series.
_PART = 0.1
#: The steps of whole months from which on a series among shorter steps is one of months.
_MONTHLY = 5
#: A phase is closed if values are there in at most this share of at least so many weeks,
#: while the open ones are there in most weeks.
_CLOSED, _WEEKS, _OPEN = 0.1, 4, 0.5


class Rows(NamedTuple):
    """Rows sorted by series and date.

    codes: the number of each row's series. names: of the series. source: for messages.
    """

    codes: Places
    stamps: Stamps
    names: Sequence[str]
    source: str


def named_frequency(text: str) -> Frequency:
    """The frequency that a user names: hour, 30 minutes, 15min, B, MS; or one that `str` wrote."""
    match = re.fullmatch(r"\s*(\d*)\s*([a-z -]+?)\s*(?:closed ([\d,-]+))?", text.lower())
    word = match[2] if match else ""
    unit = _WORDS.get(word, word.removesuffix("s"))
    if match is None or unit not in (*SECONDS, *MONTHS):
        raise ConfigError(
            f"--freq {text!r} is no frequency; give one like hour, 30 minutes, day, business-day, "
            "week, month, quarter or year"
        )
    closed = list[int]()
    for run in (match[3] or "").split(",") if match[3] else ():
        first, _, last = run.partition("-")
        if not first or int(first) >= WEEK or int(last or first) >= WEEK:
            raise ConfigError(f"--freq {text!r} has closed phases that are none: {run!r}")
        closed += range(int(first), int(last or first) + 1)
    return Frequency(unit, int(match[1] or 1), tuple(closed))


def find_frequency(rows: Rows) -> Frequency:
    """The commonest step within the series; all others have to be its multiples."""
    same = np.diff(rows.codes) == 0
    seconds: Places = rows.stamps.astype(np.int64)
    steps = np.diff(seconds)
    if not same.any():
        raise CorpusError(
            f"{rows.source} has no series with two dates, so no frequency can be seen; give longer "
            "series, or --freq"
        )
    months = _months(rows) if steps[same].min() >= 28 * SECONDS["day"] else None
    ticks: Places = steps if months is None else np.diff(months)
    step = _commonest(ticks[same])
    frequency = _of_seconds(step) if months is None else _of_months(step)
    wrong = np.flatnonzero(same & (ticks % step != 0))
    own = _of_seconds if months is None else _of_months
    if len(wrong) > _PART * same.sum() and len(wrong) >= _RUN:
        other = _commonest(ticks[wrong])
        first = wrong[ticks[wrong] == other][0]
        raise CorpusError(
            f"{rows.source} mixes frequencies: most dates are {_words(frequency)} apart, but "
            f"{len(wrong):,} are not, such as {_words(own(other))} {_at(rows, first, 'from ')}; "
            "give one file for each, or --freq"
        )
    if len(wrong):
        raise CorpusError(
            f"{rows.source}: most dates are {_words(frequency)} apart, but not "
            f"{_listed([_at(rows, place + 1) for place in wrong])}; correct or delete these rows, "
            "or give --freq"
        )
    _refuse_mixed(rows, same, ticks, step, frequency)
    if months is None:
        _refuse_months(rows, same, steps, frequency)
    return _business_days(rows) if frequency == Frequency("day") else frequency


def _months(rows: Rows) -> Places | None:
    """The month of each date, if all are at one time of its first, last or same day."""
    days = rows.stamps.astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    day = (days - months.astype("datetime64[D]")).astype(np.int64)
    left = ((months + 1).astype("datetime64[D]") - days).astype(np.int64)
    # Business months begin up to three days late and end up to three days early.
    if (day == day[0]).all() or (day <= 3).all() or (left <= 4).all():
        return months.astype(np.int64)
    # From the 29th to the 31st, February and short months have their last day.
    return months.astype(np.int64) if ((day == day.max()) | (left == 1)).all() else None


def _of_seconds(step: int) -> Frequency:
    unit = next(unit for unit in reversed(SECONDS) if step % SECONDS[unit] == 0)
    unit = "day" if unit == "business-day" else unit
    return Frequency(unit, step // SECONDS[unit])


def _of_months(step: int) -> Frequency:
    unit = next(unit for unit in reversed(MONTHS) if step % MONTHS[unit] == 0)
    return Frequency(unit, step // MONTHS[unit])


def _business_days(rows: Rows) -> Frequency:
    """Business days, if the dates go over two weeks and none is on a weekend."""
    phases = np.bincount(Frequency("day").phase(rows.stamps), minlength=7)
    long = rows.stamps.max() - rows.stamps.min() >= np.timedelta64(14, "D")
    return Frequency("business-day" if long and not phases[5:].any() else "day")


def _refuse_mixed(
    rows: Rows, same: NDArray[np.bool_], ticks: Places, step: int, frequency: Frequency
) -> None:
    """Refuse a series, or a part of one, that goes in longer steps of its own."""
    starts = np.flatnonzero(np.r_[True, (np.diff(ticks) != 0) | ~same[1:] | ~same[:-1]])
    lengths = np.diff(np.r_[starts, len(ticks)])
    long = (lengths >= _RUN) & same[starts] & (ticks[starts] > step)
    ends = starts + lengths
    whole = (starts == 0) | ~same[starts - 1]
    whole &= (ends == len(same)) | ~same[np.minimum(ends, len(same) - 1)]
    whole &= (ticks[starts] > step) & same[starts]
    # Gaps can be equal for a while: a part has to be large, or a whole series that is not short.
    much = lengths[long | whole].sum() > _PART * same.sum()
    found = starts[(long | whole) if much else (long & whole)]
    if not len(found):
        return
    own = _of_months if frequency.unit in MONTHS else _of_seconds
    listed = [
        f"{_words(own(int(ticks[place])))} {_at(rows, place, 'from ')}" for place in found[:_SHOWN]
    ]
    raise CorpusError(
        f"{rows.source} mixes frequencies: most dates are {_words(frequency)} apart, but "
        f"{_listed(listed, len(found))}; give one file for each, or --freq"
    )


def _refuse_months(
    rows: Rows, same: NDArray[np.bool_], steps: Places, frequency: Frequency
) -> None:
    """Refuse a series of months among shorter steps: theirs are not equal, and so no run of one."""
    firsts = np.flatnonzero(np.r_[True, ~same])
    stops = np.r_[firsts[1:], len(rows.codes)]
    apart = np.where(same, steps, steps.max())
    least = np.minimum.reduceat(np.r_[apart, steps.max()], firsts)
    for place in np.flatnonzero((least >= 28 * SECONDS["day"]) & (stops - firsts > _MONTHLY)):
        first, stop = int(firsts[place]), int(stops[place])
        own = rows._replace(codes=rows.codes[first:stop], stamps=rows.stamps[first:stop])
        months = _months(own)
        if months is None:
            continue
        words = _words(_of_months(int(np.gcd.reduce(np.diff(months)))))
        raise CorpusError(
            f"{rows.source} mixes frequencies: most dates are {_words(frequency)} apart, but those "
            f"{_at(rows, first, 'from ')} are {words} apart; give one file for each, or --freq"
        )


def with_closed_phases(frequency: Frequency, stamps: Stamps) -> Frequency:
    """The same without the phases of the week at which values are nearly never there.

    stamps: of the values that are there, of all series.
    """
    if not frequency.phases or frequency.seconds < SECONDS["minute"]:
        return frequency
    distinct = np.unique(stamps)
    weeks = (distinct.astype(np.int64) + 3 * SECONDS["day"]) // WEEK
    if not len(weeks) or (count := int(weeks[-1] - weeks[0]) + 1) < _WEEKS:
        return frequency
    phase = frequency.phase(distinct)
    seen = np.unique(weeks * frequency.phases + phase) % frequency.phases
    share = np.bincount(seen, minlength=frequency.phases) / count
    is_closed = share <= _CLOSED
    if frequency.unit == "business-day":
        is_closed[5:] = False
    is_open = np.setdiff1d(frequency.open_phases, np.flatnonzero(is_closed))
    if not is_closed.any() or not len(is_open) or np.median(share[is_open]) < _OPEN:
        return frequency
    closed = tuple(np.flatnonzero(is_closed).tolist())
    if frequency == Frequency("day") and closed == (5, 6):
        return Frequency("business-day")
    return Frequency(frequency.unit, frequency.step, closed)


def closed_words(frequency: Frequency) -> str:
    """Which phases are left out, in words; empty if none."""
    if not frequency.closed:
        return ""
    if frequency.phases == 7:
        days = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays")
        names = (*days, "Saturdays", "Sundays")
        return "no " + " or ".join(names[phase] for phase in frequency.closed)
    return f"{len(frequency.closed)} of {frequency.phases} phases of the week are closed"


def _commonest(steps: Places) -> int:
    values, counts = np.unique(steps, return_counts=True)
    return int(values[counts.argmax()])


def _words(frequency: Frequency) -> str:
    return f"{frequency.step} {frequency.unit}{'s' * (frequency.step > 1)}"


def _at(rows: Rows, place: Any, before: str = "") -> str:
    text = before + str(rows.stamps[place]).replace("T", " ").removesuffix(" 00:00:00")
    return text if len(rows.names) == 1 else f"{text} of {rows.names[rows.codes[place]]}"


def _listed(items: Sequence[str], count: int | None = None) -> str:
    count = len(items) if count is None else count
    more = f" and {count - _SHOWN:,} more" if count > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more
