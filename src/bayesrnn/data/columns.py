"""Which column of a table is the time, which names the series, and which is to be forecast."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from bayesrnn.data.series import Places
from bayesrnn.data.table import Column, Table
from bayesrnn.data.times import (
    TIME_NAMES,
    Times,
    counts_steps,
    find_times,
    numbered_times,
    row_order,
)
from bayesrnn.errors import ConfigError, CorpusError

DUPLICATES: Final = ("error", "first", "last", "mean", "sum")
ID_NAMES: Final = ("unique_id", "item_id", "series", "series_id", "id")
TARGET_NAMES: Final = ("y", "target", "value")

_COUNTERS = ("no", "no.", "nr", "index", "row", "rownames", "unnamed: 0", "column 1")
_CALENDAR = (
    *("year", "quarter", "month", "week", "day", "hour", "minute", "weekday", "wday"),
    *("dayofweek", "day_of_week", "dayofyear", "day_of_year", "weekofyear", "weekend"),
)


@dataclass(frozen=True)
class ReadOptions:
    """What the user says of a table; None: it is to be found out.

    id_col: one column, or several with commas between. wide: each numeric column is a series.
    duplicates: what is done with several values of one date. known, past, static: covariates.
    """

    time_col: str | None = None
    target_col: str | None = None
    id_col: str | None = None
    date_format: str | None = None
    freq: str | None = None
    season: int | None = None
    wide: bool = False
    duplicates: str = "error"
    known: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    static: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.duplicates not in DUPLICATES:
            raise ConfigError(
                f"--duplicates {self.duplicates!r} is not possible; there are: "
                f"{', '.join(DUPLICATES)}"
            )
        if self.season is not None and self.season < 1:
            raise ConfigError(f"--season is {self.season}; give 1 (none) or more")
        if self.wide and (self.id_col or self.target_col):
            raise ConfigError(
                "--wide makes each numeric column a series; leave out --id-col and --target-col"
            )

    @property
    def covariates(self) -> tuple[str, ...]:
        """The covariates of all three kinds."""
        return (*self.known, *self.past, *self.static)

    @property
    def ids(self) -> tuple[str, ...]:
        """The columns that name the series, if the user says so."""
        return tuple(name.strip() for name in (self.id_col or "").split(",") if name.strip())


class Roles(NamedTuple):
    """What the columns of a table are; with `wide`, there are several targets."""

    times: Times
    ids: tuple[str, ...]
    targets: tuple[str, ...]
    notes: tuple[str, ...]


def find_roles(table: Table, options: ReadOptions) -> Roles:
    """Find time, series and target; what would be a guess is an error that says what to give."""
    given = (options.time_col, options.target_col, *options.ids, *options.covariates)
    for name in given:
        if name is not None:
            require_column(table, name)
    _refuse_two_roles(given)
    ids = options.ids or _named_id(table, options)
    kept = {name for name in (*ids, *options.covariates, options.target_col) if name is not None}
    times = find_times(table, options.time_col, options.date_format, kept)
    notes = list[str]()
    if times is None:
        times, found = _numbers_or_rows(table, options, ids, kept)
    elif ids or options.wide or times.stamps is None:
        found = ids
    else:
        found = _inferred_id(table, times.stamps.astype(np.int64), kept | set(times.columns))
    if not ids and found:
        ids = found
        notes.append(f"the series are told apart by {' and '.join(ids)}")
    taken = {*times.columns, *ids, *options.covariates}
    targets = _wide(table, taken) if options.wide else (_target(table, options, taken, times, ids),)
    return Roles(times, ids, targets, (*times.notes, *notes))


def require_column(table: Table, name: str) -> Column:
    """The column of this name; an error names those that there are."""
    if name in table.columns:
        return table.columns[name]
    close = difflib.get_close_matches(name, table.columns, 1)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    raise ConfigError(f"{table.source} has no column {name!r}, but {_listed(table.columns)}{meant}")


def series_codes(table: Table, ids: Sequence[str]) -> tuple[list[str], Places]:
    """The names of the series in the order of their first row, and the number of each row's."""
    if not ids:
        return [""], np.zeros(table.rows, dtype=np.int64)
    for name in ids:
        _refuse_empty(table, name)
    if len(ids) == 1:
        return table.columns[ids[0]].coded()
    names, codes = table.columns[ids[0]].coded()
    for other in ids[1:]:
        texts, more = table.columns[other].coded()
        keys, firsts, found = np.unique(
            codes * len(texts) + more, return_index=True, return_inverse=True
        )
        order = np.argsort(firsts)
        pairs = np.stack(np.divmod(keys[order], len(texts)), 1).tolist()
        names = [f"{names[one]}/{texts[two]}" for one, two in pairs]
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        codes = rank[found]
    return names, codes


