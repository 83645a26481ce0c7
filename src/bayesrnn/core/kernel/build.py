"""Compiling kernel.c on first use, and keeping the result in the user's cache folder."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
import warnings
from importlib import resources
from pathlib import Path

_FLAGS = ("-O3", "-funroll-loops", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
_NATIVE = ("-mcpu=native",) if platform.machine() in ("arm64", "aarch64") else ("-march=native",)


def load_library() -> ctypes.CDLL | None:
    """The compiled loops; None where they are turned off or cannot be compiled."""
    # CC may be a command with arguments, such as "ccache gcc".
    compiler = shlex.split(os.environ.get("CC", "")) or _found("cc") or _found("gcc")
    if os.environ.get("BAYESRNN_KERNEL", "on").lower() in ("off", "0") or not compiler:
        return None
    source = resources.files("bayesrnn.core.kernel").joinpath("kernel.c").read_bytes()
    try:
        parts = (source, shlex.join(compiler).encode(), _machine())
        key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]
        return _cached(compiler, source, _cache_folder() / f"kernel-{key}.so")
    except (OSError, subprocess.SubprocessError):
        return None  # slower, not wrong


def _found(name: str) -> list[str]:
    path = shutil.which(name)
    return [] if path is None else [path]


def _cached(compiler: list[str], source: bytes, library: Path) -> ctypes.CDLL:
    """Load `library`, compiled first if it is not there.

    To load a library is to run it, so nothing is loaded that somebody else could have written: it
    is compiled anew for this process alone.
    """
    library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (library.parent, library):
        if path.exists() and not _only_ours(path):
            warnings.warn(
                f"{path} can be written by others than you, so the compiled loops in it are not "
                f"used and are compiled at each start; mend it with: chmod go-w {path}, or remove "
                "it",
                stacklevel=2,
            )
            with tempfile.TemporaryDirectory() as folder:  # of mode 700
                own = Path(folder) / library.name
                _compile(compiler, source, own)
                return ctypes.CDLL(str(own))
    if not library.exists():
        _compile(compiler, source, library)
    return ctypes.CDLL(str(library))


def _only_ours(path: Path) -> bool:
    """Whether only this user (or root) could have written a file or folder."""
    found = path.stat()
    return found.st_uid in (os.getuid(), 0) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _compile(compiler: list[str], source: bytes, library: Path) -> None:
    """Compile with OpenMP for threads, else without.

    The OpenMP library is not linked: its functions are found in the one that torch has loaded, so
    that both share their threads.
    """
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        file, made = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
        file.write_bytes(source)

        def run(*arguments: str) -> None:
            command = [*compiler, *_FLAGS, *_NATIVE, *arguments]
            subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=folder)

        try:
            run("-fopenmp", "-c", "kernel.c", "-o", "kernel.o")
            run("-shared", "kernel.o", "-o", "kernel.so", "-lm")
            ctypes.CDLL(str(made))
        except (OSError, subprocess.SubprocessError):
            run("-fopenmp-simd", "-shared", "kernel.c", "-o", "kernel.so", "-lm")
        made.chmod(0o700)  # whatever the umask lets others do
        made.replace(library)


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "bayesrnn"


def _machine() -> bytes:
    """What the compiled code depends on: a home folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().split(b"\n")
    except OSError:
        return platform.processor().encode()
    wanted = {line for line in lines if line.startswith((b"model name", b"flags"))}
    return b"\n".join(sorted(wanted))
