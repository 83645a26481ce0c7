"""Time and memory on this machine: what benchmarks measure."""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

Found = TypeVar("Found")
Name = TypeVar("Name", bound=str)

#: Where Linux shows the memory of the process that reads it.
STATUS = Path("/proc/self/status")


def resident_megabytes(peak: bool = False) -> float:
    """What this process holds now, without what was freed, or the most that it ever held."""
    if not peak:
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # glibc alone has it
    if STATUS.exists():
        name = "VmHWM" if peak else "VmRSS"
        line = next(x for x in STATUS.read_text().splitlines() if x.startswith(name))
        return int(line.split()[1]) / 1024
    if peak:
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / 2**20 if sys.platform == "darwin" else most / 1024
    shown = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(os.getpid())], check=True, capture_output=True, text=True
    )
    return int(shown.stdout) / 1024


def median_seconds(
    work: Mapping[Name, Callable[[], object]],
    turns: int,
    bar: Any,
    calls: int = 1,
    slow: Collection[str] = (),
    clock: Callable[[], float] | None = None,
) -> dict[Name, float]:
    """The median time of a call of each kind of work, after one turn to warm up.

    They take turns, so that a busy moment of the machine hits all alike.

    calls: in each turn.
    slow: those of which one measured turn has to do.
    clock: gives seconds; that on the wall, unless another one is given.
    """
    clock = clock or time.perf_counter
    times: dict[Name, list[float]] = {name: [] for name in work}
    for turn in range(turns + 1):
        for name, do in work.items():
            bar.update()
            if name in slow and turn > 1:
                continue
            start = clock()
            for _ in range(calls):
                do()
            if turn:
                times[name].append((clock() - start) / calls)
    return {name: statistics.median(values) for name, values in times.items()}


def in_own_process(function: Callable[..., Found], *arguments: object) -> Found:
    """The result of a module's function, called in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)
