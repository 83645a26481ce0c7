"""When each row of a table is: dates, numbers, or the order of the rows."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np

from bayesrnn.data.dates import (
    Dates,
    clock_seconds,
    dates_of_parts,
    formatted_dates,
    parse_dates,
)
from bayesrnn.data.series import Places, Stamps
from bayesrnn.data.table import Column, Table
from bayesrnn.errors import CorpusError

TIME_NAMES: Final = (
    *("ds", "date", "datetime", "date_time", "timestamp", "time", "ts"),
    *("month", "week", "day", "period"),
)
_PARTS = ("year", "month", "day", "hour")
#: The share of the rows of a column that have to be dates for it to be the time; of one with a
#: usual name, where the others are mistakes.
_MOST, _MOST_OF_NAMED = 0.99, 0.5


class Times(NamedTuple):
    """When each row is: `stamps`, or else `numbers`; the columns that say so.

    other: the dates with day and month exchanged, where both are possible.
    """

    columns: tuple[str, ...]
    stamps: Stamps | None = None
    numbers: Places | None = None
    other: Stamps | None = None
    notes: tuple[str, ...] = ()


def find_times(
    table: Table, time_col: str | None, date_format: str | None, kept: Collection[str]
) -> Times | None:
    """The dates of a column that the user names, or that has a usual name, or that has dates.

    None if there are none. `kept` are columns with another role.
    """
    if time_col is not None:
        found = _dated(table, time_col, date_format, named=True)
        if found is None and date_format is not None:
            sample = table.columns[time_col].coded()[0][0]
            raise CorpusError(
                f"{table.source}: {sample!r} in the column {time_col!r} is not written as "
                f"--date-format {date_format} says"
            )
        return found
    folded = {name.casefold(): name for name in table.columns if name not in kept}
    for name in (folded[name] for name in TIME_NAMES if name in folded):
        if (found := _dated(table, name, date_format, named=True)) is not None:
            return found if name.casefold() == "time" else _with_clock(table, found, folded)
    for name in table.columns:
        if name in kept or name.casefold() in TIME_NAMES:
            continue
        if (found := _dated(table, name, date_format, named=False)) is not None:
            return _with_clock(table, found, folded)
    return _of_parts(table, folded)


def numbered_times(table: Table, name: str) -> Times:
    """Whole numbers in place of dates."""
    numbers, wrong = table.columns[name].numbers()
    if wrong or not table.columns[name].is_whole:
        is_whole = (np.abs(numbers) < 2**53) & (numbers == np.floor(numbers))
        bad = wrong[0] if wrong else int(np.flatnonzero(~is_whole)[0])
        raise CorpusError(
            f"{table.source}, {table.row(bad)}: the column {name!r} has neither a date nor a whole "
            "number there; correct it, or give --date-format"
        )
    note = f"the column {name!r} has numbers, no dates, so there is no calendar"
    return Times((name,), None, numbers.astype(np.int64), None, (note,))


def counts_steps(column: Column, codes: Places) -> bool:
    """Whether a column has whole numbers that increase by equal steps within each series."""
    if not column.is_whole:
        return False
    order = np.argsort(codes, kind="stable")
    steps = np.diff(column.numbers()[0][order])[np.diff(codes[order]) == 0]
    return len(steps) > 0 and bool(steps[0] > 0 and (steps == steps[0]).all())


def row_order(table: Table) -> Times:
    """The rows in their order: nothing else says when they are."""
    note = f"{table.source} has no dates, so the rows are taken in their order"
    return Times((), None, None, None, (note,))


def _dated(table: Table, name: str, date_format: str | None, named: bool) -> Times | None:
    """The dates of a column, if nearly all rows have one; then, all of them have to."""
    column = table.columns[name]
    if column.array is not None and column.array.dtype.kind == "M":
        return _checked(table, name, Dates(_whole_seconds(table, column)))
    texts, codes = column.coded()
    if not named and date_format is None and column.is_numeric and not _is_compact(texts):
        return None
    found = (
        parse_dates(texts, named) if date_format is None else formatted_dates(texts, date_format)
    )
    dates = Dates(
        found.stamps[codes], None if found.other is None else found.other[codes], found.note
    )
    if np.isnat(dates.stamps).mean() > 1 - (_MOST_OF_NAMED if named else _MOST):
        return None
    return _checked(table, name, dates)


def _checked(table: Table, name: str, dates: Dates) -> Times:
    missing = np.flatnonzero(np.isnat(dates.stamps))
    if len(missing):
        column = table.columns[name]
        text = column.coded()[0][column.coded()[1][missing[0]]] if column.array is None else ""
        more = f", nor are {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise CorpusError(
            f"{table.source}, {table.row(int(missing[0]))}: {text!r} in the column {name!r} is no "
            f"date like the others{more}; correct or delete the row, or give --date-format"
        )
    return Times((name,), dates.stamps, None, dates.other, (dates.note,) if dates.note else ())


def _whole_seconds(table: Table, column: Column) -> Stamps:
    given = np.asarray(column.array)
    stamps = given.astype("datetime64[s]")
    if (stamps != given)[~np.isnat(given)].any():
        raise CorpusError(
            f"{table.source}: the column {column.name!r} has parts of seconds, and the shortest "
            "step is a second; round the dates"
        )
    return stamps


def _is_compact(texts: Collection[str]) -> bool:
    return all(re.fullmatch(r"(1[5-9]|2[01])\d\d(0[1-9]|1[0-2])[0-3]\d", text) for text in texts)


def _with_clock(table: Table, found: Times, folded: dict[str, str]) -> Times:
    """Days with the time of day of a column `time`, if there is one."""
    name = folded.get("time")
    if name is None or name in found.columns or found.stamps is None:
        return found
    texts, codes = table.columns[name].coded()
    clock = clock_seconds(texts)
    if clock is None or (found.stamps.astype(np.int64) % 86400).any():
        return found
    seconds = clock[codes].astype("timedelta64[s]")
    other = None if found.other is None else found.other + seconds
    return found._replace(
        columns=(*found.columns, name), stamps=found.stamps + seconds, other=other
    )


def _of_parts(table: Table, folded: dict[str, str]) -> Times | None:
    """Dates of columns year, month, day and hour."""
    names = list[str]()
    for part in _PARTS:
        if part not in folded or not table.columns[folded[part]].is_whole:
            break
        names.append(folded[part])
    if not names:
        return None
    parts = [table.columns[name].numbers()[0].astype(np.int64) for name in names]
    if ((parts[0] < 1500) | (parts[0] > 2199)).any():
        return None
    stamps = dates_of_parts(*parts)
    wrong = np.flatnonzero(np.isnat(stamps))
    if len(wrong):
        raise CorpusError(
            f"{table.source}, {table.row(int(wrong[0]))}: the columns {', '.join(names)} make no "
            "date there; correct the row"
        )
    return Times(tuple(names), stamps)
