"""Speed and memory of pruned language models, against dense ones on the same machine."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from bayesrnn.progress import progress_bar
from bayesrnn.studies.bench import BATCH, UNROLL, VOCABULARY
from bayesrnn.studies.machine import in_own_process, median_seconds, resident_megabytes
from bayesrnn.tasks.lm.model import LanguageModel
from bayesrnn.tasks.lm.sparse import SparseLanguageModel

FRACTIONS = (0.0, 0.8, 0.95)

#: The dense network, and the sparse one for what it may prefer.
BenchedForm = Literal["dense", "memory", "speed"]
FORMS: tuple[BenchedForm, ...] = ("dense", "memory", "speed")


@dataclass(frozen=True)
class ModelSize:
    """Sizes of the language model."""

    vocabulary: int = VOCABULARY
    hidden: int = 650
    layers: int = 2


@dataclass(frozen=True)
class Workload:
    """How text is read: `calls` of the network, each with `words` of each of some streams."""

    name: str
    words: int
    streams: int
    calls: int = 1

    @property
    def read(self) -> int:
        """Words in all."""
        return self.words * self.streams * self.calls


WORKLOADS = (
    Workload("word by word", 1, 1, calls=10),
    Workload("one stream", 100, 1),
    Workload("batch", UNROLL, BATCH),
)

Result = dict[str, dict[str, dict[str, dict[str, float]]]]


def bench_pruned(steps: int, threads: int | None = None, size: ModelSize | None = None) -> Result:
    """Time per word and memory of dense and sparse inference, by what is dropped and is read.

    Of time, the median turn counts. Memory is what a new process holds with the network ready and
    in use, beyond what it held before the network was made; logits that were handed out do not
    count.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    size = size or ModelSize()
    result: Result = {}
    # Of workloads with as many streams, the last reads the longest.
    widest = {workload.streams: workload for workload in WORKLOADS}
    processes = len(widest) * (1 + len(FRACTIONS) * (len(FORMS) - 1))
    turns = len(WORKLOADS) * len(FRACTIONS) * len(FORMS) * (steps + 1)
    with progress_bar(processes + turns, " turns", "measuring") as bar:
        dense = {n: _apart(size, 0.0, "dense", each, bar) for n, each in widest.items()}
        for fraction in FRACTIONS:
            rows = result[f"{fraction:.0%}"] = {}
            memory = {n: {"dense": megabytes} for n, megabytes in dense.items()}
            for streams, workload in widest.items():
                for form in FORMS[1:]:
                    memory[streams][form] = _apart(size, fraction, form, workload, bar)
            for workload in WORKLOADS:
                held = memory[workload.streams]
                work = {form: make_reader(size, fraction, form, workload) for form in FORMS}
                seconds = median_seconds(work, steps, bar)
                rows[workload.name] = {
                    form: {
                        "ratio": seconds["dense"] / seconds[form],
                        "memory_ratio": held[form] / held["dense"],
                        "seconds_per_word": seconds[form] / workload.read,
                        "megabytes": held[form],
                    }
                    for form in FORMS
                }
    _print(result, size, steps)
    return result


def make_reader(
    size: ModelSize, fraction: float, form: BenchedForm, workload: Workload
) -> Callable[[], None]:
    """A function that reads random words with a network that has lost this share of its weights."""
    model = make_model(size, fraction, form)
    generator = torch.Generator().manual_seed(1)
    shape = (workload.calls, workload.words, workload.streams)
    text = torch.randint(size.vocabulary, shape, generator=generator)

    @torch.no_grad()
    def read() -> None:
        state = None
        for words in text:
            _, state = model(words, state)

    return read


def make_model(size: ModelSize, fraction: float, form: BenchedForm) -> nn.Module:
    """A language model with random weights, of which the smallest are dropped."""
    dense = LanguageModel(size.vocabulary, size.hidden, size.layers).eval()
    bound = 0.05
    dense.initialise(bound, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for weight in dense.parameters():
            if weight.dim() > 1:  # uniform, so the smallest tenth lies within a tenth of the bound
                weight.mul_(weight.abs() >= fraction * bound)
    return dense if form == "dense" else SparseLanguageModel(dense, form)


def _apart(
    size: ModelSize, fraction: float, form: BenchedForm, workload: Workload, bar: Any
) -> float:
    """`resident_growth` in a new process."""
    threads = torch.get_num_threads()
    found = in_own_process(resident_growth, size, fraction, form, workload, threads)
    bar.update()
    return found


def resident_growth(
    size: ModelSize, fraction: float, form: BenchedForm, workload: Workload, threads: int
) -> float:
    """Megabytes that this process holds more once it has made a network and read with it."""
    torch.set_num_threads(threads)
    small = ModelSize(vocabulary=50, hidden=20, layers=size.layers)
    for each in FORMS:  # what the libraries set up once is no part of a network
        make_reader(small, 0.5, each, workload)()
    before = resident_megabytes()
    read = make_reader(size, fraction, form, workload)
    read()
    read()
    return resident_megabytes() - before


def _print(result: Result, size: ModelSize, steps: int) -> None:
    reads = "; ".join(f"{r.name}: {r.streams} x {r.words * r.calls} words" for r in WORKLOADS)
    print(
        f"reading with an LSTM of {size.layers}x{size.hidden}, {size.vocabulary:,} words, "
        f"{torch.get_num_threads()} threads, median of {steps} interleaved turns\n{reads}"
    )
    print(f"{'dropped':9}{'':14}{'':8}{'speed':>8}{'memory':>8}{'us/word':>9}{'MB':>7}")
    for fraction, workloads in result.items():
        for workload, forms in workloads.items():
            for form, row in forms.items():
                print(
                    f"{fraction:9}{workload:14}{form:8}{row['ratio']:7.2f}x"
                    f"{row['memory_ratio']:7.2f}x{row['seconds_per_word'] * 1e6:9.0f}"
                    f"{row['megabytes']:7.0f}"
                )
