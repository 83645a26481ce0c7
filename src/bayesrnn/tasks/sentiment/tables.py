"""A user's own texts and targets, from a table in a CSV file."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bayesrnn.data.text import read_text
from bayesrnn.errors import ConfigError, CorpusError

#: What the column of the targets may be called where the user does not say.
TARGET_NAMES: Final = ("rating", "score", "number", "label", "target")
TARGET_KINDS: Final = ("auto", "number", "label")

#: What stands between columns, by the name of the option that says so.
DELIMITERS: Final = {"comma": ",", "semicolon": ";", "tab": "\t"}

#: The ends of the names of tables, which may also end in .gz after them.
TABLES: Final = (".csv", ".tsv")

_TEXT_NAME = "text"
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")


def is_table(path: Path) -> bool:
    """Whether a file is read as a table, by the end of its name."""
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    return plain.suffix.lower() in TABLES


class TextTable(NamedTuple):
    """Texts, for each a number or a label, and the number of its row."""

    texts: list[str]
    targets: list[float] | list[str]
    rows: list[int]


def read_table(
    path: Path,
    text_column: str | None = None,
    target_column: str | None = None,
    kind: str = "auto",
    delimiter: str | None = None,
) -> TextTable:
    """Read a CSV file: UTF-8, a header line, quotes around what has delimiters or line breaks.

    The delimiter is a name of `DELIMITERS`, or else what the header line has between its names.
    Where it is no comma, numbers may be written with a decimal comma.

    Columns left out are found by their names, `text` and one of `TARGET_NAMES`; in a table of two
    columns, the other one follows from one that is known. `kind` says what targets are: "number",
    where one that is not a number is an error that names it; "label"; or "auto", which is "number"
    if more than half of the targets are numbers and else "label", but refuses labels that are all
    numbers with a decimal comma. Rows are counted as a spreadsheet does: the header is row 1.
    """
    content = read_text(path)
    sign = _delimiter(content, delimiter)
    rows = _rows(path, content, sign)
    header = next(rows, (0, []))[1]
    names = [name.strip() for name in header]
    if not any(names):
        raise CorpusError(f"{path} is empty; give a CSV file with a header line")
    text, target = _columns(path, names, text_column, target_column)
    texts, targets, numbers = list[str](), list[str](), list[int]()
    for number, row in rows:
        if len(row) != len(names):
            raise CorpusError(
                f"{path}, row {number}: it has {len(row)} columns, but the header has "
                f"{len(names)}; put quotes around a text with {_named(sign)}s"
            )
        texts.append(row[text])
        targets.append(row[target].strip())
        numbers.append(number)
        if not targets[-1]:
            raise CorpusError(
                f"{path}, row {number}: the column {names[target]!r} is empty; "
                "give each text a number or a label"
            )
    if not texts:
        raise CorpusError(f"{path} has a header line and no rows; give one row for each text")
    return TextTable(texts, _targets(path, targets, numbers, kind, sign != ","), numbers)


def read_texts(
    path: Path, text_column: str | None = None, delimiter: str | None = None
) -> dict[int, str]:
    """The texts alone of a table as `read_table` reads it, whatever else it has or has not.

    By the numbers of their rows.
    """
    content = read_text(path)
    rows = _rows(path, content, _delimiter(content, delimiter))
    names = [name.strip() for name in next(rows, (0, []))[1]]
    place = _text_place(path, names, text_column)
    if place is None and len(names) != 1:
        raise _no_text_column(path, names)
    return {number: row[place or 0] for number, row in rows if len(row) > (place or 0)}


def _delimiter(content: str, given: str | None) -> str:
    """The sign between the names of the header, unless it is given; a comma where there is none."""
    if given is not None:
        return DELIMITERS[given]
    header = content.lstrip("\n").split("\n", 1)[0]
    for sign in DELIMITERS.values():
        # What is no line of a CSV file is for `_rows` to say.
        with contextlib.suppress(csv.Error), _fields_up_to(len(header)):
            if len(next(csv.reader([header], delimiter=sign), [])) > 1:
                return sign
    return ","


def _named(sign: str) -> str:
    return next(name for name, own in DELIMITERS.items() if own == sign)


def _rows(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, with their numbers from 1."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    number = 0
    while True:
        number += 1
        try:
            with _fields_up_to(len(text)):
                row = next(reader, None)
        except csv.Error as error:
            raise CorpusError(
                f"{path}, row {number} (line {reader.line_num}): {error}; it has to be a CSV file "
                f"with {_named(delimiter)}s between columns, and quotes around a text with "
                f"{_named(delimiter)}s or line breaks"
            ) from None
        if row is None:
            return
        if row:
            yield number, row


@contextlib.contextmanager
def _fields_up_to(length: int) -> Iterator[None]:
    """Allow fields of this length for a moment; the limit holds for the whole process."""
    before = csv.field_size_limit()
    csv.field_size_limit(max(before, length))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _columns(
    path: Path, names: Sequence[str], text: str | None, target: str | None
) -> tuple[int, int]:
    text_place = _text_place(path, names, text)
    target_place = _place(path, names, target, "--target-column")
    folded = [name.casefold() for name in names]
    if target_place is None:
        known = [folded.index(name) for name in TARGET_NAMES if name in folded]
        target_place = next((place for place in known if place != text_place), None)
    if len(names) == 2 and (text_place is None) != (target_place is None):
        known_place = target_place if text_place is None else text_place
        other = 1 - known_place if known_place is not None else None
        text_place, target_place = (
            other if text_place is None else text_place,
            other if target_place is None else target_place,
        )
    if text_place is None:
        raise _no_text_column(path, names)
    if target_place is None:
        raise ConfigError(
            f"{path} has no column {' or '.join(TARGET_NAMES)}; it has: {', '.join(names)}; "
            "say which one is to be predicted with --target-column"
        )
    if text_place == target_place:
        raise ConfigError(
            f"the column {names[text_place]!r} of {path} cannot be text and target at once; "
            "give --text-column and --target-column"
        )
    return text_place, target_place


def _text_place(path: Path, names: Sequence[str], text: str | None) -> int | None:
    folded = [name.casefold() for name in names]
    if text is None and _TEXT_NAME in folded:
        return folded.index(_TEXT_NAME)
    return _place(path, names, text, "--text-column")


def _no_text_column(path: Path, names: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"{path} has no column {_TEXT_NAME!r}; it has: {', '.join(names)}; "
        "say which one holds the texts with --text-column"
    )


def _place(path: Path, names: Sequence[str], wanted: str | None, flag: str) -> int | None:
    if wanted is None:
        return None
    if wanted not in names:
        raise ConfigError(
            f"{flag} is {wanted!r}, but the columns of {path} are: {', '.join(names)}"
        )
    return names.index(wanted)


def _targets(
    path: Path, targets: list[str], rows: Sequence[int], kind: str, decimal_commas: bool
) -> list[float] | list[str]:
    found = [_number(target, decimal_commas) for target in targets]
    right = [number for number in found if number is not None]
    if kind == "label" or len(right) == len(found):
        return targets if kind == "label" else right
    wrong = found.index(None)
    others = [target for target, number in zip(targets, found, strict=True) if number is None]
    commas = all(map(_DECIMAL_COMMA.fullmatch, others))
    if kind == "auto" and len(right) <= len(found) / 2 and not commas:
        return targets
    advice = "; write numbers with a decimal point: 7.3" if commas else ""
    if kind == "auto":
        advice += "; give --target label if these are labels"
    raise CorpusError(
        f"{path}, row {rows[wrong]}: {targets[wrong]!r} is not a number, as {len(right):,} of "
        f"{len(found):,} targets are{advice}"
    )


def _number(text: str, decimal_comma: bool) -> float | None:
    """A finite number in plain digits; Python itself would also take 1_000 and those of others."""
    if "_" in text or not text.isascii():
        return None
    if decimal_comma and _DECIMAL_COMMA.fullmatch(text):
        text = text.replace(",", ".")
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
