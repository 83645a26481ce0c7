"""Which worker trains a trial: a file that the worker holds, and whose time it keeps new.

On its own machine, the system says at once whether a worker lives: it holds a lock on the file. Of
a worker on another machine, which may have vanished with its locks, the age of the file says it.
"""

import contextlib
import fcntl
import os
import platform
import threading
import uuid
from pathlib import Path
from types import TracebackType

from bayesrnn.durable import explained
from bayesrnn.progress import say

#: Beats of a heart within the time after which it is taken for dead.
_BEATS = 6


def this_machine() -> str:
    """What tells machines apart: which start of a kernel this is, or else the name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


class Lease:
    """The right to train a trial, until it is released or this process ends.

    Each process that holds one writes its file anew some times a minute. A worker that finds its
    file to be another's ends at once: after so long a sleep, its trial has been given away.
    """

    def __init__(self, path: Path, descriptor: int, seconds: float) -> None:
        self.path, self.seconds = path, seconds
        self._descriptor = descriptor
        self._text = f"{this_machine()}\n{platform.node()}, process {os.getpid()}\n{uuid.uuid4()}\n"
        with explained(f"write {path}", "nothing of the trial is lost"):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, self._text.encode(), 0)
        self._released = threading.Event()
        self._heart = threading.Thread(target=self._beat, daemon=True)
        self._heart.start()

    @classmethod
    def take(cls, path: Path, seconds: float) -> "Lease | None":
        """Take the lease; None where another worker that lives has it.

        Whoever calls this holds the lock of the search.

        seconds: after which a worker of another machine that does nothing is taken for dead.
        """
        with explained(f"open {path}", "give a folder that can be written to"):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            text = os.pread(descriptor, 1000, 0).decode(errors="replace")
            is_ours = not text or text.split("\n")[0] == this_machine()
            is_gone = not is_ours and _age(path, descriptor) > seconds
            is_free = _locked(descriptor)
            if is_free and (is_ours or is_gone):
                return cls(path, descriptor, seconds)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if not is_gone:
            return None
        # The server of the folder still holds the locks of a machine that is gone.
        for held in (path, path.with_name(".lock")):
            held.unlink(missing_ok=True)
        return cls.take(path, seconds)

    def release(self) -> None:
        """Let others have the trial."""
        self._released.set()
        self._heart.join()
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def __enter__(self) -> "Lease":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _beat(self) -> None:
        while not self._released.wait(self.seconds / _BEATS):
            if not self._is_held():
                say(f"{self.path.parent} was given to another worker while this one slept")
                os._exit(1)  # anything more that it writes would be between the other's lines

    def _is_held(self) -> bool:
        """Keep the file new, and say whether it is still this worker's."""
        try:
            if self.path.read_text(encoding="utf-8") != self._text:
                return False
            os.utime(self.path)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # a disk that does not answer says nothing about the lease
        return True


def _locked(descriptor: int) -> bool:
    """Lock an open file, if nobody else has."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holder(path: Path) -> str:
    """Who has the lease, or had it when it ended, in words; empty where it was released."""
    try:
        with path.open("rb") as file:
            lines = file.read(1000).decode(errors="replace").splitlines()
            seconds = _age(path, file.fileno())
    except OSError:
        return ""
    return f"{lines[1]}, heard of {seconds:.0f} s ago" if len(lines) > 1 else ""


def _age(path: Path, descriptor: int) -> float:
    """Seconds since the file was written, by the clock of the disk that it is on."""
    clock = path.with_name(f".clock.{os.getpid()}")
    clock.touch()
    try:
        return clock.stat().st_mtime - os.fstat(descriptor).st_mtime
    finally:
        clock.unlink(missing_ok=True)
