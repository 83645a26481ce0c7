"""What a user waits for: each task's training, start-up, passes with draws, the quickstart."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import absolute
from bayesrnn.errors import BayesRNNError
from bayesrnn.progress import progress_bar, say
from bayesrnn.runs.start import make_trainer
from bayesrnn.studies.machine import median_seconds
from bayesrnn.tasks import TASKS
from bayesrnn.tasks.lm.model import LanguageModel
from bayesrnn.training.run_directory import RunDirectory
from bayesrnn.uncertainty.kept import KeptDraws
from bayesrnn.uncertainty.predict import predict

#: What starts: words for `python -m bayesrnn`, or code.
STARTS: Mapping[str, tuple[str, ...]] = {
    "bayesrnn --version": ("-m", "bayesrnn", "--version"),
    "bayesrnn --help": ("-m", "bayesrnn", "--help"),
    "bayesrnn train lm --help": ("-m", "bayesrnn", "train", "lm", "--help"),
    "import bayesrnn": ("-c", "import bayesrnn; bayesrnn.Bayesian"),
    "import torch": ("-c", "import torch"),
}

#: Texts side by side and words of each, of passes with draws; and how many draws.
PASSES = ((20, 100), (1, 20))
DRAWS = 10

Rows = dict[str, dict[str, float | str]]


def bench_programs(turns: int, with_quickstart: bool = False) -> dict[str, Rows]:
    """Start-up, training of each task by its defaults, passes with draws; maybe the quickstart."""
    found = {"start-up": start_ups(turns), "training": task_rates(turns), "passes": passes(turns)}
    if with_quickstart:
        with tempfile.TemporaryDirectory() as folder:
            run = ("-m", "bayesrnn", "quickstart", "--out", folder)
            found["quickstart"] = {"bayesrnn quickstart": {"seconds": _seconds_of(run)}}
    _print(found)
    return found


def start_ups(turns: int) -> Rows:
    """The median seconds of a new process for each of `STARTS`."""
    times: dict[str, list[float]] = {name: [] for name in STARTS}
    with progress_bar(turns * len(STARTS), " starts", "starting") as bar:
        for _ in range(turns):
            for name, words in STARTS.items():
                times[name].append(_seconds_of(words))
                bar.update()
    return {name: {"seconds": median(values)} for name, values in times.items()}


def _seconds_of(words: tuple[str, ...]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    return time.perf_counter() - start


def task_rates(turns: int) -> Rows:
    """What each task's default run trains on in a second; tasks without their data are left out."""
    rows: Rows = {}
    count = len(TASKS) * (turns + 1)
    with tempfile.TemporaryDirectory() as folder, progress_bar(count, " turns", "training") as bar:
        for name, task in TASKS.items():
            config = task.resolve({})
            try:
                data = task.load(config)
            except BayesRNNError as error:
                say(f"{name} is left out: {error}")
                continue
            run = RunDirectory(Path(folder) / name)
            trainer = make_trainer(task, config, data, run, torch.device("cpu"))
            calls = min(2, len(trainer.batches) // (turns + 1))
            if not calls:
                say(f"{name} is left out: its epoch has {len(trainer.batches)} minibatches")
                continue
            seconds = median_seconds({name: trainer.step}, turns, bar, calls)[name]
            rows[name] = {
                "method": config.method,
                "unit": f"{task.unit}s",
                "per_second": trainer.items_per_batch / seconds,
                "seconds": seconds,
            }
    return rows


def passes(turns: int, vocabulary: int = 10_000, hidden: int = 200) -> Rows:
    """Words per second that the mean network reads, and each draw, anew or kept, at small size."""
    module = LanguageModel(vocabulary, hidden, 2)
    module.initialise(0.05, torch.Generator().manual_seed(0))
    net = Bayesian(module, sigma_init=absolute(0.02)).eval()
    kept = KeptDraws(net, DRAWS)
    rows: Rows = {}
    with progress_bar(len(PASSES) * 3 * (turns + 1), " turns", "reading") as bar:
        for texts, words in PASSES:
            text = torch.randint(vocabulary, (words, texts))
            work: dict[str, Callable[[], Any]] = {
                "mean": partial(_evaluated, module, text),
                "draw": partial(predict, net, text, samples=DRAWS),
                "kept draw": partial(predict, kept, text, samples=DRAWS),
            }
            seconds = median_seconds(work, turns, bar)
            for name, value in seconds.items():
                each = value if name == "mean" else value / DRAWS
                rows[f"{name}, {texts} x {words} words"] = {
                    "per_second": texts * words / each,
                    "ratio": each / seconds["mean"],
                    "seconds": each,
                }
    return rows


@torch.no_grad()
def _evaluated(module: torch.nn.Module, text: torch.Tensor) -> torch.Tensor:
    probabilities: torch.Tensor = module.eval()(text)[0].softmax(-1)
    return probabilities


def _print(found: Mapping[str, Rows]) -> None:
    print(f"\n{torch.get_num_threads()} threads")
    for title, rows in found.items():
        print(f"\n{title}")
        for name, row in rows.items():
            print(f"{name:32}{_in_words(row)}")


def _in_words(row: Mapping[str, float | str]) -> str:
    said = f"{row['seconds']:9.4f} s"
    if "per_second" in row:
        said += f"{row['per_second']:12,.0f} {row.get('unit', 'words')}/s"
    if "ratio" in row:
        said += f"{row['ratio']:7.2f}x the mean"
    return said + (f"  ({row['method']})" if "method" in row else "")
