"""The user's cache of compiled kernels, which holds nothing that somebody else could have written.

To load a library is to run it. So before it is, its owner and mode are looked at, and those of the
folder, and its bytes have to give the hash in its name: what a full disk or a power cut damaged is
made anew, and does not end the process.
"""

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from bayesrnn.durable import fsync_directory, reason, write_synced

_HASH = 32


class CacheError(Exception):
    """The cache cannot be used; says why in a part of a line."""


def kept_library(key: str, make: Callable[[Path], bytes]) -> Path:
    """The library of a key in the user's cache, made in a folder that is handed over if it is not
    there or damaged."""
    try:
        folder = _cache_folder()
        _require_only_ours(folder)
        for path in sorted(folder.glob(f"kernel-{key}-*.so")):
            # Of two processes that find a damaged one, neither takes from the other what that made:
            # the new one gets the name by a rename.
            with contextlib.suppress(FileNotFoundError):
                if _hash(_read(path)) == path.stem.rpartition("-")[2]:
                    return path
        with tempfile.TemporaryDirectory(dir=folder) as empty:
            data = make(Path(empty))
            made = Path(empty) / "whole.so"
            write_synced(made, data)
            made.chmod(0o700)  # whatever the umask lets others do
            path = folder / f"kernel-{key}-{_hash(data)}.so"
            made.replace(path)
        fsync_directory(folder)
        return path
    except OSError as error:
        where = f"{ascii(error.filename)[1:-1]}: " if isinstance(error.filename, str) else ""
        raise CacheError(f"{where}{reason(error)}") from None


def _cache_folder() -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # By the standard of the variable, a relative path is none.
        base = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        raise CacheError("this user has no home folder; set HOME or XDG_CACHE_HOME") from None
    folder = base / "bayesrnn"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.resolve()


def _read(path: Path) -> bytes:
    """The bytes of a library that only this user could have written."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        _require_ours(path, os.fstat(descriptor))
        return file.read()


def _require_only_ours(folder: Path) -> None:
    """Refuse a folder that others can write to, or one below a folder that everybody can write to.

    A parent with the sticky bit, as /tmp has it, will do. Who owns a parent, and whether its group
    can write to it, is not looked at.
    """
    _require_ours(folder, folder.stat())
    for parent in folder.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise CacheError(f"{parent} can be written by everybody; mend it: chmod o-w {parent}")


def _require_ours(path: Path, found: os.stat_result) -> None:
    """Refuse what anybody but this user (or root) could have written."""
    if found.st_uid not in (os.getuid(), 0) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CacheError(
            f"{path} can be written by others than you; mend it: chmod go-w {path}, or remove it"
        )


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_HASH]
