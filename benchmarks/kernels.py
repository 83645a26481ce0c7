"""The compiled loops of a wheel against those that are compiled for this machine.

Each library works on the same numbers in turn, so that a busy moment of the machine hits all, and
the fastest of all turns counts. Shown is the speed as a ratio to the library of this machine:

    python benchmarks/kernels.py --turns 30
"""

import argparse
import ctypes
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from bayesrnn.core.kernel import reference
from bayesrnn.core.kernel.build import PORTABLE, compile_native, compile_portable, find_compiler
from bayesrnn.core.kernel.compiled import Kernel

#: The recurrent weights of one layer of 650, and logits of 10,000 words at 20 x 35 places.
ROWS, COLUMNS, PLACES, WORDS = 4 * 650, 650, 700, 10_000


def libraries(folder: Path) -> dict[str, Kernel]:
    """Those that this processor can run: of this machine first, then the wheel's."""
    compiler = find_compiler()
    made = {"native": compile_native(compiler, folder, ctypes.CDLL)}
    have, names = torch.backends.cpu.get_cpu_capability().lower(), list(PORTABLE)
    portable = compile_portable(compiler, folder)
    made |= {name: portable[name] for name in names[names.index(have) if have in names else -1 :]}
    for name, data in made.items():
        (folder / f"{name}.so").write_bytes(data)
    return {name: Kernel(ctypes.CDLL(str(folder / f"{name}.so"))) for name in made}


def work() -> dict[str, Callable[[Kernel], object]]:
    """The loops that take most of the time of a step."""
    loc, rho, eps, by = (torch.randn(ROWS, COLUMNS) for _ in range(4))
    rho -= 4
    out, kl, factor = torch.empty(ROWS, COLUMNS), torch.tensor(0.1), torch.ones(ROWS, 1)
    logits, mean = torch.randn(PLACES, WORDS), torch.zeros(PLACES, WORDS)
    entropy = torch.zeros(PLACES)
    return {
        "noise": lambda loops: loops.normal(out, 1, 2),
        "draw": lambda loops: loops.draw(loc, rho, eps, 1, 1e-5, (1,), False),
        "gradient": lambda loops: loops.gradient(by, rho, eps, 1, 1e-5, kl, factor, loc, False),
        "sharpen": lambda loops: loops.sharpen(loc, by, rho, 0.1, 0.02, 1, 2),
        "average": lambda loops: loops.average(logits, 0.1, mean, entropy),
    }


def measure(turns: int) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        loops: dict[str, object] = dict(libraries(Path(folder)))
    loops["torch"] = reference
    print(f"{'':10}" + "".join(f"{name:>10}" for name in loops) + "    native, ms")
    for name, do in work().items():
        best = dict.fromkeys(loops, float("inf"))
        for _ in range(turns):
            for library, kernel in loops.items():
                if hasattr(kernel, name if name == "average" else "draw"):
                    start = time.perf_counter()
                    do(kernel)
                    best[library] = min(best[library], time.perf_counter() - start)
        ratios = "".join(f"{best['native'] / seconds:9.2f}x" for seconds in best.values())
        print(f"{name:10}{ratios}{1000 * best['native']:14.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"{torch.backends.cpu.get_cpu_capability()}, {given.threads} threads")
    measure(given.turns)
