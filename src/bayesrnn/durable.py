"""Files that are either wholly written or not touched at all.

A file is written under a temporary name, flushed to the disk, and renamed over the old one. A
rename is atomic, so whoever looks (or whatever is left after a kill or a power cut) sees the old
content or the new, never a mixture.
"""

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from bayesrnn.errors import RunError

_TEMPORARY = re.compile(r"\..+\.([1-9][0-9]{0,8})\.tmp", re.ASCII | re.DOTALL)

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota of this user is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EFBIG: "the file would be larger than this process may write",
    errno.EIO: "the disk reports an error",
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "part of the path is a file, not a folder",
    errno.EISDIR: "there is a folder of that name",
    errno.ENAMETOOLONG: "the name is too long",
}


def reason(error: OSError) -> str:
    """Say in plain words why the operating system refused."""
    if error.errno in _REASONS:
        return _REASONS[error.errno]
    return error.strerror or str(error) or type(error).__name__


@contextlib.contextmanager
def explained(doing: str, advice: str) -> Iterator[None]:
    """Turn an `OSError` of the block into one line: "cannot <doing>: <reason>; <advice>"."""
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot {doing}: {reason(error)}; {advice}") from error


def fsync_directory(path: Path) -> None:
    """Make the names in a folder durable: which files exist, and under which name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and wait until its content is on the disk; an `OSError` is passed on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; the system may take fewer in one call than it was offered."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def remove_left_behind(folder: Path) -> None:
    """Remove temporary files of `write_durably` in a folder whose writers were killed.

    Those of processes that are there may be wanted; another machine's may seem not to be.
    """
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return
    for name in names:
        found = _TEMPORARY.fullmatch(name)
        if found and not _is_alive(int(found[1])):
            with contextlib.suppress(OSError):
                (folder / name).unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file's content in one step that a kill, a full disk or a power cut cannot halve.

    After an error the old file is whole and the temporary one is gone.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with explained(f"write {path}", "what was saved before is whole"):
        try:
            write_synced(temporary, data)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        fsync_directory(path.parent)
