"""Training with too little of something, and memory over many steps and predictions."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torture_cases import fresh_copy
from torture_runs import Runs
from torture_worker import append, done_in, ended, exit_code, forked, killed, limited, say_to

#: What there is too little of.
KINDS = ("memory", "disk", "time")

#: By how much memory may differ between the first and the last fifth of long work.
FLAT = 8 * 2**20


def limit_case(runs: Runs, number: int, folder: Path) -> dict[str, Any]:
    """Train under a limit; then without, to the end."""
    dice, kind = random.Random(f"limit {number}"), KINDS[number % len(KINDS)]
    pair = runs.pairs[dice.randrange(len(runs.pairs))]
    reference = runs.reference(*pair)
    run, said = fresh_copy(runs.empty, folder / "limited"), folder / "said"
    arguments = [*runs.arguments(*pair), "--resume", "--out", str(run)]
    where = {"what": f"{kind}: {' '.join(pair)}"}

    def work() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        found = say_to(["info"])  # so that all that is imported late is there
        if kind == "memory":
            limited(dice.randrange(64) * 2**20)
        elif kind == "disk":
            most = dice.randrange(200_000)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        else:
            used = time.process_time()
            seconds = int(used) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        found = say_to(arguments)
        if kind != "disk":
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
            said.write_text(found.traceback or found.errors[-500:])
        bad = bool(found.traceback) or (found.code != 0 and "bayesrnn: " not in found.errors)
        return 9 if bad else int(found.code != 0)

    said.unlink(missing_ok=True)
    process = forked(work, folder)
    if (code := ended(process, 120)) is None:
        killed(process)
        return {**where, "end": "hang"}
    if code == 9:
        return {**where, "end": "traceback", "note": said.read_text() if said.exists() else ""}
    of_time = (-signal.SIGXCPU, -signal.SIGKILL) if kind == "time" else ()
    if code not in (0, 1, *of_time):
        return {**where, "end": "crash", "note": f"exit code {code}"}
    again = forked(lambda: exit_code(arguments), folder)
    if (code := ended(again, 120)) is None:
        killed(again)
        return {**where, "end": "hang"}
    if code or runs.hash(run) != reference.hash:
        return {**where, "end": "wrong", "note": f"resumed: exit code {code}"}
    return {**where, "end": "equal"}


def limit_cases(runs: Runs, cases: int, results: Path, folder: Path, until: float) -> None:
    """The cases that are left."""
    while (done := done_in(results)) < cases and time.monotonic() < until:
        append(results, done, limit_case(runs, done, folder))


def memory_cases(
    runs: Runs, steps: int, predictions: int, results: Path, folder: Path, until: float
) -> None:
    """Memory while training for many steps, and while predicting many times."""
    run, text = folder / "long", runs.folder / "data" / "other.txt"
    sizes = ["--hidden", "4", "--batch-size", "2", "--unroll", "2", "--vocabulary-limit", "20"]
    train = ["train", "lm", "--method", "bbb", "--corpus", str(text), *sizes, "--epochs"]

    def training() -> int:
        fresh_copy(runs.empty, run)
        rest = ["--hold-epochs", "100000", "--device", "cpu", "--no-calibrate", "--out", str(run)]
        return exit_code([*train, str(-(-steps // 40)), *rest])

    def predicting() -> int:
        from bayesrnn.tasks.sentiment.predict import PredictOptions, predict_texts

        options = PredictOptions(run=runs.folder / "sentiment", text="a good film", samples=2)
        for _ in range(predictions):
            predict_texts(options)
        return 0

    works: list[Callable[[], int]] = [training, predicting]
    counts = [f"{steps:,} steps", f"{predictions:,} predictions"]
    while (done := done_in(results)) < len(works) and time.monotonic() < until:
        append(results, done, {"what": counts[done], **_watched(works[done], folder)})


def _watched(work: Callable[[], int], folder: Path) -> dict[str, Any]:
    """The memory of a process in its course, in megabytes."""
    process, seen = forked(work, folder), list[int]()
    page = os.sysconf("SC_PAGE_SIZE")
    while (code := ended(process, 0.5)) is None:
        try:
            seen.append(int(Path(f"/proc/{process}/statm").read_text().split()[1]) * page)
        except (OSError, IndexError):
            continue
    fifth = max(len(seen) // 5, 1)
    early, late = max(seen[:fifth] or [0]), max(seen[-fifth:] or [0])
    note = f"{early / 2**20:.1f} MB in the first fifth, {late / 2**20:.1f} MB in the last"
    if code:
        return {"end": "crash", "note": f"exit code {code}"}
    return {"end": "flat" if late - early <= FLAT else "wrong", "note": note}