def _refuse_empty(table: Table, name: str) -> None:
    texts, codes = table.columns[name].coded()
    empty = next((code for code, text in enumerate(texts) if not text.strip()), None)
    if empty is not None:
        row = int(np.flatnonzero(codes == empty)[0])
        raise CorpusError(
            f"{table.source}, {table.row(row)}: the column {name!r} names the series, but is empty "
            "there; fill it in, or delete the row"
        )


def _refuse_two_roles(given: Sequence[str | None]) -> None:
    named = [name for name in given if name is not None]
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"the column {twice!r} is given twice; a column has one role")


def _named_id(table: Table, options: ReadOptions) -> tuple[str, ...]:
    """The column with a name of an identity, unless it only counts the rows."""
    folded = {name.casefold(): name for name in table.columns}
    taken = (options.time_col, options.target_col, *options.covariates)
    for name in ID_NAMES:
        column = folded.get(name)
        if column is not None and column not in taken and not options.wide:
            texts, _ = table.columns[column].coded()
            if len(texts) < table.rows or table.rows == 1:
                return (column,)
    return ()


def _numbers_or_rows(
    table: Table, options: ReadOptions, ids: tuple[str, ...], kept: Collection[str]
) -> tuple[Times, tuple[str, ...]]:
    """Without dates: whole numbers that tell the order of each series, or the order of the rows.

    With the columns that tell the series apart.
    """
    if options.time_col:
        times = numbered_times(table, options.time_col)
        return times, ids or _id_of_numbers(table, options, times, kept)
    named = [n for n in table.columns if n.casefold() in TIME_NAMES and n not in kept]
    for name in (name for name in named if table.columns[name].is_whole):
        times = numbered_times(table, name)
        found = ids or _id_of_numbers(table, options, times, kept)
        # The number of a month or a day comes again every year: it is no time by itself.
        if name.casefold() not in _CALENDAR or not _has_duplicates(table, times, found):
            return times, found
    _, codes = series_codes(table, ids)
    others = [name for name in table.columns if name not in named and name not in kept]
    numeric = [name for name in others if table.columns[name].is_numeric]
    for name in numeric if len(numeric) > 1 else ():
        if name.casefold() not in TARGET_NAMES and counts_steps(table.columns[name], codes):
            return numbered_times(table, name), ids
    text = next((name for name in named if not table.columns[name].is_numeric), None)
    if text is not None:
        sample = table.columns[text].coded()[0][0]
        raise CorpusError(
            f"{table.source}: the column {text!r} looks like the time by its name, but {sample!r} "
            "is no date in a format that is known; give --date-format, such as %d/%m/%Y"
        )
    return row_order(table), ids


def _id_of_numbers(
    table: Table, options: ReadOptions, times: Times, kept: Collection[str]
) -> tuple[str, ...]:
    if options.wide or times.numbers is None:
        return ()
    return _inferred_id(table, times.numbers, {*kept, *times.columns})


