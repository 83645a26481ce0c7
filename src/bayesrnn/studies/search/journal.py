"""Optuna's journal file, mended where a kill tore it, and locked by the system.

A process that is killed while it writes leaves half a line. Optuna passes over it, until the next
record is written behind it on the same line: then every reader fails from there on. So what is torn
is cut off before anything is written, and before the file is first read.

Optuna's own locks are files, which a killed process leaves behind: all others then wait for half a
minute. The system frees its locks when a process ends.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bayesrnn.durable import explained, write_durably
from bayesrnn.errors import MissingExtraError
from bayesrnn.progress import say

#: What each record of Optuna begins with.
_START: Final = b'{"op_code"'


class SystemLock:
    """A lock on a file of its own, with the two methods that Optuna asks of one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def acquire(self) -> bool:
        """Wait for the lock."""
        with explained(f"lock {self.path}", "give a folder on a disk that allows locks"):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except BaseException:
                os.close(descriptor)
                raise
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold it inside the block."""
        self.acquire()
        try:
            yield
        finally:
            self.release()


class _WritersLock(SystemLock):
    """The lock that whoever writes into a journal holds: by then its last line is whole."""

    def __init__(self, journal: Path) -> None:
        super().__init__(journal.with_name(f".{journal.name}.lock"))
        self.journal = journal

    def acquire(self) -> bool:
        """Wait for the lock, and cut off what a kill left of a line."""
        super().acquire()
        try:
            cut_torn_end(self.journal)
        except BaseException:
            self.release()
            raise
        return True


def cut_torn_end(path: Path) -> None:
    """Cut off what stands behind the last whole line; nobody has taken it for written."""
    with path.open("r+b") as file:
        size = end = file.seek(0, os.SEEK_END)
        torn = b""
        while end and b"\n" not in torn:
            start = max(0, end - 4096)
            file.seek(start)
            torn = file.read(end - start) + torn
            end = start
        whole = end + torn.rfind(b"\n") + 1
        if whole < size:
            file.truncate(whole)


def mend(path: Path) -> None:
    """Cut off a torn end, and take torn records out of the lines: those that are no JSON.

    What was written behind a torn record on its line was whole, and is kept.
    """
    with _WritersLock(path).held():
        data = path.read_bytes()
        lines = data.splitlines(keepends=True)
        mended = [whole for line in lines if (whole := _whole(line))]
        if mended != lines:
            write_durably(path, b"".join(mended))
            say(f"note: a record that a kill tore was taken out of {path}")


def _whole(line: bytes) -> bytes:
    """The last record that begins in the line and is whole; nothing if there is none."""
    start = 0
    while start >= 0:
        with contextlib.suppress(ValueError):
            if isinstance(json.loads(line[start:]), dict):
                return line[start:]
        start = line.find(_START, start + 1)
    return b""


def open_journal(path: Path) -> Any:
    """Optuna's storage in a journal file that is whole."""
    optuna = require_optuna()
    path.touch()
    mend(path)
    backend = optuna.storages.journal.JournalFileBackend(str(path), lock_obj=_WritersLock(path))
    return optuna.storages.JournalStorage(backend)


def require_optuna() -> Any:
    """The module; without it, an error that names the extra."""
    try:
        import optuna
        import optuna.storages.journal
    except ImportError:
        raise MissingExtraError("a search needs an extra: pip install 'bayesrnn[search]'") from None
    # It would print a line for each trial and study; trials say themselves what they do.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
