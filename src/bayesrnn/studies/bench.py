"""Speed and memory of training, against plain training on the same machine in the same run."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesrnn.data.vocabulary import Vocabulary
from bayesrnn.errors import ConfigError, MissingExtraError
from bayesrnn.methods import METHODS
from bayesrnn.options import option
from bayesrnn.progress import progress_bar, say
from bayesrnn.runs.arguments import JsonOptions, html_option
from bayesrnn.runs.options import option_owners
from bayesrnn.runs.start import make_trainer
from bayesrnn.studies.machine import in_own_process, median_seconds, resident_megabytes
from bayesrnn.studies.reproduce.options import recipe_option
from bayesrnn.tasks.lm.data import Corpus
from bayesrnn.tasks.lm.task import LanguageModelTask
from bayesrnn.training.averaging import EVERY
from bayesrnn.training.process import keep_freed_memory
from bayesrnn.training.run_directory import RunDirectory

VOCABULARY, BATCH, UNROLL = 10_000, 20, 35

#: What the names of a method end with that is measured in another way as well: with averaged
#: parameters; with widths that learn under a prior that fits itself.
AVERAGED, LEARNT = " averaged", " learnt"

Step = Callable[[], object]

#: From a name and an empty folder to a function that trains one step of what has that name.
MakeStep = Callable[[str, Path], Step]


@dataclass(frozen=True, kw_only=True)
class BenchOptions(JsonOptions):
    """What to measure, and how long."""

    steps: int = option(40, "measured steps of each method", ge=2)
    threads: int | None = option(None, "processor threads", ge=1)
    processor: bool = option(
        False,
        "count seconds of the processor, for a busy machine, not those of the clock; with "
        "--threads 1, since those of all threads are added up",
    )
    pruned: bool = option(False, "measure inference with pruned networks instead, against dense")
    growth: bool = option(
        False, "measure as well how time and memory grow with words, units and draws"
    )
    programs: bool = option(
        False,
        "measure as well what a user waits for: start-up, each task's training, passes with draws",
    )
    quickstart: bool = option(False, "with --programs: the quickstart as well, which takes minutes")
    html: Path | None = html_option("the figures and charts")
    methods: tuple[str, ...] = option((), "measure only these, beside plain", commas=True)
    averaged: bool = option(False, "measure the methods with averaged parameters as well")
    learnt: bool = option(
        False,
        "measure the methods with a sigma also with --sigma-lr 1 --prior fitted; else they have "
        "the authors' settings",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for_training = [name for name in ("methods", "averaged", "learnt") if getattr(self, name)]
        if self.processor and self.threads != 1:
            raise ConfigError("--processor adds up the seconds of all threads; give --threads 1")
        names = ("growth", "programs", "html", "processor")
        more = [name for name in names if getattr(self, name)]
        if self.pruned and (for_training or more):
            raise ConfigError(
                f"--{[*for_training, *more][0]} is for training; --pruned measures pruned "
                "networks, leave it"
            )
        if self.quickstart and not self.programs:
            raise ConfigError("--quickstart goes with --programs; give both")


def bench(
    steps: int,
    threads: int | None = None,
    methods: Sequence[str] = (),
    averaged: bool = False,
    learnt: bool = False,
    processor: bool = False,
) -> dict[str, dict[str, float]]:
    """Time and memory of a training step at medium size, as ratios to `plain`.

    methods: which of them, beside `plain`; all that are installed, if none is named.
    averaged: whether to measure them with averaged parameters as well.
    learnt: whether to measure those with a sigma with widths that learn as well.
    processor: whether to count seconds of the processor, not those of the clock.
    """
    clock = time.process_time if processor else None
    if threads is not None:
        torch.set_num_threads(threads)
    names = method_names(methods)
    if learnt:
        have = option_owners("sigma_lr")
        names = [n for name in names for n in (name, name + LEARNT) if n == name or name in have]
    if not averaged:
        return measure_training(names, make_step, steps, clock=clock)
    names = [
        made
        for name in names
        for made in (name, name + AVERAGED)
        if made == name or METHODS[name.removesuffix(LEARNT)].can_average
    ]
    # A turn has to have an update of the average in it.
    return measure_training(names, make_step, steps, turn=EVERY, clock=clock)


def method_names(wanted: Sequence[str]) -> list[str]:
    """`plain` and the methods that are wanted, all if none is named."""
    unknown = [name for name in wanted if name not in METHODS]
    if unknown:
        raise ConfigError(f"--methods has {', '.join(unknown)}; there are: {', '.join(METHODS)}")
    return [name for name in METHODS if not wanted or name in ("plain", *wanted)]


def measure_training(
    names: Sequence[str],
    make_step: MakeStep,
    steps: int,
    slow: Sequence[str] = (),
    turn: int = 2,
    clock: Callable[[], float] | None = None,
) -> dict[str, dict[str, float]]:
    """Time and memory of a training step of each, as ratios to `plain`; shown as a table.

    Of time, the median turn counts. Memory is what a process needs at its peak beyond what it had
    before the network was made.

    make_step: is called in new processes as well, so it has to be a module's function.
    slow: those of which one measured turn has to do.
    turn: steps in a turn; two or more, for methods may share work between two minibatches.
    """
    seconds = _measure_seconds(names, make_step, max(1, steps // turn), slow, turn, clock)
    memory = _peak_memories(list(seconds), make_step)
    result = {
        name: {
            "ratio": seconds["plain"] / seconds[name],
            "memory_ratio": memory[name] / memory["plain"],
            "seconds": seconds[name],
            "megabytes": memory[name],
        }
        for name in seconds
    }
    _print(result, steps)
    return result


def _measure_seconds(
    names: Sequence[str],
    make_step: MakeStep,
    turns: int,
    slow: Sequence[str],
    turn: int,
    clock: Callable[[], float] | None,
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        work: dict[str, Step] = {}
        for name in names:
            try:
                work[name] = make_step(name, Path(folder) / name)
            except MissingExtraError as error:
                say(f"{name} is left out: {error}")
        with progress_bar((turns + 1) * len(work), " turns", "measuring") as bar:
            return median_seconds(work, turns, bar, calls=turn, slow=slow, clock=clock)


def make_step(
    name: str, folder: Path, words: int = VOCABULARY, size: str = "medium", **given: Any
) -> Step:
    """A function that trains one step of a method, by its name.

    given: further settings of the language model.
    """
    text = random_text(words)
    known = tuple(f"w{number}" for number in range(words))
    corpus = Corpus("benchmark", Vocabulary(known), text, text[:1000], text[:1000])
    task = LanguageModelTask()
    base = name.removesuffix(AVERAGED)
    method = base.removesuffix(LEARNT)
    config = task.resolve(
        {
            "method": method,
            **({} if base == method else {"prior": "fitted", "sigma_lr": 1.0}),
            **recipe_option(method),
            "size": size,
            "batch_size": BATCH,
            "unroll": UNROLL,
            "device": "cpu",
            "average": 0.998 if name.endswith(AVERAGED) else 0.0,
            **given,
        }
    )
    return make_trainer(task, config, corpus, RunDirectory(folder), torch.device("cpu")).step


def random_text(words: int = VOCABULARY) -> Tensor:
    """The words that are trained on; which they are does not change the work."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(words, (400 * BATCH * UNROLL,), generator=generator)


