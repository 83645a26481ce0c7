"""Covariates known ahead, from a table of their future values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bayesrnn.data.columns import ID_NAMES, require_column, series_codes
from bayesrnn.data.rows import column_of, numbers
from bayesrnn.data.series import Floats, Places, Series, SeriesSet, Stamps
from bayesrnn.data.table import Table, read_table
from bayesrnn.data.times import find_times, numbered_times
from bayesrnn.errors import ConfigError, CorpusError


def read_known(
    source: Any,
    series: SeriesSet,
    horizon: int,
    *,
    time_col: str | None = None,
    id_col: str | None = None,
    date_format: str | None = None,
) -> SeriesSet:
    """The series with their known covariates continued by another table, `horizon` values ahead.

    The table needs the dates, the covariates and, of several series, their names; it may go back
    into the past, whose values it then replaces. Rows that are missing are an error that lists
    them. A text that the series never had is none of the categories.
    """
    table = read_table(source)
    encoded = list(series.series[0].known)
    if not encoded:
        raise ConfigError("these series have no covariates that are known ahead; name them first")
    for name in encoded:
        if column_of(name, table.columns) is None:
            require_column(table, name.partition("=")[0])
    ids = _ids(table, series, id_col)
    names, codes = series_codes(table, ids)
    columns = {name: _values(table, name) for name in encoded}
    when = _when(table, series, time_col, date_format)
    numbers_of = {name: number for number, name in enumerate(names)}
    by_series = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[by_series], np.arange(len(names) + 1))
    made = list[Series]()
    for one in series.series:
        number = numbers_of.get(one.name) if ids else 0
        if number is None:
            raise CorpusError(f"{table.source} has no rows for the series {one.name}; add them")
        rows = by_series[bounds[number] : bounds[number + 1]]
        places = _places(table, series, one, when[rows])
        inside = places >= 0
        known = dict(one.known)
        for name, values in columns.items():
            length = max(len(known[name]), len(one.target) + horizon)
            length = max(length, int(places.max(initial=0)) + 1)
            row = np.full(length, np.nan)
            row[: len(known[name])] = known[name]
            row[places[inside]] = values[rows[inside]]
            known[name] = row
            _require_whole(table, series, one, name, row, horizon)
        made.append(replace(one, known=known))
    return replace(series, series=tuple(made))


def _ids(table: Table, series: SeriesSet, id_col: str | None) -> tuple[str, ...]:
    """The columns that name the series; none where there is one series."""
    if id_col:
        ids = tuple(name.strip() for name in id_col.split(","))
        for name in ids:
            require_column(table, name)
        return ids
    wanted = {one.name for one in series.series}
    found = [name for name in table.columns if wanted <= set(table.columns[name].coded()[0])]
    named = [name for name in table.columns if name.casefold() in ID_NAMES]
    if found or named:
        return ((found or named)[0],)
    if len(wanted) > 1:
        raise CorpusError(
            f"{table.source} has no column with the names of the series, such as "
            f"{series.series[0].name}; give --id-col"
        )
    return ()


def _values(table: Table, encoded: str) -> Floats:
    """The numbers of a column, or 0 and 1 for one of its categories, NaN where it is empty."""
    if encoded in table.columns:
        return numbers(table, encoded)
    name = column_of(encoded, table.columns)
    assert name is not None
    category = encoded[len(name) + 1 :]
    texts, codes = table.columns[name].coded()
    plain = [text.strip() for text in texts]
    return np.array([float(text == category) if text else np.nan for text in plain])[codes]


def _when(
    table: Table,
    series: SeriesSet,
    time_col: str | None,
    date_format: str | None,
) -> Stamps | Places:
    """The date of each row, or its number where the series have numbers."""
    if time_col is not None:
        require_column(table, time_col)
    kept = {column_of(name, table.columns) or name for name in series.series[0].known}
    times = find_times(table, time_col, date_format, kept)
    if series.frequency is None:
        name = time_col or next((n for n in table.columns if n.casefold() == "ds"), None)
        numbered = None if name is None else numbered_times(table, name)
        if numbered is None or numbered.numbers is None:
            raise CorpusError(f"{table.source} has no numbers of rows like the series; give a ds")
        return numbered.numbers
    if times is None or times.stamps is None:
        raise CorpusError(f"{table.source} has no dates; give --time-col, or a column ds")
    if times.other is None:
        return times.stamps
    one = series.series[0]
    end = series.frequency.stamps(one.start, len(one.target), 1)[0]
    apart = [abs(stamps.min() - end) for stamps in (times.stamps, times.other)]
    return times.stamps if apart[0] <= apart[1] else times.other


def _places(table: Table, series: SeriesSet, one: Series, when: Stamps | Places) -> Places:
    """Where the rows lie on the grid of a series; those before it are -1."""
    if series.frequency is None:
        place, rest = np.divmod(when - one.number, series.stride)
        return np.where(rest == 0, np.maximum(place, -1), -1).astype(np.int64)
    places = series.frequency.place(one.start, when)
    wrong = when[(places < 0) & (when > one.start)]
    if len(wrong):
        shown = ", ".join(str(stamp).replace("T", " ") for stamp in wrong[:3])
        raise CorpusError(
            f"{table.source}: {shown} {'are' if len(wrong) > 1 else 'is'} off the grid of one "
            f"value per {series.frequency.words} from {one.start}; correct these dates"
        )
    return places


def _require_whole(
    table: Table, series: SeriesSet, one: Series, name: str, row: Floats, horizon: int
) -> None:
    """Refuse a future with missing values, and list them."""
    end = len(one.target)
    missing: Sequence[int] = np.flatnonzero(np.isnan(row[end : end + horizon])).tolist()
    if missing:
        shown = ", ".join(series.labels(one, end + place, 1)[0] for place in missing[:3])
        more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
        of = f" of {one.name}" if len(series.series) > 1 else ""
        raise CorpusError(
            f"{table.source} has no {name.partition('=')[0]}{of} for {shown}{more}; add these "
            "rows, or give a smaller --horizon"
        )
