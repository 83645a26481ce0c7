import errno
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bayesrnn.errors import RunError
from bayesrnn.training.run_directory import MetricsLog, RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "deep" / "run")
    run.create()
    return run


def refuse(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_create_again_is_fine(run: RunDirectory) -> None:
    run.create()
    assert run.path.is_dir()


def test_create_where_it_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file is a file; give a folder"):
        RunDirectory(tmp_path / "file").create()
    with pytest.raises(RunError, match="part of the path is a file"):
        RunDirectory(tmp_path / "file" / "run").create()

    def read_only(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(RunError, match="read-only; give another folder"):
        RunDirectory(tmp_path / "run").create()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(RunError, match="cannot write in"):
        RunDirectory(tmp_path).create()


HOLD = """
import sys
from pathlib import Path
from bayesrnn.training.run_directory import RunDirectory
with RunDirectory(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_is_killed(run: RunDirectory) -> None:
    command = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(RunError, match=rf"pid {holder.pid}\) is training in "), run.lock():
                pytest.fail("the lock was given twice")
        finally:
            holder.send_signal(signal.SIGKILL)
    with run.lock():
        assert (run.path / ".lock").read_text() == f"{os.getpid()}\n"


def test_the_lock_is_freed_by_an_error_and_refused_within_a_process(run: RunDirectory) -> None:
    with pytest.raises(KeyError), run.lock():
        raise KeyError
    with run.lock(), pytest.raises(RunError, match="is training in"), run.lock():
        pytest.fail("the lock was given twice")


def test_the_lock_needs_a_folder_and_space(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunError, match="cannot lock"), RunDirectory(tmp_path / "absent").lock():
        pytest.fail("locked nothing")
    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(RunError, match="the disk is full"), run.lock():
        pytest.fail("locked without a pid")
    monkeypatch.undo()
    with run.lock():
        pass


def test_config(run: RunDirectory) -> None:
    with pytest.raises(RunError, match="it has no config"):
        run.read_config()
    text = 'method = "bbb"\r\nname = "Ä"\n'
    run.write_config(text)
    assert run.read_config() == text
    (run.path / "config.toml").write_bytes(b"\xff")
    with pytest.raises(RunError, match="not UTF-8"):
        run.read_config()
    (run.path / "config.toml").unlink()
    (run.path / "config.toml").mkdir()
    with pytest.raises(RunError, match="a folder"):
        run.read_config()


def test_results(run: RunDirectory) -> None:
    run.write_result("test.mean", {"perplexity": 1.5, "nll": math.inf})
    path = run.write_result("test.mean", {"perplexity": 0.1, "nll": math.nan, "x": (1, 2)})
    assert path == run.path / "results" / "test.mean.json"
    found = json.loads(path.read_text())
    assert found.pop("checksum")
    assert found == {"perplexity": 0.1, "nll": None, "x": [1, 2]}
    assert list(path.parent.iterdir()) == [path]
    for name in ("", "../x", "a/b", ".x", "x\n", "x" * 200):
        with pytest.raises(RunError, match="cannot be called"):
            run.write_result(name, {})


def test_results_on_a_full_disk(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run.write_result("a", {"x": 1})
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(RunError, match="the disk is full"):
        run.write_result("a", {"x": 2})
    assert json.loads(path.read_text())["x"] == 1


def test_metrics_round_trip(run: RunDirectory) -> None:
    log = run.metrics
    assert log.read() == []
    assert log.size() == 0
    log.append({"step": 1, "loss": 0.1})
    size = log.size()
    log.append({"step": 2, "loss": math.inf, "text": "ä\n"})
    assert log.read() == [{"step": 1, "loss": 0.1}, {"step": 2, "loss": None, "text": "ä\n"}]
    assert MetricsLog(log.path).size() == log.path.stat().st_size
    log.truncate(size)
    assert log.read() == [{"step": 1, "loss": 0.1}]


def test_every_torn_end_is_left_out_and_cut(run: RunDirectory) -> None:
    log = run.metrics
    log.truncate(10)
    assert not log.path.exists()
    log.append({"step": 1})
    first = log.size()
    log.append({"step": 2})
    whole = log.path.read_bytes()
    for size in range(len(whole)):
        log.path.write_bytes(whole[:size])
        kept = [{"step": 1}] if size >= first else []
        assert log.read() == kept
        log.truncate(len(whole))  # longer than the file: nothing may be made up
        assert log.path.read_bytes() == whole[: first if kept else 0]
        log.path.write_bytes(whole)
        log.truncate(size)
        assert log.read() == kept
        log.append({"step": 3})
        assert log.read() == [*kept, {"step": 3}]


@pytest.mark.parametrize("bad", [b"x", b"1", b"[]", b"", b"\xff", b"[" * 100_000])
def test_a_damaged_line_is_named(run: RunDirectory, bad: bytes) -> None:
    run.metrics.path.write_bytes(b'{"step": 1}\n' + bad + b'\n{"step": 3}\n')
    with pytest.raises(RunError, match="line 2 is not a record"):
        run.metrics.read()


def test_a_full_disk_leaves_no_half_record(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.metrics.append({"step": 1})
    write, calls = os.write, 0

    def half(descriptor: int, data: memoryview) -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            refuse()
        return write(descriptor, data[:4])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(RunError, match=r"metrics.jsonl: the disk is full"):
        run.metrics.append({"step": 2})
    monkeypatch.undo()
    run.metrics.append({"step": 3})
    assert run.metrics.read() == [{"step": 1}, {"step": 3}]


def test_metrics_that_cannot_be_opened(run: RunDirectory) -> None:
    run.metrics.path.mkdir()
    for use in (lambda: run.metrics.append({}), run.metrics.read, lambda: run.metrics.truncate(0)):
        with pytest.raises(RunError, match="a folder"):
            use()
