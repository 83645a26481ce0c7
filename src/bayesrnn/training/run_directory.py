"""A run directory: the settings, the metrics and the results of one training run.

`RUN/config.toml` is everything needed to run it again, `RUN/metrics.jsonl` the record of truth,
`RUN/results/*.json` what evaluations found, and `RUN/.lock` keeps a second process out.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bayesrnn.durable import explained, fsync_directory, reason, write_all, write_durably
from bayesrnn.errors import RunError
from bayesrnn.untrusted import plain_json, read_regular, sealed_json, unsealed

#: A pipe that nobody reads is an error, and not waited for.
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK
_RESULT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


class RunDirectory:
    """The folder of one training run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = MetricsLog(path / "metrics.jsonl")

    def create(self) -> None:
        """Make the folder if it is not there; it has to be writable."""
        try:
            if not self.path.is_dir():
                self.path.mkdir(parents=True, exist_ok=True)
                fsync_directory(self.path.parent)
        except FileExistsError:
            raise RunError(f"{self.path} is a file; give a folder for the run") from None
        except OSError as error:
            raise RunError(
                f"cannot make the run directory {self.path}: {reason(error)}; give another folder"
            ) from error
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise RunError(
                f"cannot write in {self.path}: read-only or permission denied; give another folder"
            )

    @contextlib.contextmanager
    def lock(self, launch: str = "") -> Iterator[None]:
        """Hold the run for this process. The system lets go of it when the process ends or dies.

        launch: what the launcher calls its launch of processes, for `is_of_launch`.
        """
        path = self.path / ".lock"
        with explained(f"lock {self.path}", "give a folder that can be written to"):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o666)
        try:
            with explained(f"lock {self.path}", "give a folder on a disk that allows locks"):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise RunError(_busy(self.path, os.pread(descriptor, 32, 0))) from None
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n{launch}".encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def is_of_launch(self, launch: str) -> bool:
        """Whether a process of this launch was the last to hold the run."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return bool(launch) and (self.path / ".lock").read_text().split("\n")[1:] == [launch]
        return False

    def write_config(self, toml_text: str) -> None:
        """Write the settings of the run."""
        self.write_text("config.toml", toml_text)

    def has_config(self) -> bool:
        """Whether the settings of a run are here."""
        return (self.path / "config.toml").is_file()

    def read_config(self) -> str:
        """The settings of the run, as TOML text."""
        return self.read_text("config.toml")

    def write_text(self, name: str, text: str) -> None:
        """Write a text file into the run's folder."""
        write_durably(self.path / name, text.encode())

    def read_text(self, name: str) -> str:
        """A text file of the run's folder."""
        path = self.path / name
        try:
            return read_regular(path, inside=self.path).decode()
        except (FileNotFoundError, NotADirectoryError):
            raise RunError(
                f"{self.path} is not a run directory: it has no {name}; "
                "give a folder made by `bayesrnn train`"
            ) from None
        except OSError as error:
            raise RunError(f"cannot read {path}: {reason(error)}") from error
        except UnicodeDecodeError:
            raise RunError(f"{path} is damaged: it is not UTF-8 text") from None

    def write_result(self, name: str, result: Mapping[str, Any]) -> Path:
        """Write what an evaluation found to `results/<name>.json`; gives the file's path."""
        if not _RESULT_NAME.fullmatch(name):
            raise RunError(
                f"a result cannot be called {name!r}: use letters, digits, dots, dashes and "
                "underscores, at most 100 of them, and begin with a letter or a digit"
            )
        folder = self.path / "results"
        with explained(f"make {folder}", "what was saved before is whole"):
            if not folder.is_dir():
                folder.mkdir(exist_ok=True)
                fsync_directory(self.path)
        path = folder / f"{name}.json"
        write_durably(path, sealed_json(_finite(result)))
        return path

    def write_sealed(self, name: str, values: Mapping[str, Any]) -> None:
        """Write values as JSON with a checksum, which `read_sealed` looks at."""
        write_durably(self.path / name, sealed_json(values))

    def read_sealed(self, name: str) -> Any:
        """The values of a JSON file; `ValueError` if it is none, or not as it was written."""
        return unsealed(plain_json(self.read_text(name)))


