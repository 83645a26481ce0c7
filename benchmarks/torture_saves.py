"""Saves that end at each of their calls to the file system, by a kill or by an error."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torture_worker import append, done_in, ended, forked

from bayesrnn.errors import BayesRNNError
from bayesrnn.runs.output import write_text
from bayesrnn.training.checkpoints import Checkpoint, CheckpointStore
from bayesrnn.training.run_directory import RunDirectory

#: What Python tells of its calls that change the disk.
EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"}

#: How a save ends: the process is killed, or the call fails.
ENDS = {"kill": 0, "full": errno.ENOSPC, "denied": errno.EACCES, "broken": errno.EIO}


def checkpoint(step: int, value: float) -> Checkpoint:
    """One that says of itself whether it is whole."""
    return Checkpoint(step, {"w": torch.full((8,), value)}, {"s": torch.full((8,), value)})


def value_of(found: Checkpoint) -> float:
    """What it was made of."""
    assert torch.equal(found.model["w"], found.state["s"])
    return float(found.state["s"][0])


def arm(calls: int, end: str) -> None:
    """End this process, or its call, at that many changes of the disk; a write is half done."""
    left = calls

    def moment() -> bool:
        nonlocal left
        left -= 1
        return left < 0 if end == "kill" else left == -1

    def strike() -> None:
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(ENDS[end], os.strerror(ENDS[end]))

    def hook(event: str, _: Any) -> None:
        if event in EVENTS and moment():
            strike()

    write, sync = os.write, os.fsync

    def halved(descriptor: int, data: Any) -> int:
        if moment():
            write(descriptor, bytes(data[: len(data) // 2]))
            strike()
        return write(descriptor, data)

    def synced(descriptor: int) -> None:
        if moment():
            strike()
        sync(descriptor)

    os.write, os.fsync = halved, synced
    sys.addaudithook(hook)


def start(run: Path) -> None:
    """What was there before."""
    run.mkdir(parents=True)
    store, directory = CheckpointStore(run), RunDirectory(run)
    store.save(checkpoint(1, 1.0), best=True)
    store.save(checkpoint(2, 2.0), best=False)
    directory.write_text("config.toml", "old\n" * 50)
    directory.write_result("test", {"value": 2.0})
    directory.metrics.append({"value": 2.0})
    write_text("old\n" * 50, run / "page.html")


def save_next(run: Path) -> None:
    """A later step, the best so far."""
    CheckpointStore(run).save(checkpoint(3, 7.0), best=True)


def save_same(run: Path) -> None:
    """The same step once more."""
    CheckpointStore(run).save(checkpoint(2, 7.0), best=True)


def save_back(run: Path) -> None:
    """An earlier step: the run went back."""
    CheckpointStore(run).save(checkpoint(1, 7.0), best=False)


def tidy(run: Path) -> None:
    """What a killed process left is removed."""
    CheckpointStore(run).clean()


def write_files(run: Path) -> None:
    """The other files of a run, and a page."""
    directory = RunDirectory(run)
    directory.write_text("config.toml", "new\n" * 50)
    directory.write_result("test", {"value": 7.0})
    write_text("new\n" * 50, run / "page.html")
    directory.metrics.append({"value": 7.0})


SAVES: tuple[Callable[[Path], None], ...] = (save_next, save_same, save_back, tidy, write_files)


def wrong_after(run: Path) -> str:
    """What is not whole, or neither old nor new; nothing if all is well."""
    store, directory = CheckpointStore(run), RunDirectory(run)
    for _ in ("as it was left", "tidied up"):
        last, best = value_of(store.load("last")), value_of(store.load("best"))
        if last not in (2.0, 7.0) or best not in (1.0, 2.0, 7.0):
            return f"last is {last}, best is {best}"
        for step in store.steps():
            value_of(store.load(str(step)))
        for text in (directory.read_text("config.toml"), (run / "page.html").read_text()):
            if text not in ("old\n" * 50, "new\n" * 50):
                return f"a text is {text[:20]!r} and {len(text)} characters long"
        if json.loads((run / "results/test.json").read_bytes())["value"] not in (2.0, 7.0):
            return "a result is neither the old nor the new one"
        if any(record["value"] not in (2.0, 7.0) for record in directory.metrics.read()):
            return "the metrics are neither the old nor the new ones"
        store.clean()
    return ""


def save_cases(results: Path, most: int, folder: Path, until: float) -> int:
    """Each save, ended in each way at each call, until it ends by itself; gives how many."""
    done, number = done_in(results), 0
    started, run = folder / "before-save", folder / "save"
    shutil.rmtree(started, ignore_errors=True)
    start(started)
    known = [json.loads(line) for line in results.read_text().splitlines()] if done else []
    for save in SAVES:
        for end in ENDS:
            calls, over = 0, False
            while not over and number < most and time.monotonic() < until:
                if number < done:
                    over = known[number].get("over", False)
                else:
                    shutil.rmtree(run, ignore_errors=True)
                    shutil.copytree(started, run)
                    found = _one(save, end, calls, run, folder)
                    over = found["over"]
                    append(results, number, {"what": f"{save.__name__} {end} {calls}", **found})
                number, calls = number + 1, calls + 1
    return max(number, done)


def _one(
    save: Callable[[Path], None], end: str, calls: int, run: Path, folder: Path
) -> dict[str, Any]:
    def work() -> int:
        arm(calls, end)
        try:
            save(run)
        except BayesRNNError:
            return 3
        return 0

    code = ended(forked(work, folder), 60)
    over = code == 0
    if code not in (0, 3, -signal.SIGKILL):
        return {"end": "traceback", "note": f"exit code {code}", "over": over}
    try:
        wrong = wrong_after(run)
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    return {"end": "wrong" if wrong else "equal", "note": wrong, "over": over}
