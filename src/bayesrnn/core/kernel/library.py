"""Which library of compiled loops is loaded: that of the package, or one compiled on first use."""

import ctypes
import functools
import hashlib
import os
import platform
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from bayesrnn.core.kernel.build import (
    FLAGS,
    NATIVE,
    PORTABLE,
    CompilerError,
    UnloadableError,
    compile_native,
    find_compiler,
)
from bayesrnn.core.kernel.cache import CacheError, kept_library
from bayesrnn.durable import reason
from bayesrnn.errors import BayesRNNWarning, ConfigError

#: What BAYESRNN_KERNEL can be, and what it means.
_SETTINGS = {"on": "on", "1": "on", "native": "native", "off": "off", "0": "off"}


class Library(NamedTuple):
    """The compiled loops, or None, and in words which they are and why."""

    loops: ctypes.CDLL | None
    origin: str


@functools.cache
def load_library() -> Library:
    """The compiled loops that are used; where they are missing, that is said once.

    BAYESRNN_KERNEL=native compiles for this machine even where the package has a library.
    """
    setting = _setting()
    if setting == "off":
        return Library(None, "none: turned off by BAYESRNN_KERNEL")
    packaged = None if setting == "native" else _packaged()
    if packaged is not None:
        return packaged
    try:
        return _compiled()
    except CompilerError as error:
        warnings.warn(
            f"the compiled kernel is missing ({error}), and torch does its work: the same noise, "
            "but training with distributions over weights takes about twice as long; install a C "
            "compiler, or silence this with BAYESRNN_KERNEL=off",
            BayesRNNWarning,
            stacklevel=2,
        )
        return Library(None, f"none: {error}")


def _setting() -> str:
    given = os.environ.get("BAYESRNN_KERNEL") or "on"  # empty is as good as unset
    if given.lower() not in _SETTINGS:
        raise ConfigError(f"BAYESRNN_KERNEL is {given!a}; there are: on, native, off")
    return _SETTINGS[given.lower()]


def packaged_file(name: str) -> Path:
    """Where a wheel has its library of this name."""
    return Path(__file__).with_name(f"kernel-{name}.so")


def _packaged() -> Library | None:
    """The fastest library of the package that this processor can run; a wheel has some."""
    have = torch.backends.cpu.get_cpu_capability().lower()
    names = list(PORTABLE)
    for name in names[names.index(have) if have in names else -1 :]:
        if packaged_file(name).exists():
            try:
                loops = ctypes.CDLL(str(packaged_file(name)))
            except OSError:  # a torch without OpenMP, or with another one: compiled here, it may do
                return None
            return Library(loops, f"{packaged_file(name)}, of the package (processor: {have})")
    return None


def _compiled() -> Library:
    """The library that is compiled for this machine, and kept in the user's cache."""
    compiler = find_compiler()

    def make(folder: Path) -> bytes:
        return compile_native(compiler, folder, ctypes.CDLL)

    source = Path(__file__).with_name("kernel.c").read_bytes()
    parts = (source, *map(os.fsencode, [*compiler, *FLAGS, *NATIVE]), _machine())
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]
    try:
        path = kept_library(key, make)
        return Library(ctypes.CDLL(str(path)), f"{path}, compiled for this machine")
    except (CacheError, UnloadableError, OSError) as error:
        # From a folder that nothing may be run from (noexec), nothing can be loaded either.
        loops = _compiled_for_now(make)
        warnings.warn(
            f"the compiled kernel cannot be kept, so it is compiled at each start: {error}",
            BayesRNNWarning,
            stacklevel=3,
        )
        return Library(loops, f"compiled for this process alone: {error}")


def _compiled_for_now(make: Callable[[Path], bytes]) -> ctypes.CDLL:
    """The library, out of a folder that is gone as soon as it is loaded."""
    try:
        with tempfile.TemporaryDirectory() as folder:  # of mode 700
            path = Path(folder) / "loaded.so"
            path.write_bytes(make(Path(folder)))
            return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompilerError(f"there is no folder to compile in: {reason(error)}") from None


def _machine() -> bytes:
    """What the compiled code depends on: a home folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().split(b"\n")
    except OSError:
        return platform.processor().encode()
    wanted = {line for line in lines if line.startswith((b"model name", b"flags"))}
    return b"\n".join(sorted(wanted))
