"""Run in an environment into which a wheel was installed, beside the README: `make release-check`.

`python -I installed.py compiled` or `pure`: whether the wheel has the kernel inside. There is no
compiler, no extra and no cache.
"""

import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import torch

import bayesrnn as br
from bayesrnn.core.kernel.library import load_library

EXTRAS = ("efficientnet_lite_pytorch", "ivon", "optuna", "PIL", "sklearn", "tensorboard")


def readme_example() -> None:
    """The Python of the README, block by block."""
    names: dict[str, object] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", Path("README.md").read_text(), re.DOTALL | re.M)
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert names["found"].mean.shape == (200, 48, 3)
    print(f"README: {sum(len(block.splitlines()) for block in blocks)} lines ran")


def program(*arguments: str) -> str:
    """What the installed program prints."""
    command = [str(Path(sys.executable).with_name("bayesrnn")), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(kind: str) -> None:
    """Check one wheel."""
    assert "site-packages" in br.__file__
    assert not any(map(shutil.which, ("cc", "gcc", "clang", "c99")))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        readme_example()
    kernel = load_library()
    print(f"kernel: {kernel.origin}")
    messages = [str(one.message) for one in said]
    if kind == "compiled":
        assert kernel.loops is not None
        assert "of the package" in kernel.origin
        assert messages == []
    else:
        assert kernel.loops is None
        (message,) = messages
        assert "the compiled kernel is missing" in message
    for name in br.__all__:
        getattr(br, name)
    missing = [name for name in EXTRAS if name in sys.modules]
    assert missing == [], f"imported without being asked for: {missing}"
    assert program("--version") == f"bayesrnn {br.__version__}\n"
    assert kernel.origin in " ".join(program("info").split())
    print(f"the {kind} wheel of bayesrnn {br.__version__} works with torch {torch.__version__}")


main(*sys.argv[1:])
