import errno
import os
from pathlib import Path
from typing import Any

import pytest

from bayesrnn.durable import fsync_directory, write_durably, write_synced
from bayesrnn.errors import RunError


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_durably(path, b"old")
    write_durably(path, b"new and longer")
    assert path.read_bytes() == b"new and longer"
    assert names(tmp_path) == ["file"]


def test_everything_is_synced_before_and_after_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def log_fsync(descriptor: int) -> None:
        calls.append("sync " + Path(f"/dev/fd/{descriptor}").resolve().name)
        fsync(descriptor)

    def log_replace(self: Path, target: Path) -> Path:
        calls.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", log_fsync)
    monkeypatch.setattr(Path, "replace", log_replace)
    write_durably(tmp_path / "file", b"data")
    assert calls == [f"sync .file.{os.getpid()}.tmp", "rename", f"sync {tmp_path.name}"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:3])))
    write_durably(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission denied"),
        (errno.EDQUOT, "quota"),
        (errno.EBUSY, os.strerror(errno.EBUSY)),
    ],
)
def test_an_error_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, words: str
) -> None:
    path = tmp_path / "file"
    write_durably(path, b"old")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path if call == "replace" else os, call, refuse)
    with pytest.raises(RunError, match=words) as caught:
        write_durably(path, b"new")
    monkeypatch.undo()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_really_full_device() -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        write_synced(Path("/dev/full"), b"data")
    assert caught.value.errno == errno.ENOSPC


def test_missing_folder_and_folder_in_the_way(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such file or folder"):
        write_durably(tmp_path / "absent" / "file", b"")
    (tmp_path / "taken").mkdir()
    with pytest.raises(RunError, match="folder of that name"):
        write_durably(tmp_path / "taken", b"")
    assert names(tmp_path) == ["taken"]
    with pytest.raises(FileNotFoundError):
        fsync_directory(tmp_path / "absent")
