"""Reading data files, plain or gzip."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from bayesrnn.errors import CorpusError


def read_bytes(path: Path, advice: str = "copy or compress it again") -> bytes:
    """The content of a file, unpacked if it is gzip; `advice` is for one that is damaged."""
    try:
        if path.exists() and not path.is_file():
            raise CorpusError(f"{path} is not a file; give a plain or gzipped file")
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise CorpusError(f"there is no file {path}; check the path") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"{path} cannot be read: {reason}") from error
    if not data.startswith(b"\x1f\x8b") and path.suffix != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise CorpusError(
            f"{path} is not a whole gzip file, it is damaged or was cut short ({error}); {advice}"
        ) from error
