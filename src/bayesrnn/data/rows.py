"""Rows of a table as values of series: numbers checked, categories coded, duplicates resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from bayesrnn.data.columns import ReadOptions, Roles, series_codes
from bayesrnn.data.series import Floats, Places
from bayesrnn.data.table import Column, Table
from bayesrnn.errors import CorpusError

#: Numbers above this cannot be squared in float32, in which networks compute.
LARGEST: Final = 1e18
#: Categories of a covariate that get a number of their own; the rarer ones share none.
CATEGORIES: Final = 20
#: How many times the usual size of its series a value is that looks broken.
_BROKEN: Final = 1e6


class Values(NamedTuple):
    """Rows of all series, sorted by series and time.

    when: seconds since 1970, or numbers. columns: the target, "", and covariates by name.
    """

    names: Sequence[str]
    codes: Places
    when: Places
    columns: Mapping[str, Floats]
    notes: tuple[str, ...] = ()

    @property
    def stride(self) -> int:
        """The largest number that all steps are multiples of."""
        steps = np.diff(self.when)[np.diff(self.codes) == 0]
        return max(int(np.gcd.reduce(steps)), 1) if len(steps) else 1

    def kept(self, rows: Places) -> Values:
        """Some of the rows."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return self._replace(codes=self.codes[rows], when=self.when[rows], columns=columns)


def collect(table: Table, roles: Roles, options: ReadOptions, when: Places | None) -> Values:
    """The values of each series; `when` is None if rows are in order."""
    covariates = covariate_columns(table, (*options.known, *options.past))
    targets = [numbers(table, name) for name in roles.targets]
    if options.wide:
        names: Sequence[str] = roles.targets
        codes: Places = np.repeat(np.arange(len(names)), table.rows)
        when = None if when is None else np.tile(when, len(names))
        covariates = {name: np.tile(values, len(names)) for name, values in covariates.items()}
    else:
        names, codes = series_codes(table, roles.ids)
        names = names if roles.ids else roles.targets
    if when is None:
        by_series = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[by_series], np.arange(len(names)))
        when = np.empty(len(codes), dtype=np.int64)
        when[by_series] = np.arange(len(codes)) - starts[codes[by_series]] + 1
    values = Values(names, codes, when, {"": np.concatenate(targets), **covariates})
    values = values.kept(np.lexsort((when, codes)))
    return values._replace(notes=_outliers(values))


def numbers(table: Table, name: str) -> Floats:
    """The numbers of a column, NaN where missing; text, infinity and the like are errors."""
    column = table.columns[name]
    values, wrong = column.numbers()
    is_bad = np.isinf(values) | (np.abs(values) > LARGEST)
    if not wrong and not is_bad.any():
        return values
    rows = wrong or np.flatnonzero(is_bad).tolist()
    found = column.values[rows[0]]
    reason = "is no number" if wrong else "is no number that can be computed with"
    more = f", and {len(rows) - 1:,} more like it" if len(rows) > 1 else ""
    raise CorpusError(
        f"{table.source}, {table.row(rows[0])}: {str(found).strip()!r} in the column {name!r} "
        f"{reason}{more}; correct it, or leave it empty if it is missing"
    )


def covariate_columns(table: Table, names: Sequence[str]) -> dict[str, Floats]:
    """Covariates as numbers; a column of texts becomes 0 or 1 for each of its categories."""
    found = dict[str, Floats]()
    for name in names:
        column = table.columns[name]
        if column.is_numeric or _is_empty(column):
            found[name] = numbers(table, name)
            continue
        texts, codes = column.coded()
        counts = np.bincount(codes, minlength=len(texts))
        there = [at for at in np.argsort(-counts, kind="stable") if texts[at].strip()]
        if len(there) > CATEGORIES and len(there) > table.rows / 2:
            raise CorpusError(
                f"{table.source}: the column {name!r} has {len(there):,} different texts, too many "
                "to learn from; leave it out of the covariates"
            )
        for at in sorted(there[:CATEGORIES], key=lambda at: texts[at]):
            found[f"{name}={texts[at].strip()}"] = (codes == at).astype(np.float64)
    return found


