"""Compiling the loops: once, by any compiler, and loading no one else's."""

import ctypes
import os
import subprocess
import sys

import pytest
import torch

from bayesrnn.core.kernel import build
from bayesrnn.core.kernel.build import load_library
from bayesrnn.core.kernel.compiled import Kernel, load_kernel

pytestmark = pytest.mark.skipif(load_kernel() is None, reason="no C compiler here")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "_FLAGS", ("-O0", "-fPIC"))  # compiles in a tenth of the time
    return tmp_path / "bayesrnn"


def works(library):
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    return Kernel(library).sum_of_squares(x) == pytest.approx(x.double().square().sum().item())


def test_it_is_compiled_once(cache):
    code = "from bayesrnn.core.kernel.compiled import load_kernel; assert load_kernel()"
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    (library,) = cache.iterdir()
    assert library.stat().st_mode & 0o777 == 0o700
    assert cache.stat().st_mode & 0o777 == 0o700


def test_it_can_be_turned_off(monkeypatch):
    monkeypatch.setenv("BAYESRNN_KERNEL", "off")
    assert load_library() is None


def test_a_compiler_that_fails_is_no_error(monkeypatch, cache):
    for command in ("false", "no-such-compiler-here", "env false"):
        monkeypatch.setenv("CC", command)
        assert load_library() is None
    assert not list(cache.rglob("*.so"))


def test_the_compiler_may_be_a_command_with_arguments(monkeypatch, cache):
    monkeypatch.setenv("CC", "env LANG=C cc")  # as in CC="ccache gcc"
    assert works(load_library())
    assert len(list(cache.glob("*.so"))) == 1


def test_it_compiles_without_openmp_too(monkeypatch):
    calls, load = [], ctypes.CDLL

    def loader(path):
        """Fail once, as on a system whose torch has no OpenMP."""
        calls.append(path)
        if len(calls) == 1:
            raise OSError("undefined symbol: GOMP_parallel")
        return load(path)

    monkeypatch.setattr(ctypes, "CDLL", loader)
    assert works(load_library())


def planted(cache):
    """Bytes in place of the library that would be loaded."""
    assert load_library() is not None
    (library,) = cache.iterdir()
    library.unlink()  # it stays loaded here
    library.write_bytes(b"not from here")
    return library


@pytest.mark.parametrize("what", ["file", "folder"])
def test_nothing_is_loaded_that_others_could_have_written(what, cache):
    library = planted(cache)
    library.chmod(0o700 if what == "folder" else 0o722)
    cache.chmod(0o770 if what == "folder" else 0o700)
    with pytest.warns(UserWarning, match=r"can be written by others.*chmod go-w"):
        assert works(load_library())
    assert library.read_bytes() == b"not from here"


def test_nothing_is_loaded_that_belongs_to_others(monkeypatch, cache):
    library = planted(cache)
    library.chmod(0o700)
    if os.getuid() == 0:
        os.chown(library, 12_345, -1)
    else:
        monkeypatch.setattr(build.os, "getuid", lambda: library.stat().st_uid + 1)
    with pytest.warns(UserWarning, match="can be written by others"):
        assert works(load_library())
