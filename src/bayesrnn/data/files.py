"""Reading data files, plain or gzip."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from pathlib import Path
from typing import Final

from bayesrnn.errors import CorpusError
from bayesrnn.untrusted import limit_from, read_regular

#: Environment variable for the most megabytes that a packed file may become.
MOST_UNPACKED: Final = "BAYESRNN_UNPACKED_MB"
_USUAL_MEGABYTES = 1024
#: The most bytes of a file as it is; what is read has to fit into memory anyway.
_MOST_FILE = 2**40


def most_unpacked() -> int:
    """The most bytes that a packed file may become: a few can be made to become any number."""
    return limit_from(MOST_UNPACKED, _USUAL_MEGABYTES) * 1_000_000


def too_much_unpacked() -> str:
    """What is wrong with a packed file that becomes more, and how to read it all the same."""
    return (
        f"becomes more than {most_unpacked() // 1_000_000:,} MB; unpack it yourself if you trust "
        f"it, or set {MOST_UNPACKED} to more megabytes"
    )


def with_home(path: str | Path) -> Path:
    """The path with this user's home folder in place of a leading `~/`.

    Nothing else that begins with `~` is anybody's home: a file may have such a name. Without a home
    folder the path stays as it is.
    """
    given = Path(path)
    return given.expanduser() if str(path).startswith("~/") and _has_home() else given


def _has_home() -> bool:
    try:
        Path.home()
    except RuntimeError:
        return False
    return True


def read_bytes(path: Path, advice: str = "copy or compress it again") -> bytes:
    """The content of a file, unpacked if it is gzip; `advice` is for one that is damaged."""
    try:
        if path.exists() and not path.is_file():
            raise CorpusError(f"{path} is not a file; give a plain or gzipped file")
        data = read_regular(path, _MOST_FILE)
    except FileNotFoundError as error:
        raise CorpusError(f"there is no file {path}; check the path") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"{path} cannot be read: {reason}") from error
    if not data.startswith(b"\x1f\x8b") and path.suffix != ".gz":
        return data
    most = most_unpacked()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(most + 1)
        if len(unpacked) > most:
            raise CorpusError(f"{path} is packed, and {too_much_unpacked()}")
        return unpacked
    except (EOFError, OSError, zlib.error) as error:
        raise CorpusError(
            f"{path} is not a whole gzip file, it is damaged or was cut short ({error}); {advice}"
        ) from error


SPLITS: Final = ("train", "valid", "test")
_ELSEWHERE = "give another --data-dir or BAYESRNN_DATA"


def is_there(path: Path, advice: str) -> bool:
    """Whether there is a file; `advice` ends the error if that cannot be found out."""
    try:
        return path.exists()
    except (OSError, ValueError) as error:  # no permission, too long, not a possible name
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"{str(path)!r} cannot be opened: {reason}; {advice}") from error


def find_published(file: str, data_dir: Path | None) -> Path | None:
    """Find a file, plain or .gz, under `data_dir`, or else under the folder in BAYESRNN_DATA."""
    base = data_dir or os.environ.get("BAYESRNN_DATA")
    if not base:
        return None
    plain = with_home(base) / file
    paths = (plain, plain.with_name(plain.name + ".gz"))
    return next((path for path in paths if is_there(path, _ELSEWHERE)), None)


def published_file(name: str, file: str, data_dir: Path | None) -> Path:
    """As `find_published`, for a file that the data set `name` cannot do without."""
    base = data_dir or os.environ.get("BAYESRNN_DATA")
    if not base:
        raise CorpusError(
            f"the data set {name!r} needs a data folder that holds {file} (or .gz); "
            "give --data-dir or set the environment variable BAYESRNN_DATA"
        )
    path = find_published(file, data_dir)
    if path is None:
        plain = with_home(base) / file
        raise CorpusError(
            f"the data set {name!r} was not found: looked for {plain} and {plain}.gz; "
            f"put the file there, or {_ELSEWHERE}"
        )
    return path
