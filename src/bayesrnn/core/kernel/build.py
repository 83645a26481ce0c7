"""Compiling kernel.c: for the machine that compiles, or for every machine that a wheel may meet.

The build of a wheel (`hatch_build.py`) runs this file by itself, so it imports nothing of the
package.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

FLAGS = ("-O3", "-funroll-loops", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
NATIVE = ("-mcpu=native",) if platform.machine() in ("arm64", "aarch64") else ("-march=native",)

#: The libraries that a wheel has for a processor, the fastest first, and the flags of each. On ARM
#: the vector instructions (NEON) are there on every processor; on x86-64 the names are those by
#: which torch says what a processor has, and the flags are what torch asks of it.
PORTABLE: dict[str, tuple[str, ...]] = (
    {
        "avx512": ("-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mavx2", "-mfma"),
        "avx2": ("-mavx2", "-mfma"),
        "default": (),
    }
    if platform.machine() in ("x86_64", "AMD64")
    else {"default": ()}
)

#: The macOS that a library still runs on.
MACOS = "11.0"

_SECONDS = 120


class CompilerError(Exception):
    """There is no compiler, or it made nothing; says why in a part of a line."""


class UnloadableError(CompilerError):
    """The compiler made something, but it cannot be loaded where it lies."""


def find_compiler() -> list[str]:
    """The C compiler: what CC says, or cc, or gcc."""
    given = os.environ.get("CC", "")
    try:
        # CC may be a command with arguments, such as "ccache gcc".
        command = shlex.split(given)
    except ValueError as error:
        raise CompilerError(f"CC is {given!a}, which is no command: {error}") from None
    if command:
        return command
    for name in ("cc", "gcc"):
        if path := shutil.which(name):
            return [path]
    raise CompilerError("there is no C compiler, neither cc nor gcc")


def compile_native(compiler: list[str], folder: Path, check: Callable[[str], object]) -> bytes:
    """The library for this machine, made in a folder; one that `check` cannot load is refused."""
    return _compile(compiler, NATIVE, folder, check)


def compile_portable(compiler: list[str], folder: Path) -> dict[str, bytes]:
    """The libraries of a wheel, by the name in `PORTABLE`."""
    target = (f"-mmacosx-version-min={MACOS}",) if sys.platform == "darwin" else ()
    return {
        name: _compile(compiler, (*flags, *target), folder, lambda _: None)
        for name, flags in PORTABLE.items()
    }


def _compile(
    compiler: list[str], flags: tuple[str, ...], folder: Path, check: Callable[[str], object]
) -> bytes:
    """Compile with OpenMP for threads, else without; an `UnloadableError` if `check` fails.

    The OpenMP library is not linked: its functions are found in the one that torch has loaded, so
    that both share their threads.
    """
    shutil.copyfile(Path(__file__).with_name("kernel.c"), folder / "kernel.c")

    def run(*arguments: str) -> None:
        command = [*compiler, *FLAGS, *flags, *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS, cwd=folder)

    made = folder / "kernel.so"

    def load() -> None:
        try:
            check(str(made))
        except OSError as error:
            raise UnloadableError(f"{_shown(compiler)} gave no library: {error}") from None

    try:
        try:
            run("-fopenmp", "-c", "kernel.c", "-o", "kernel.o")
            run("-shared", "kernel.o", "-o", "kernel.so", "-lm")
            load()
        except (OSError, UnloadableError, subprocess.CalledProcessError):
            run("-fopenmp-simd", "-shared", "kernel.c", "-o", "kernel.so", "-lm")
            load()
        return made.read_bytes()
    except subprocess.CalledProcessError as error:
        raise CompilerError(f"{_shown(compiler)} failed{_first_words(error.stderr)}") from None
    except subprocess.TimeoutExpired:
        raise CompilerError(f"{_shown(compiler)} took more than {_SECONDS} seconds") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CompilerError(f"{_shown(compiler)} gave no library: {reason}") from None


def _shown(compiler: list[str]) -> str:
    return ascii(shlex.join(compiler))[1:-1]


def _first_words(said: bytes) -> str:
    """The first line of what a compiler said, if it said anything."""
    lines = said.decode(errors="replace").strip().splitlines()
    return f": {ascii(lines[0][:120])[1:-1]}" if lines else ""