def _peak_memories(names: Sequence[str], make_step: MakeStep) -> dict[str, float]:
    threads = torch.get_num_threads()
    return {name: in_own_process(_peak_memory, name, make_step, threads) for name in names}


def _peak_memory(name: str, make_step: MakeStep, threads: int) -> float:
    """Megabytes that training needs at its peak; runs in a new process."""
    keep_freed_memory()
    torch.set_num_threads(threads)
    before = resident_megabytes(peak=True)
    with tempfile.TemporaryDirectory() as folder:
        step = make_step(name, Path(folder))
        for _ in range(EVERY if name.endswith(AVERAGED) else 4):
            step()
    return resident_megabytes(peak=True) - before


def _print(result: dict[str, dict[str, Any]], steps: int) -> None:
    print(
        f"training at medium size (2x650, {VOCABULARY:,} words, {BATCH} sequences of {UNROLL}), "
        f"{torch.get_num_threads()} threads, median of {steps} interleaved steps"
    )
    width = max(20, *(len(name) + 1 for name in result))
    print(f"{'':{width}}{'speed':>8}{'memory':>8}{'s/step':>9}{'MB':>7}")
    for name, row in result.items():
        print(
            f"{name:{width}}{row['ratio']:7.2f}x{row['memory_ratio']:7.2f}x"
            f"{row['seconds']:9.3f}{row['megabytes']:7.0f}"
        )
