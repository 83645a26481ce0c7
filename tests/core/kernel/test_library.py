"""Which library is loaded: that of the package, or one compiled on first use, once."""

import ctypes
import os
import subprocess
import sys

import pytest
import torch

from bayesrnn.core.kernel import build, library
from bayesrnn.core.kernel.compiled import Kernel, load_kernel
from bayesrnn.core.kernel.library import packaged_file
from bayesrnn.errors import BayesRNNWarning, ConfigError

pytestmark = pytest.mark.skipif(load_kernel() is None, reason="no C compiler here")


def load():
    """The library of a new process, with the environment as it is now."""
    return library.load_library.__wrapped__()


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("BAYESRNN_KERNEL", raising=False)
    monkeypatch.setattr(build, "FLAGS", ("-O0", "-fPIC"))  # compiles in a tenth of the time
    return tmp_path / "bayesrnn"


def works(found):
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    squares = x.double().square().sum().item()
    return Kernel(found.loops).sum_of_squares(x) == pytest.approx(squares)


def test_it_is_compiled_once(cache):
    code = "from bayesrnn.core.kernel.compiled import load_kernel; assert load_kernel()"
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    (kept,) = cache.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o700
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("word", ["off", "0", "OFF"])
def test_it_can_be_turned_off_without_a_word(word, monkeypatch):
    monkeypatch.setenv("BAYESRNN_KERNEL", word)
    found = load()
    assert found.loops is None
    assert "turned off" in found.origin


def test_an_empty_setting_is_none(monkeypatch):
    monkeypatch.setenv("BAYESRNN_KERNEL", "")
    assert works(load())


def test_an_unknown_setting_is_refused(monkeypatch):
    monkeypatch.setenv("BAYESRNN_KERNEL", "nativ")
    with pytest.raises(ConfigError, match="BAYESRNN_KERNEL is 'nativ'; there are: on, native, off"):
        load()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("false", "false failed"),
        ("no-such-compiler-here", "no-such-compiler-here gave no library: No such file"),
        ("env false", "env false failed"),
        ("cc -E", "gave no library"),
        ("cc -fno-such-flag", "cc -fno-such-flag failed: .*no-such-flag"),
        ("cc 'unfinished", "which is no command"),
        (os.fsdecode(b"c\xffc"), r"c\\udcffc' gave no library"),
    ],
)
def test_a_compiler_that_fails_costs_one_line(command, reason, monkeypatch, cache):
    monkeypatch.setenv("CC", command)
    with pytest.warns(BayesRNNWarning, match=reason) as said:
        found = load()
    assert found.loops is None
    (line,) = (str(one.message) for one in said)
    assert "\n" not in line
    assert "kernel is missing" in line
    assert "about twice as long" in line
    assert not list(cache.rglob("*.so"))


def test_without_a_compiler_one_line_says_so(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.warns(BayesRNNWarning, match="there is no C compiler, neither cc nor gcc"):
        assert load().loops is None


def test_the_compiler_may_be_a_command_with_arguments(monkeypatch, cache):
    monkeypatch.setenv("CC", "env LANG=C cc")  # as in CC="ccache gcc"
    assert works(load())
    assert len(list(cache.glob("*.so"))) == 1


def test_it_compiles_without_openmp_too(monkeypatch):
    calls, load_file = [], ctypes.CDLL

    def loader(path):
        """Fail once, as on a system whose torch has no OpenMP."""
        calls.append(path)
        if len(calls) == 1:
            raise OSError("undefined symbol: GOMP_parallel")
        return load_file(path)

    monkeypatch.setattr(ctypes, "CDLL", loader)
    assert works(load())


@pytest.fixture
def package(monkeypatch, tmp_path):
    """A wheel's libraries, in a folder of their own; they need not be fast here."""
    folder = tmp_path / "package"
    folder.mkdir()
    for name, data in build.compile_portable(build.find_compiler(), folder).items():
        (folder / packaged_file(name).name).write_bytes(data)
    monkeypatch.setattr(library, "packaged_file", lambda name: folder / packaged_file(name).name)
    return folder


def test_the_library_of_the_package_needs_no_compiler(package, monkeypatch, cache):
    monkeypatch.setenv("CC", "false")
    have = torch.backends.cpu.get_cpu_capability()
    for capability, name in ((have, have.lower()), ("DEFAULT", "default"), ("SVE256", "default")):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda c=capability: c)
        found = load()
        assert works(found)
        assert f"kernel-{name}.so, of the package" in found.origin
    assert not cache.exists()


def test_native_is_compiled_although_the_package_has_a_library(package, monkeypatch, cache):
    monkeypatch.setenv("BAYESRNN_KERNEL", "native")
    found = load()
    assert works(found)
    assert f"{cache}/kernel-" in found.origin


def test_a_library_of_the_package_that_does_not_load_is_compiled_here(package, cache):
    for path in package.glob("*.so"):
        path.write_bytes(b"for another machine")
    found = load()
    assert works(found)
    assert "compiled for this machine" in found.origin
