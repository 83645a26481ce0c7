"""The resident memory of this process."""

import contextlib
import ctypes
import gc
import os
import subprocess
import sys
from pathlib import Path

#: Where Linux tells the memory of the process that reads it.
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
