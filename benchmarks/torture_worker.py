"""Forked processes in which `torture.py` lets the program loose on what it has damaged.

Each is forked from a process that has imported the program and started no thread of its own, does
many cases, and writes a line for each; one that dies or hangs costs its case, and another one goes
on.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bayesrnn.cli.main import main
from bayesrnn.errors import BayesRNNError

#: Seconds without a result after which a case hangs.
PATIENCE = 60
#: Memory that a case may take beside what the process has, and characters that it may say.
MEMORY, SCREEN = 4 * 2**30, 4000
#: What a hostile file tries to make in the folder that all cases are run in.
CANARY = "executed"

#: A case: its number in, what happened out.
Case = Callable[[int], dict[str, Any]]


class Said(NamedTuple):
    """What a command said, and how it ended; a traceback where it should have said a line."""

    code: Any
    out: str
    errors: str
    traceback: str = ""


def say_to(arguments: list[str]) -> Said:
    """Run the program in this process."""
    out, errors = io.StringIO(), io.StringIO()
    code: Any = None
    trouble = ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            code = main(arguments)
        except SystemExit as stopped:
            code = stopped.code
        except BaseException:
            trouble = traceback.format_exc()
    return Said(code, out.getvalue(), errors.getvalue(), trouble)


def exit_code(arguments: list[str]) -> int:
    """Run the program in this process, and end as it would."""
    said = say_to(arguments)
    return 9 if said.traceback else int(said.code or 0)


def judged(said: Said, expected: Said | None) -> dict[str, Any]:
    """refused in a line, same as without damage, or what should not be."""
    last = said.errors.strip().rsplit("\n", 1)[-1]
    if said.traceback:
        return {"end": "traceback", "note": said.traceback[-1500:]}
    if said.code == 1:
        fine = last.startswith("bayesrnn: ") and len(said.errors) <= SCREEN
        return {"end": "refused" if fine else "unclear", "note": last[:300]}
    if said.code == 0 and (expected is None or said.out == expected.out):
        return {"end": "same"}
    if said.code == 0 and "is damaged, and not used" in said.errors:
        return {"end": "refused", "note": last[:300]}
    return {"end": "wrong", "note": f"exit code {said.code}: {said.out[:300]} {last[:300]}"}


def judged_call(call: Callable[[], object]) -> dict[str, Any]:
    """The same of a function of the library."""
    try:
        call()
    except BayesRNNError as error:
        said = str(error)
        fine = "\n" not in said
        return {"end": "refused" if fine else "unclear", "note": said[:300]}
    except BaseException:
        return {"end": "traceback", "note": traceback.format_exc()[-1500:]}
    return {"end": "same"}


def limited(extra: int) -> None:
    """Let this process take so much more memory than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + extra
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def forked(work: Callable[[], object], folder: Path) -> int:
    """The number of a forked process that does some work in a folder, and ends."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 (until it ends)
        os.chdir(folder)
        warnings.simplefilter("ignore")
        result = work()
        code = result if isinstance(result, int) else 0
    finally:
        os._exit(code)


def ended(process: int, seconds: float) -> int | None:
    """The exit code of a process, negative for a signal; None if it is still running."""
    until = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return None
        time.sleep(0.005)


def killed(process: int) -> None:
    """Kill a process that we forked, with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def done_in(results: Path) -> int:
    """How many cases have a line; a torn one is cut off."""
    if not results.exists():
        return 0
    data = results.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if whole != data:
        results.write_bytes(whole)
    return whole.count(b"\n")


def append(results: Path, number: int, found: dict[str, Any]) -> None:
    """Add the line of a case."""
    with results.open("a") as file:
        file.write(json.dumps({"case": number, **found}) + "\n")


def all_cases(case: Case, cases: int, results: Path, folder: Path, until: float) -> None:
    """Do the cases that have no line yet, as far as time allows."""

    def work() -> None:
        limited(MEMORY)
        for number in range(done_in(results), cases):
            try:
                found = case(number)
            except Exception:
                found = {"end": "crash", "note": traceback.format_exc()[-1500:]}
            if (folder / CANARY).exists():
                (folder / CANARY).unlink()
                found = {**found, "end": "executed"}
            append(results, number, found)
            if time.monotonic() > until:
                return

    while (done := done_in(results)) < cases and time.monotonic() < until:
        process, last = forked(work, folder), time.monotonic()
        while (code := ended(process, 0.2)) is None:
            if (now := done_in(results)) > done:
                done, last = now, time.monotonic()
            elif time.monotonic() - last > PATIENCE:
                killed(process)
                append(results, done, {"end": "hang"})
                break
        else:
            done = done_in(results)
            if code and done < cases:
                append(results, done, {"end": "crash", "note": f"exit code {code}"})
