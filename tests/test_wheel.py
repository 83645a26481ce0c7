"""Wheels: with the kernel inside for one platform, and without it for all."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bayesrnn.core.kernel import build

ROOT = Path(__file__).parents[1]
KERNEL = "bayesrnn/core/kernel/"


def built(folder, **environment):
    """What the build says, and the wheel that it made, if it made one."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    given = {name: value for name, value in os.environ.items() if name != "BAYESRNN_WHEEL"}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**given, **environment}
    )
    return done.stdout + done.stderr, next(folder.glob("*.whl"), None)


def kernel_files(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = [name.removeprefix(KERNEL) for name in archive.namelist()]
        tags = archive.read(next(n for n in archive.namelist() if n.endswith("/WHEEL"))).decode()
    return {name for name in names if name.startswith("kernel")}, tags


def test_a_wheel_for_one_platform_has_the_kernel_inside(tmp_path):
    try:
        build.find_compiler()
    except build.CompilerError:
        pytest.skip("no C compiler here")
    said, wheel = built(tmp_path, BAYESRNN_WHEEL="compiled")
    assert wheel is not None, said
    files, tags = kernel_files(wheel)
    assert files == {"kernel.c", *(f"kernel-{name}.so" for name in build.PORTABLE)}
    assert wheel.name.count("-py3-none-") == 1
    assert "none-any" not in wheel.name
    assert "Root-Is-Purelib: false" in tags


@pytest.mark.parametrize(
    "environment", [{"BAYESRNN_WHEEL": "pure"}, {"CC": "no-such-compiler"}], ids=str
)
def test_a_wheel_without_the_kernel_is_for_all_platforms(environment, tmp_path):
    said, wheel = built(tmp_path, **environment)
    assert wheel is not None, said
    files, tags = kernel_files(wheel)
    assert files == {"kernel.c"}
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "Root-Is-Purelib: true" in tags
    assert ("without the compiled kernel" in said) == ("CC" in environment)


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"BAYESRNN_WHEEL": "compiled", "CC": "false"}, "no kernel for the wheel: false failed"),
        ({"BAYESRNN_WHEEL": "fast"}, "BAYESRNN_WHEEL is 'fast'; there are: compiled, pure"),
    ],
)
def test_a_kernel_that_was_asked_for_is_not_left_out(environment, reason, tmp_path):
    said, wheel = built(tmp_path, **environment)
    assert wheel is None
    assert reason in said
