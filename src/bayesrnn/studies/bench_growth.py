"""How time and memory grow with words, units and draws: is it linear?"""

import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import absolute
from bayesrnn.progress import progress_bar
from bayesrnn.studies.bench import UNROLL, make_step
from bayesrnn.studies.machine import in_own_process, median_seconds, resident_megabytes
from bayesrnn.tasks.lm.model import LanguageModel
from bayesrnn.training.process import keep_freed_memory
from bayesrnn.uncertainty.predict import predict

#: What is measured at each value of an axis.
Work = Callable[[], object]


@dataclass(frozen=True)
class Axis:
    """What grows, its values, and what is done with each."""

    name: str
    values: Sequence[int]
    kinds: Sequence[str]
    make: Callable[[str, int, Path], Work]


@dataclass(frozen=True)
class Growth:
    """Seconds and peak megabytes of one kind of work at each value of an axis."""

    values: Sequence[int]
    seconds: Sequence[float]
    megabytes: Sequence[float]

    def record(self) -> dict[str, object]:
        """For JSON, with the exponents."""
        return {
            "values": list(self.values),
            "seconds": list(self.seconds),
            "megabytes": list(self.megabytes),
            "exponent_of_seconds": exponent(self.values, self.seconds),
            "exponent_of_megabytes": exponent(self.values, self.megabytes),
        }


def trained_words(method: str, words: int, folder: Path) -> Work:
    """A step of training at small size, with so many words in the vocabulary."""
    return make_step(method, folder, words=words, size="small")


def trained_units(method: str, units: int, folder: Path) -> Work:
    """A step of training at small size, with so many units."""
    return make_step(method, folder, words=2_500, size="small", hidden=units)


def predicted_draws(method: str, draws: int, folder: Path) -> Work:
    """A prediction at small size by so many draws, on a text of `UNROLL` words."""
    del method, folder
    module = LanguageModel(10_000, 200, 2)
    module.initialise(0.05, torch.Generator().manual_seed(0))
    net, text = Bayesian(module, sigma_init=absolute(0.02)), torch.arange(UNROLL)[:, None]
    return partial(predict, net, text, samples=draws)


AXES = (
    Axis("words", (2_500, 5_000, 10_000, 20_000), ("plain", "bbb"), trained_words),
    Axis("units", (100, 200, 400, 800), ("plain", "bbb"), trained_units),
    Axis("draws", (5, 10, 20, 40), ("predict",), predicted_draws),
)


def bench_growth(turns: int, axes: Sequence[Axis] = AXES) -> dict[str, Any]:
    """Time and memory along each axis, the others at small size, and the exponents of both.

    Where they grow like x^k with k = 1, they are linear; below 1, something is there whatever x is.
    Of time, the median of `turns` interleaved turns counts; memory is the peak of a new process.
    """
    count = sum(len(axis.values) * len(axis.kinds) * (turns + 2) for axis in axes)
    with (
        tempfile.TemporaryDirectory() as folder,
        progress_bar(count, " turns", "measuring growth") as bar,
    ):
        found = {axis.name: _along(axis, turns, Path(folder), bar) for axis in axes}
    _print(found)
    return {
        name: {kind: growth.record() for kind, growth in kinds.items()}
        for name, kinds in found.items()
    }


def _along(axis: Axis, turns: int, folder: Path, bar: Any) -> dict[str, Growth]:
    work = {
        f"{kind} {value}": axis.make(kind, value, folder / f"{axis.name}-{kind}-{value}")
        for kind in axis.kinds
        for value in axis.values
    }
    seconds = median_seconds(work, turns, bar, calls=2)
    work.clear()
    threads, memory = torch.get_num_threads(), {}
    for kind in axis.kinds:
        for value in axis.values:
            inner = folder / f"{axis.name}-{kind}-{value}-memory"
            found = in_own_process(peak_growth, axis.make, kind, value, inner, threads)
            memory[f"{kind} {value}"] = found
            bar.update()
    return {
        kind: Growth(
            axis.values,
            [seconds[f"{kind} {value}"] for value in axis.values],
            [memory[f"{kind} {value}"] for value in axis.values],
        )
        for kind in axis.kinds
    }


def peak_growth(
    make: Callable[[str, int, Path], Work], kind: str, value: int, folder: Path, threads: int
) -> float:
    """Megabytes that the work needs at its peak; runs in a new process."""
    keep_freed_memory()
    torch.set_num_threads(threads)
    before = resident_megabytes(peak=True)
    do = make(kind, value, folder)
    for _ in range(4):
        do()
    return resident_megabytes(peak=True) - before


def exponent(values: Sequence[float], found: Sequence[float]) -> float:
    """The slope of a straight line through the logarithms, by least squares."""
    x, y = ([math.log(max(v, 1e-9)) for v in each] for each in (values, found))
    return statistics.linear_regression(x, y).slope


def _print(found: Mapping[str, Mapping[str, Growth]]) -> None:
    for name, kinds in found.items():
        print(f"\ngrowth with {name}, small size, {torch.get_num_threads()} threads")
        print(f"{'':10}{name:>10}{'s':>10}{'MB':>8}")
        for kind, growth in kinds.items():
            rows = zip(growth.values, growth.seconds, growth.megabytes, strict=True)
            for value, seconds, megabytes in rows:
                print(f"{kind:10}{value:10,}{seconds:10.4f}{megabytes:8.0f}")
            record = growth.record()
            print(
                f"{kind:10}grows like {name}^{record['exponent_of_seconds']:.2f} in time, "
                f"^{record['exponent_of_megabytes']:.2f} in memory"
            )