def _inferred_id(table: Table, when: Places, taken: Collection[str]) -> tuple[str, ...]:
    """The column or two columns that make dates unique, where most dates are there repeatedly."""
    _, dates, counts = np.unique(when, return_inverse=True, return_counts=True)
    if counts.max() == 1 or (counts[dates] > 1).mean() < 0.5:
        return ()
    free = [
        name for name in table.columns if name not in taken and name.casefold() not in TARGET_NAMES
    ]
    texts = [name for name in free if not table.columns[name].is_numeric]
    whole = [name for name in free if name not in texts and table.columns[name].is_whole]
    groups = (((name,) for name in texts), ((name,) for name in whole),
              itertools.combinations(texts + whole, 2))  # fmt: skip
    for group in groups:
        found: dict[tuple[str, ...], Places] = {}
        for names in group:
            series, codes = series_codes(table, names)
            pairs = codes * len(counts) + dates
            if len(series) * 3 <= table.rows and len(np.unique(pairs)) == table.rows:
                found[names] = codes
        if len({codes.tobytes() for codes in found.values()}) > 1:
            choices = " or ".join("--id-col " + ",".join(names) for names in found)
            raise CorpusError(
                f"{table.source}: several columns could tell the series apart; give {choices}"
            )
        if found:
            return next(iter(found))
    return ()


def _target(
    table: Table, options: ReadOptions, taken: Collection[str], times: Times, ids: Sequence[str]
) -> str:
    if options.target_col:
        return options.target_col
    named = {name.casefold(): name for name in table.columns if name not in taken}
    for name in TARGET_NAMES:
        if name in named:
            return named[name]
    numeric = _numeric(table, taken)
    if len(numeric) == 1:
        return numeric[0]
    if not numeric:
        _refuse_grouped_digits(table, taken)
        raise CorpusError(
            f"{table.source} has no column of numbers to forecast; its columns are "
            f"{_listed(table.columns)}; give a file that has dates and numbers, such as ds,y"
        )
    gaps = [name for name in numeric if np.isnan(table.columns[name].numbers()[0]).any()]
    likely = gaps[0] if len(gaps) == 1 else numeric[-1]
    again = _has_duplicates(table, times, ids)
    raise CorpusError(
        f"{table.source} has several columns of numbers: {_listed(numeric)}; say which one is to "
        f"be forecast, such as --target-col {likely}{' --duplicates first' * again} (others can be "
        "covariates: --known for what is known ahead, --past for what is not), or --wide, if each "
        "is a series"
    )


def _refuse_grouped_digits(table: Table, taken: Collection[str]) -> None:
    """An error for numbers like 1,200 or $5, which are texts."""
    for name in table.columns:
        text = table.columns[name].coded()[0][0].strip()
        if name not in taken and re.fullmatch(r"\W?\d{1,3}([,.' ]\d{3})*([,.]\d+)?\W*", text):
            raise CorpusError(
                f"{table.source}: {text!r} in the column {name!r} is no number; write numbers "
                "without signs of currency or between thousands"
            )


def _wide(table: Table, taken: Collection[str]) -> tuple[str, ...]:
    numeric = _numeric(table, taken)
    if not numeric:
        raise CorpusError(f"{table.source} has no column of numbers; --wide makes each a series")
    return tuple(numeric)


def _numeric(table: Table, taken: Collection[str]) -> list[str]:
    """Columns of numbers that may be series: not what only counts rows or names a calendar."""
    numeric = [n for n in table.columns if n not in taken and table.columns[n].is_numeric]
    plain = [name for name in numeric if name.casefold() not in (*_CALENDAR, *_COUNTERS)]
    return plain or numeric


def _has_duplicates(table: Table, times: Times, ids: Sequence[str]) -> bool:
    when = times.numbers if times.stamps is None else times.stamps.astype(np.int64)
    if when is None:
        return False
    _, codes = series_codes(table, ids)
    _, places = np.unique(when, return_inverse=True)
    return len(np.unique(codes * table.rows + places)) < table.rows


def _listed(names: Collection[str], most: int = 12) -> str:
    shown = ", ".join(list(names)[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
