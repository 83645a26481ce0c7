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
from torch import nn
from torch.nn import functional as F

import bayesrnn as br
from bayesrnn.core.kernel.library import load_library

EXTRAS = ("efficientnet_lite_pytorch", "ivon", "PIL", "sklearn", "tensorboard")


class Tagger(nn.Module):
    """A module of the user's own: a state goes in and comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x, state=None):
        """Give the logits of each step and the last state."""
        features, (h, c) = self.lstm(x, state)
        return self.out(features), (h.detach(), c.detach())


def readme_example() -> None:
    """The first example of the library in the README, as it stands there."""
    text = Path("README.md").read_text()
    code = re.search(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert code is not None
    torch.manual_seed(0)
    x = torch.randn(9, 5, 4)
    y = (x[..., 0] > 0).long() + (x[..., 1] > 0).long()

    def nll(logits, targets):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")

    names = {
        "my_module": Tagger(),
        "batches": [(x, y, None)] * 3,
        "nll": nll,
        "kl_weight": 0.1,
        "x": x,
        "state": None,
    }
    exec(compile(code[1], "README.md", "exec"), names)
    prediction = br.predict(names["net"], x, samples=20)
    assert prediction.mean.shape == (9, 5, 3)
    assert (prediction.epistemic >= 0).all()
    print(f"README: {len(code[1].splitlines())} lines ran")


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
