"""Tables from CSV files of many habits, from dicts of arrays, and from pandas or polars frames."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bayesrnn.data.files import read_bytes, with_home
from bayesrnn.data.series import Floats, Places
from bayesrnn.errors import CorpusError

#: What stands for a missing value, in lower case.
MISSING: Final = frozenset(
    ("", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", "?", "-", "--", ".", "missing")
)

_DELIMITERS = ",;\t|"
_SNIFFED = 100


class Column:
    """A named column: texts, or an array of numbers or dates where it came as one."""

    def __init__(self, name: str, values: Sequence[str] | NDArray[Any], comma: bool = False):
        self.name = name
        self.values = values
        self._comma = comma
        self._coded: tuple[list[str], Places] | None = None
        self._numbers: tuple[Floats, list[int]] | None = None

    @property
    def array(self) -> NDArray[Any] | None:
        """The values where they came as numbers or dates, not as texts."""
        return self.values if isinstance(self.values, np.ndarray) else None

    def coded(self) -> tuple[list[str], Places]:
        """The different texts in the order of their first row, and which of them each row has."""
        if self._coded is None:
            texts = self.values if self.array is None else [_plain(v) for v in self.array.tolist()]
            places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
            codes = np.fromiter(map(places.__getitem__, texts), np.int64, len(texts))
            self._coded = list(places), codes
        return self._coded

    def numbers(self) -> tuple[Floats, list[int]]:
        """The numbers, NaN where a value is missing, and the first rows that hold none."""
        if self._numbers is None:
            self._numbers = self._read_numbers()
        return self._numbers

    @property
    def is_numeric(self) -> bool:
        """Whether more than half of the values that are there are numbers, and there is one."""
        numbers, wrong = self.numbers()
        there = int((~np.isnan(numbers)).sum())
        return there > len(wrong)

    @property
    def is_whole(self) -> bool:
        """Whether every row has a whole number, one that floating point counts exactly."""
        numbers, wrong = self.numbers()
        if wrong or not (np.abs(numbers) < 2**53).all():
            return False
        return bool((numbers % 1 == 0).all())

    def _read_numbers(self) -> tuple[Floats, list[int]]:
        if self.array is not None:
            if self.array.dtype.kind in "biuf":
                return self.array.astype(np.float64), []
            return np.full(len(self.array), np.nan), list(range(len(self.array)))
        if not self._comma:
            try:
                return np.array(list(map(float, self.values)), dtype=np.float64), []
            except ValueError:
                pass
        texts, codes = self.coded()
        read = [_number(text, self._comma) for text in texts]
        values = np.array([np.nan if value is None else value for value in read])
        is_wrong = np.array([value is None for value in read])
        return values[codes], np.flatnonzero(is_wrong[codes]).tolist()


@dataclass(frozen=True)
class Table:
    """Columns of the same length; `numbers` are those of the rows, as messages count them."""

    source: str
    columns: Mapping[str, Column]
    rows: int
    numbers: Sequence[int]
    notes: tuple[str, ...] = ()

    def row(self, index: int) -> str:
        """How messages name a row: a spreadsheet counts the header as row 1."""
        return f"row {self.numbers[index]:,}"


def read_table(source: Any) -> Table:
    """A table from a path, a mapping of names to arrays, or a pandas or polars frame."""
    if isinstance(source, str | Path):
        return _read_file(with_home(source))
    source = _with_index(source)
    names = source.keys() if isinstance(source, Mapping) else getattr(source, "columns", None)
    if names is None:
        raise CorpusError(
            f"series cannot be read from a {type(source).__name__}; give the path of a CSV file, "
            "a dict of arrays, or a pandas or polars frame"
        )
    columns = {str(name): _column(str(name), source[name]) for name in names}
    lengths = {name: len(column.values) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise CorpusError(f"the columns have different lengths: {lengths}; give one value per row")
    rows = next(iter(lengths.values()), 0)
    if not rows:
        raise CorpusError("the table has no rows; give at least two values")
    return Table("the table", columns, rows, range(rows))


def _with_index(source: Any) -> Any:
    """A pandas frame, or series, with its index as a column, unless that only counts rows."""
    source = source.to_frame("y") if hasattr(source, "to_frame") else source
    if not hasattr(source, "reset_index"):
        return source
    counts = type(source.index).__name__ == "RangeIndex" and source.index.name is None
    plain = source.reset_index(drop=counts)
    return plain.rename(columns={"index": "ds"}) if not counts and "ds" not in plain else plain


def _read_file(path: Path) -> Table:
    text, notes = _decoded(read_bytes(path), str(path))
    if not text.strip():
        raise CorpusError(f"{path} is empty; give a CSV file with a header line and values")
    told, rest = text.partition("\n")[::2]
    if told.lower().startswith("sep=") and len(told.strip()) == 5:  # for a spreadsheet program
        text, skipped = rest, 1
    else:
        skipped = 0
    delimiter = told[4] if skipped else _delimiter(text)
    cells = _plain_cells(text, delimiter) or _quoted_cells(text, delimiter, path)
    names, columns, numbers = cells
    names = _names([name.strip() for name in names], path)
    if not columns:
        raise CorpusError(f"{path} has a header line and no rows; give at least two values")
    comma = delimiter != ","
    made = {
        name: Column(name, values, comma and _has_commas(values))
        for name, values in zip(names, columns, strict=True)
    }
    numbers = [number + skipped for number in numbers] if skipped else numbers
    return Table(str(path), made, len(columns[0]), numbers, notes)


#: Header, columns, and the number of each row.
_Cells: TypeAlias = tuple[Sequence[str], Sequence[Sequence[str]], Sequence[int]]


def _plain_cells(text: str, delimiter: str) -> _Cells | None:
    """The cells of a text without quotes and blank lines.

    Much faster than the general way, which makes a list of each row. In a table of one column a
    blank line is a missing value.
    """
    if '"' in text:
        return None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
    width = lines[0].count(delimiter) + 1
    if (
        not lines[0].strip()
        or (width > 1 and not all(lines))
        or {line.count(delimiter) for line in lines} != {width - 1}
    ):
        return None
    cells = delimiter.join(lines[1:]).split(delimiter) if len(lines) > 1 else []
    if width > 1 and any(
        not any(map(str.strip, cells[at : at + width])) for at in _blank(cells, width)
    ):
        return None
    columns = [cells[place::width] for place in range(width)] if cells else []
    return lines[0].split(delimiter), columns, range(2, len(lines) + 1)


def _blank(cells: Sequence[str], width: int) -> Iterator[int]:
    """Where rows start that have an empty first cell."""
    return (at for at in range(0, len(cells), width) if not cells[at].strip())


def _quoted_cells(text: str, delimiter: str, path: Path) -> _Cells:
    """The same of any CSV text; blank rows are left out."""
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise CorpusError(f"{path} is no CSV file: {error}; save it as CSV once more") from None
    lines = [number for number, row in enumerate(rows) if any(map(str.strip, row))]
    kept = rows if len(lines) == len(rows) else [rows[number] for number in lines]
    if not kept:
        raise CorpusError(f"{path} has only blank cells; give a CSV file with a header and values")
    width = len(kept[0])
    wrong = next((at for at, row in enumerate(kept) if len(row) != width), None)
    if wrong is not None:
        raise CorpusError(
            f"{path}, row {lines[wrong] + 1:,}: it has {len(kept[wrong])} columns, but the header "
            f"has {width}; put quotes around what has a {delimiter!r} in it"
        )
    return kept[0], list(zip(*kept[1:], strict=True)), [number + 1 for number in lines[1:]]


def _decoded(data: bytes, source: str) -> tuple[str, tuple[str, ...]]:
    for mark, code in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            try:
                return data.decode(code), (f"{source} is read as UTF-16",)
            except UnicodeDecodeError:
                break
    if b"\0" in data:
        raise CorpusError(
            f"{source} is not a text file: it has NUL bytes; give a CSV file (of a spreadsheet: "
            "save as CSV)"
        )
    try:
        return data.decode("utf-8-sig"), ()
    except UnicodeDecodeError:
        return data.decode("latin-1"), (f"{source} is not UTF-8, and was read as Latin-1",)


def _delimiter(text: str) -> str:
    """The delimiter by which most of the first rows have as many columns as the header."""
    sample = [line for line in text[: 2**16].splitlines()[:_SNIFFED] if line.strip()]
    sample = sample if len(sample) < _SNIFFED else sample[:-1]
    best, chosen = (0.0, 0), ","
    for delimiter in _DELIMITERS:
        try:
            widths = [len(row) for row in csv.reader(sample, delimiter=delimiter)]
        except csv.Error:
            continue
        share = sum(width == widths[0] for width in widths) / len(widths)
        if widths[0] > 1 and (share, widths[0]) > best:
            best, chosen = (share, widths[0]), delimiter
    return chosen


def _names(names: Sequence[str], path: Path) -> list[str]:
    """The names of the header; there has to be one, and none twice."""
    if all(_number(name, True) is not None or name[:4].isdigit() for name in names):
        raise CorpusError(
            f"{path} has no header: its first line is {', '.join(names)[:60]!r}; put the names of "
            "the columns there, such as ds,y"
        )
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    if twice:
        raise CorpusError(f"{path} has several columns named {twice[0]!r}; give each its own name")
    return [name or f"column {place}" for place, name in enumerate(names, 1)]


def _column(name: str, values: Any) -> Column:
    if isinstance(values, np.ma.MaskedArray):
        values = [
            None if is_masked else value
            for value, is_masked in zip(
                values.data.tolist(), np.ma.getmaskarray(values).tolist(), strict=True
            )
        ]
    array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    if array.ndim != 1:
        raise CorpusError(f"the column {name!r} has the shape {array.shape}; give one value a row")
    if array.dtype.kind in "biufM":
        return Column(name, array)
    return Column(name, [_plain(value) for value in array.tolist()])


def _plain(value: Any) -> str:
    """A value as the text that a file would have."""
    if isinstance(value, float):
        return "" if value != value else f"{value:.0f}" if value % 1 == 0 else str(value)
    return "" if value is None else str(value)


def _has_commas(values: Sequence[str]) -> bool:
    return any("," in value for value in values)


def _number(text: str, comma: bool) -> float | None:
    """A number, NaN for a missing value, None for what is neither."""
    text = text.strip()
    if text.lower() in MISSING:
        return float("nan")
    if comma and text.count(",") == 1 and "." not in text:
        text = text.replace(",", ".")
    try:
        return float(text)
    except ValueError:
        return None
