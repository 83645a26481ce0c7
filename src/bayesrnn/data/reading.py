"""Series from files and frames, read without options wherever nothing has to be guessed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from bayesrnn.data.columns import ReadOptions, Roles, find_roles, series_codes
from bayesrnn.data.grid import (
    Rows,
    closed_words,
    find_frequency,
    named_frequency,
    with_closed_phases,
)
from bayesrnn.data.rows import (
    Values,
    collect,
    column_of,
    static_values,
    without_duplicates,
)
from bayesrnn.data.season import best_season, usual_seasons
from bayesrnn.data.series import MONTHS, Floats, Frequency, Places, Series, SeriesSet, Stamps
from bayesrnn.data.table import Table, read_table
from bayesrnn.errors import CorpusError

#: Places of the grid, more than which for each row come of a wrong date.
_SPARSEST: Final = 100


def read_series(
    source: Any,
    *,
    time_col: str | None = None,
    target_col: str | None = None,
    id_col: str | None = None,
    date_format: str | None = None,
    freq: str | None = None,
    season: int | None = None,
    wide: bool = False,
    duplicates: str = "error",
    known: Sequence[str] = (),
    past: Sequence[str] = (),
    static: Sequence[str] = (),
) -> SeriesSet:
    """Read series from a CSV file, plain or gzip, a dict of arrays, a pandas or a polars frame.

    Columns, dates, frequency and season are found out where the table leaves no doubt; what would
    be a guess that changes results is an error that says what to give. `description` of the result
    says in one line how the table was read.

    time_col, target_col, id_col: the columns of dates, of values and of the names of series
        (several with commas between). date_format: in the letters of strftime.
    freq: such as "hour", "30 minutes", "business-day"; for a few new rows of series that are known,
        `str(frequency)` of those: a week alone does not show what is closed. season: in steps; 1 is
        none.
    wide: each numeric column is a series. duplicates: what is done with several rows for one date:
        "error", "first", "last", "mean" or "sum".
    known, past, static: covariates known ahead, known only up to now, and that never change.
    """
    kinds = (tuple([names] if isinstance(names, str) else names) for names in (known, past, static))
    options = ReadOptions(
        time_col, target_col, id_col, date_format, freq, season, wide, duplicates, *kinds
    )
    return series_of_table(read_table(source), options)


def series_of_table(table: Table, options: ReadOptions) -> SeriesSet:
    """The series of a table."""
    if table.rows < 2 and options.freq is None:
        raise CorpusError(f"{table.source} has one row; give at least two values of a series")
    roles = find_roles(table, options)
    when = roles.times.numbers
    if roles.times.stamps is not None:
        stamps = roles.times.stamps
        if roles.times.other is not None:
            stamps = _regular_one(table, roles, (stamps, roles.times.other))
        when = stamps.astype(np.int64)
    dated = roles.times.stamps is not None
    values = collect(table, roles, options, when)
    values = without_duplicates(values, table, options.duplicates, dated)
    if np.isnan(values.columns[""]).all():
        raise CorpusError(f"{table.source}: the column {roles.targets[0]!r} has no values")
    frequency, values = _frequency(table, roles, options, values)
    series, left_out = _series(table, roles, options, frequency, values)
    chosen = _season(series, frequency, options)
    used = {*roles.times.columns, *roles.ids, *roles.targets, *options.covariates}
    unused = [name for name in table.columns if name not in used]
    left_out += [f"not used: {', '.join(unused)}"] if unused else []
    notes = (*table.notes, *roles.notes, *values.notes, *left_out)
    words = "; ".join((_description(roles, frequency, series, chosen), *notes))
    stride = values.stride if frequency is None else 1
    return SeriesSet(series, frequency, *chosen, words, notes, stride)


def _regular_one(table: Table, roles: Roles, readings: Sequence[Stamps]) -> Stamps:
    """The reading of day and month after which the dates are without gaps; an error if both are."""
    regular = list[Stamps]()
    names, codes = series_codes(table, roles.ids)
    for stamps in readings:
        order = np.lexsort((stamps, codes))
        rows = Rows(codes[order], stamps[order], names, table.source)
        try:
            frequency = find_frequency(rows)
        except CorpusError:
            continue
        places = frequency.place(rows.stamps[:-1], rows.stamps[1:])
        if (places[np.diff(rows.codes) == 0] == 1).all():
            regular.append(stamps)
    if len(regular) == 1:
        return regular[0]
    sample = table.columns[roles.times.columns[0]].coded()[0][0]
    raise CorpusError(
        f"{table.source}: dates like {sample!r} can have the day or the month first; give "
        "--date-format, such as %d/%m/%Y or %m/%d/%Y"
    )


def _frequency(
    table: Table, roles: Roles, options: ReadOptions, values: Values
) -> tuple[Frequency | None, Values]:
    """The frequency, and the values at times that its grid has."""
    if roles.times.stamps is None:
        if options.freq is not None:
            raise CorpusError(
                f"{table.source} has no dates, so --freq cannot be used; give --time-col or none"
            )
        return None, values
    rows = Rows(values.codes, values.when.astype("datetime64[s]"), values.names, table.source)
    there = ~np.isnan(values.columns[""])
    if options.freq is not None:
        frequency = named_frequency(options.freq)
    else:
        frequency = with_closed_phases(find_frequency(rows), rows.stamps[there])
    if not frequency.closed and (frequency.unit != "business-day" or options.freq):
        return frequency, values
    opened = np.isin(frequency.phase(rows.stamps), frequency.open_phases)
    note = f"{int((there & ~opened).sum()):,} values at times that are nearly always closed are out"
    notes = (*values.notes, note) if (there & ~opened).any() else values.notes
    return frequency, values.kept(np.flatnonzero(opened))._replace(notes=notes)


def _series(
    table: Table, roles: Roles, options: ReadOptions, frequency: Frequency | None, values: Values
) -> tuple[tuple[Series, ...], list[str]]:
    """The values on the grid, NaN where there is none."""
    firsts = np.flatnonzero(np.r_[True, np.diff(values.codes) != 0])
    present = values.codes[firsts]
    counts = np.diff(np.r_[firsts, len(values.codes)])
    starts = values.when[firsts]
    places = _places(table, frequency, values, np.repeat(starts, counts))
    lasts = np.r_[firsts[1:], len(values.codes)] - 1
    lengths = places[lasts] + 1
    offsets = np.r_[0, np.cumsum(lengths)]
    if offsets[-1] > _SPARSEST * len(places) + 10_000:
        worst = int((lengths / counts).argmax())
        ends = values.when[[firsts[worst], lasts[worst]]]
        raise _too_sparse(table, frequency, ends, int(lengths[worst]), int(counts[worst]))
    at = np.repeat(offsets[:-1], counts) + places
    grid = {name: np.full(offsets[-1], np.nan) for name in values.columns}
    for name, column in values.columns.items():
        grid[name][at] = column
    statics = None
    if options.static:
        _, codes = series_codes(table, roles.ids)
        statics = static_values(table, options.static, codes, len(values.names))
    known = [name for name in values.columns if column_of(name, options.known)]
    past = [name for name in values.columns if column_of(name, options.past)]
    targets = grid.pop("")
    there = np.where(np.isnan(targets), -1, np.arange(len(targets)))
    last_there = np.maximum.reduceat(there, offsets[:-1])
    made, empty = list[Series](), list[str]()
    for number, (code, begin, first, end) in enumerate(
        zip(
            present.tolist(),
            offsets[:-1].tolist(),
            starts.tolist(),
            offsets[1:].tolist(),
            strict=True,
        )
    ):
        target: Floats = targets[begin:end]
        if last_there[number] < begin:
            empty.append(values.names[code])
            continue
        upto = int(last_there[number]) + 1 - begin if known else len(target)
        made.append(
            Series(
                name=values.names[code],
                start=_start(frequency, values.when, firsts[number], lasts[number]),
                target=target[:upto],
                known={name: grid[name][begin:end] for name in known},
                past={name: grid[name][begin : begin + upto] for name in past},
                static=statics[code] if statics else {},
                number=first if frequency is None else 1,
            )
        )
    gone = f"{len(empty):,} series have no values and are left out, such as {', '.join(empty[:3])}"
    return tuple(made), [gone] if empty else []


def _too_sparse(
    table: Table, frequency: Frequency | None, ends: Places, steps: int, rows: int
) -> CorpusError:
    """The error for a series with a date that is far from all others."""
    begin, end = ends if frequency is None else ends.astype("datetime64[s]")
    advice = "a number" if frequency is None else "a date"
    freq = "" if frequency is None else ", or give --freq"
    return CorpusError(
        f"{table.source}: from {begin} to {end} there would be {steps:,} steps, but {rows:,} rows; "
        f"correct {advice} that is far from the others{freq}"
    )


def _places(table: Table, frequency: Frequency | None, values: Values, starts: Places) -> Places:
    """The place of each row on the grid of its series; a row off the grid is an error."""
    if frequency is None:
        return (values.when - starts) // values.stride
    stamps = values.when.astype("datetime64[s]")
    places = frequency.place(starts.astype("datetime64[s]"), stamps)
    again = np.r_[False, (np.diff(places) == 0) & (np.diff(values.codes) == 0)]
    wrong = np.flatnonzero((places < 0) | again)
    if len(wrong):
        shown = ", ".join(str(stamp).replace("T", " ") for stamp in stamps[wrong[:3]])
        more = f" and {len(wrong) - 3:,} more" if len(wrong) > 3 else ""
        raise CorpusError(
            f"{table.source}: {shown}{more} {'are' if len(wrong) > 1 else 'is'} not on a grid of "
            f"one value per {frequency.words}; correct these dates, or give another --freq"
        )
    return places


def _start(frequency: Frequency | None, when: Places, first: int, last: int) -> np.datetime64:
    """The date of a series' first value; of business months, the month's own first or last day."""
    if frequency is None:
        return np.datetime64("NaT", "s")
    start: np.datetime64 = when[first].astype("datetime64[s]")
    if frequency.unit not in MONTHS:
        return start
    days = when[first : last + 1].astype("datetime64[s]").astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    day = (days - months).astype(np.int64)
    if (day == day[0]).all():
        return start
    clock = start - start.astype("datetime64[D]")
    whole = months[0] if (day <= 3).all() else (months[0] + 1).astype("datetime64[D]") - 1
    begin: np.datetime64 = whole.astype("datetime64[D]").astype("datetime64[s]") + clock
    return begin


def _season(
    series: Sequence[Series], frequency: Frequency | None, options: ReadOptions
) -> tuple[int, tuple[int, ...]]:
    """The season and its candidates."""
    if options.season is not None:
        return options.season, (options.season,)
    season, _ = best_season(series, frequency)
    seasons = usual_seasons(frequency)
    return (season, seasons) if frequency is not None else (season, (season,))


def _description(
    roles: Roles,
    frequency: Frequency | None,
    series: Sequence[Series],
    chosen: tuple[int, tuple[int, ...]],
) -> str:
    """The line that says how a table was read."""
    lengths = [len(one.target) for one in series]
    total = sum(lengths)
    missing = sum(int(np.isnan(one.target).sum()) for one in series)
    span = (
        f"{min(lengths):,}"
        if min(lengths) == max(lengths)
        else f"{min(lengths):,} to {max(lengths):,}"
    )
    parts = [f"Read as {len(series):,} series of {span} {'values' if total > 1 else 'value'}"]
    if frequency is not None:
        begin = min(one.start for one in series)
        longest = dict[np.datetime64, int]()
        for one in series:
            longest[one.start] = max(longest.get(one.start, 0), len(one.target))
        end = max(frequency.stamps(start, count - 1, 1)[0] for start, count in longest.items())
        dates = [str(date).replace("T", " ").removesuffix(" 00:00:00") for date in (begin, end)]
        parts.append(f"one per {frequency.words}, {dates[0]} to {dates[1]}")
    else:
        parts.append("without dates")
    if closed := frequency and closed_words(frequency):
        parts.append(closed)
    parts.append(f"{missing:,} missing" if missing else "none missing")
    columns = [f"time {' + '.join(roles.times.columns)}"] if roles.times.columns else []
    columns += [f"id {' + '.join(roles.ids)}"] if roles.ids else []
    columns += (
        [f"target {roles.targets[0]}"] if len(roles.targets) == 1 else ["each column a series"]
    )
    season, seasons = chosen
    others = f" (of {', '.join(map(str, seasons))})" if len(seasons) > 1 else ""
    repeats = f"season {season}{others}" if season > 1 else "no season"
    return f"{parts[0]}: {', '.join((*parts[1:], *columns, repeats))}"
