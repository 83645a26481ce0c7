"""The manifest of a compact file: its description in the header, with a checksum."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray

from bayesrnn.errors import CheckpointError

#: The entry of the safetensors metadata that holds the manifest.
KEY = "bayesrnn"

#: The versions that can be read; the last one is written.
VERSIONS = (1, 2, 3, 4)

#: The longest header that safetensors reads.
LONGEST_HEADER = 100_000_000

_FORMAT = "bayesrnn-compact"


def manifest_text(content: dict[str, Any]) -> str:
    """The canonical text of a manifest, so that every changed value is detected."""
    content = {"format": _FORMAT, "version": VERSIONS[-1], **content}
    content = json.loads(_canonical(content))
    return _canonical({"content": content, "checksum": _checksum(content)})


def is_compact(path: Path) -> bool:
    """Whether a file claims to be a compact one; whether it is whole shows when it is read."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return KEY in _metadata(file, path.stat().st_size)
    except (OSError, ValueError, RecursionError):
        return False


def read_manifest(path: Path) -> tuple[bytes, dict[str, Any]]:
    """The bytes of a file, and the content of its manifest."""
    try:
        if not path.exists():
            raise CheckpointError(f"{path} is missing; give a file of `bayesrnn prune --out`")
        if not path.is_file():
            raise CheckpointError(f"{path} is not a file; give one of `bayesrnn prune --out`")
        with path.open("rb") as file:
            # The whole file is read only if its beginning says that it is one of ours.
            manifest = _metadata(file, path.stat().st_size).get(KEY)
            if not isinstance(manifest, str):
                raise ValueError
            file.seek(0)
            data = file.read()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        raise CheckpointError(
            f"{path} is damaged, or not a compact file; give one of `bayesrnn prune --out`, or the "
            "folder of a run"
        ) from None
    return data, _content(path, manifest)


def sha256(array: NDArray[Any]) -> str:
    """The hash of a part of a file."""
    return hashlib.sha256(array.tobytes()).hexdigest()


def _metadata(file: BinaryIO, size: int) -> dict[str, Any]:
    """The metadata of a safetensors file of this size, read from its beginning."""
    start = file.read(8)
    if len(start) < 8:
        raise ValueError("the file is too short")
    (length,) = struct.unpack("<Q", start)
    if length > min(LONGEST_HEADER, size - 8):
        raise ValueError("the header is longer than the file")
    header = json.loads(file.read(length).decode())
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def _content(path: Path, manifest: str) -> dict[str, Any]:
    try:
        whole = json.loads(manifest)
        content = whole["content"]
        kind, version, about = content["format"], content["version"], content["about"]
        intact = whole["checksum"] == _checksum(content) and isinstance(about, dict)
    except (ValueError, LookupError, TypeError, RecursionError):
        kind, version, intact = _FORMAT, VERSIONS[-1], False
    if kind != _FORMAT:
        raise CheckpointError(f"{path} is not a compact file; give one of `bayesrnn prune --out`")
    if not intact:
        raise CheckpointError(
            f"{path} is damaged: its manifest does not match its checksum; write it again"
        )
    if version not in VERSIONS:
        raise CheckpointError(
            f"{path} has format version {version!r}; this bayesrnn reads versions "
            f"{', '.join(map(str, VERSIONS))}, so take a newer one, or write the file again"
        )
    assert isinstance(content, dict)
    return content


def _checksum(content: Any) -> str:
    return hashlib.sha256(_canonical(content).encode()).hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