def column_of(covariate: str, columns: Iterable[str]) -> str | None:
    """The column that a covariate of `covariate_columns` is of; None if it is of none of these."""
    found = [name for name in columns if covariate == name or covariate.startswith(f"{name}=")]
    return max(found, key=len, default=None)


def static_values(
    table: Table, names: Sequence[str], codes: Places, count: int
) -> list[dict[str, str | float]]:
    """The static covariates of each series; one that changes is an error."""
    found: list[dict[str, str | float]] = [{} for _ in range(count)]
    for name in names:
        texts, values = table.columns[name].coded()
        order = np.argsort(codes, kind="stable")
        changes = (np.diff(values[order]) != 0) & (np.diff(codes[order]) == 0)
        if changes.any():
            at = int(order[1:][changes][0])
            raise CorpusError(
                f"{table.source}, {table.row(at)}: the static column {name!r} changes within a "
                "series; give it with --known or --past"
            )
        as_numbers, _ = table.columns[name].numbers()
        numeric = table.columns[name].is_numeric
        firsts = order[np.searchsorted(codes[order], np.arange(count))]
        for at, row in enumerate(firsts.tolist()):
            found[at][name] = float(as_numbers[row]) if numeric else texts[values[row]].strip()
    return found


def without_duplicates(values: Values, table: Table, how: str, dated: bool = True) -> Values:
    """One value for each date of a series; more are an error unless the user says what to do."""
    fresh = np.r_[True, (np.diff(values.codes) != 0) | (np.diff(values.when) != 0)]
    if fresh.all():
        return values
    starts = np.flatnonzero(fresh)
    ends = np.r_[starts[1:], len(fresh)]
    if how == "error":
        again = int(np.flatnonzero(~fresh)[0])
        of = f" of {values.names[values.codes[again]]}" if len(values.names) > 1 else ""
        when = values.when[again]
        date = str(when.astype("datetime64[s]") if dated else when).replace("T", " ")
        count = int((~fresh).sum())
        raise CorpusError(
            f"{table.source} has several rows for one date, {count:,} too many; the first is "
            f"{date}{of}; give --duplicates first, last, mean or sum, or with --id-col the column "
            "that tells series apart"
        )
    note = f"of several rows for one date, --duplicates {how} was taken ({int((~fresh).sum()):,})"
    values = values._replace(notes=(*values.notes, note))
    if how in ("first", "last"):
        return values.kept(starts if how == "first" else ends - 1)
    columns = {
        name: _reduced(column, starts, how if name == "" else "mean")
        for name, column in values.columns.items()
    }
    return values.kept(starts)._replace(columns=columns)


def _reduced(column: Floats, starts: Places, how: str) -> Floats:
    """Mean or sum of the values that are there."""
    total: Floats = np.add.reduceat(np.nan_to_num(column), starts)
    count = np.add.reduceat((~np.isnan(column)).astype(np.float64), starts)
    whole = total if how == "sum" else total / np.maximum(count, 1)
    return np.where(count > 0, whole, np.nan)


def _outliers(values: Values) -> tuple[str, ...]:
    """A note on a value that is far out of the order of its series."""
    sizes = np.abs(values.columns[""])
    there = np.flatnonzero(sizes > 0)
    if not len(there):
        return ()
    logs, owner = np.log10(sizes[there]), values.codes[there]
    count = np.bincount(owner, minlength=len(values.names))
    usual = np.bincount(owner, weights=logs, minlength=len(values.names)) / np.maximum(count, 1)
    excess = logs - usual[owner]
    # The mean of the others: with few values an outlier moves the mean of all.
    excess = excess * count[owner] / np.maximum(count[owner] - 1, 1)
    found = np.flatnonzero((excess > np.log10(_BROKEN)) & (count[owner] > 2))
    if not len(found):
        return ()
    at = there[found[excess[found].argmax()]]
    of = f" of {values.names[values.codes[at]]}" if len(values.names) > 1 else ""
    more = f" (and {len(found) - 1:,} more)" if len(found) > 1 else ""
    return (
        f"the value {values.columns[''][at]:g}{of}{more} is over a million times as large as usual "
        "there: if it is broken, leave it empty",
    )


def _is_empty(column: Column) -> bool:
    numbers, wrong = column.numbers()
    return not wrong and bool(np.isnan(numbers).all())
