"""Where results go: files that the user asked for by name, and the terminal."""

import csv
import io
import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bayesrnn.durable import write_durably
from bayesrnn.errors import ConfigError, RunError

#: Columns of the output: as many as the terminal has, within these.
_WIDEST, _NARROWEST = 100, 40

#: What the formulas of spreadsheets begin with.
_FORMULAS = ("=", "+", "-", "@", "\t", "\n")


def columns() -> int:
    """How many columns of the terminal there are to write in."""
    return max(min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST), _NARROWEST)


def require_outputs(html: Path | None, json: Path | None) -> None:
    """Refuse files that cannot be written, before the work that is to fill them."""
    if html is not None:
        if str(html) == "-":
            raise ConfigError("--html is -, but a page is written to a file; give its name")
        if html == json:
            raise ConfigError(f"--html and --json are both {html}; give two files")
        require_writable(html)
    if json is not None and str(json) != "-":
        require_writable(json)


def require_writable(path: Path) -> None:
    """Refuse a file that cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        existed = path.exists()
        with path.open("a"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> RunError:
    return RunError(f"cannot write {path}: {error.strerror}")


def write_text(text: str, path: Path) -> None:
    """Write a text to a file, whole or not at all; its folder is made if needed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a pipe or a device, which nothing can replace
            path.write_text(text, encoding="utf-8")
            return
    except OSError as error:
        raise _cannot_write(path, error) from error
    # What a link names is replaced, not the link.
    write_durably(path.resolve(), text.encode())


def csv_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV, with a header; numbers with all the digits that mean something.

    A text that a spreadsheet would take for a formula, and run, begins with an apostrophe, which
    spreadsheets do not show.
    """
    written = io.StringIO()
    writer = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(written, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return written.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.7g}"
    if not isinstance(value, str):
        return value
    text = value.replace("\r", "\n")  # which not every version of Python would put in quotes
    return f"'{text}" if text.startswith(_FORMULAS) else text


def write_json(value: Any, path: Path) -> None:
    """Write JSON to a file, or to standard output for `-`."""
    text = json.dumps(value, indent=2) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        write_text(text, path)
