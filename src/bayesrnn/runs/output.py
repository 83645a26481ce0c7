"""Where results go: files that the user asked for by name, and the terminal."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from bayesrnn.errors import ConfigError, RunError

#: Columns of the output: as many as the terminal has, within these.
_WIDEST, _NARROWEST = 100, 40


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
    """Write a text to a file; its folder is made if needed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _cannot_write(path, error) from error


def write_json(value: Any, path: Path) -> None:
    """Write JSON to a file, or to standard output for `-`."""
    text = json.dumps(value, indent=2) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        write_text(text, path)