class MetricsLog:
    """Records as lines of JSON, in the order in which they were made.

    A number that is not finite is written as null: JSON has none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record. If it cannot be written whole, nothing of it stays."""
        line = json.dumps(_finite(record), allow_nan=False).encode() + b"\n"
        with explained(f"write {self.path}", "what was saved before is whole"):
            descriptor = os.open(self.path, _APPEND, 0o666)
            try:
                before = os.fstat(descriptor).st_size
                try:
                    write_all(descriptor, line)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.ftruncate(descriptor, before)
                    raise
            finally:
                os.close(descriptor)

    def size(self) -> int:
        """The bytes written so far, after making sure that they are on the disk.

        Saved in a checkpoint, it is the place to go back to with `truncate`.
        """
        with explained(f"write {self.path}", "what was saved before is whole"):
            try:
                descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
            except FileNotFoundError:
                return 0
            try:
                os.fsync(descriptor)
                return os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)

    def hash(self) -> str:
        """The hash of what is written so far; saved in a checkpoint, it shows later changes."""
        with explained(f"read {self.path}", "what was saved before is whole"):
            try:
                return hashlib.sha256(read_regular(self.path)).hexdigest()
            except FileNotFoundError:
                return hashlib.sha256(b"").hexdigest()

    def truncate(self, size: int) -> None:
        """Drop what was written after the first `size` bytes, and a torn line before them."""
        with explained(f"write {self.path}", "what was saved before is whole"):
            try:
                kept = read_regular(self.path)[:size]
            except FileNotFoundError:
                return
            os.truncate(self.path, kept.rfind(b"\n") + 1)

    def read(self, known: tuple[int, str] | None = None) -> list[dict[str, Any]]:
        """All records. A torn last line (of a killed process) is left out; any other is refused.

        known: the size and the hash of the beginning, where a checkpoint says them.
        """
        with explained(f"read {self.path}", "see whether the run directory is the right one"):
            try:
                data = read_regular(self.path)
            except FileNotFoundError:
                return []
        if known is not None and hashlib.sha256(data[: known[0]]).hexdigest() != known[1]:
            raise RunError(
                f"{self.path} was changed since the run was trained: it does not match the hash "
                "that the last checkpoint has of it; put it back, or remove it to do without"
            )
        records: list[dict[str, Any]] = []
        for number, line in enumerate(data.split(b"\n")[:-1], start=1):
            try:
                record = plain_json(line)
            except ValueError:
                record = None
            if not isinstance(record, dict):
                raise RunError(f"{self.path} is damaged: line {number} is not a record")
            if record.get("kind") == "epoch" and not _is_numbered(record):
                raise RunError(
                    f"{self.path} is damaged: it has the figures of an epoch without its number "
                    f"(line {number})"
                )
            records.append(record)
        return records


def _is_numbered(record: Mapping[str, Any]) -> bool:
    return all(type(record.get(name)) is int for name in ("epoch", "step"))


def _busy(path: Path, holder: bytes) -> str:
    number = holder.split(b"\n")[0].strip().decode("ascii", errors="replace")
    process = f"another process (pid {number})" if number.isdigit() else "another process"
    return f"{process} is training in {path}; wait for it, stop it, or give another folder"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class FollowedRunDirectory(RunDirectory):
    """The folder of a run that another process writes; here nothing is written."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.metrics = _NoMetricsLog(path / "metrics.jsonl")

    def create(self) -> None:
        """The other process makes it."""

    @contextlib.contextmanager
    def lock(self, launch: str = "") -> Iterator[None]:
        """The other process holds it."""
        del launch
        yield

    def write_text(self, name: str, text: str) -> None:
        """The other process writes it."""


class _NoMetricsLog(MetricsLog):
    """Records that another process writes."""

    def append(self, record: Mapping[str, Any]) -> None:
        """The other process does."""

    def size(self) -> int:
        """Unknown here, and needed by the other process alone."""
        return 0

    def hash(self) -> str:
        """Unknown likewise."""
        return ""

    def truncate(self, size: int) -> None:
        """The other process does."""
