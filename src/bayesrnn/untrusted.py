"""Reading files that anybody may have written: no waiting, no endless memory, one line if it fails.

A name in a folder that came from elsewhere may be a pipe that nobody writes to, a device without
end, or a link to another place; and a text may be nested, or have digits, beyond all measure.
"""

import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesrnn.errors import ConfigError

#: The most bytes of a text that a run directory holds: settings, words, metrics, results.
MOST_TEXT = 2**30
_PART = 2**20

#: Whole numbers that files may hold are those of 64 bits, as in TOML.
LARGEST = 2**63 - 1


def read_regular(path: Path, most: int = MOST_TEXT, inside: Path | None = None) -> bytes:
    """The bytes of a regular file; an `OSError` says what else it is, or that it is too large.

    most: the bytes that are read of it at most.
    inside: a folder that a link may not lead out of.
    """
    if inside is not None and path.is_symlink() and not _leads_into(path, inside):
        raise _refusal(path, "it is a link that leads out of the folder; put the file itself there")
    # A pipe is opened without waiting for its other end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _refusal(path, "it is not a file, but a folder, a pipe or a device")
        if found.st_size > most:
            raise _refusal(path, f"it has {found.st_size:,} bytes, and at most {most:,} are read")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            parts = [file.read(found.st_size + 1)]
            # Some file systems do not know a size before they are read.
            while parts[-1] and sum(map(len, parts)) <= most:
                parts.append(file.read(_PART))
        data = b"".join(parts)
        if len(data) > most:
            raise _refusal(path, f"it has more than {most:,} bytes, and no more are read")
        return data
    finally:
        os.close(descriptor)


def plain_json(data: bytes | str) -> Any:
    """The value of a JSON text of ours; `ValueError` for whatever else it is.

    Too deep, numbers that are not finite, or whole numbers of more than 64 bits: nothing of ours
    has them, and what follows would meet them unprepared.
    """
    try:
        return json.loads(
            data, parse_int=_whole_number, parse_float=_number, parse_constant=_no_number
        )
    except RecursionError:
        raise ValueError("it is nested too deep") from None


#: The entry of a JSON file that holds the hash of all others.
_SEAL = "checksum"


def sealed_json(values: Mapping[str, Any]) -> bytes:
    """Values as the bytes of a JSON file, with a hash of themselves."""
    plain = json.loads(json.dumps(values, allow_nan=False))
    return (json.dumps({**plain, _SEAL: _hash(plain)}, indent=2) + "\n").encode()


def unsealed(values: Any) -> Any:
    """The values without their hash; `ValueError` if it is not theirs.

    Files of earlier versions have no hash, and are taken as they are.
    """
    if not isinstance(values, dict) or _SEAL not in values:
        return values
    plain = {name: value for name, value in values.items() if name != _SEAL}
    if values[_SEAL] != _hash(plain):
        raise ValueError("its content does not match its checksum")
    return plain


def _hash(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def limit_from(variable: str, default: int) -> int:
    """A limit on what is read, which the user may lift by an environment variable."""
    given = os.environ.get(variable, "").strip()
    if not given:
        return default
    if not (given.isascii() and given.isdigit() and 0 < len(given) < 16 and int(given)):
        raise ConfigError(f"{variable} is {given[:40]!r}; it has to be a whole number above 0")
    return int(given)


def _leads_into(path: Path, folder: Path) -> bool:
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a link to itself
        return False


def _refusal(path: Path, words: str) -> OSError:
    return OSError(0, words, str(path))


def _whole_number(digits: str) -> int:
    number = int(digits) if len(digits) < 21 else LARGEST + 1
    if abs(number) > LARGEST:
        raise ValueError("it has a whole number of more than 64 bits")
    return number


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("it has a number that is not finite")
    return number


def _no_number(name: str) -> float:
    raise ValueError(f"it has {name}, which is no number")
