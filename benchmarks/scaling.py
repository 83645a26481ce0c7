"""How fast a training step is with one or two processes, and how much they send.

    python benchmarks/scaling.py

The medium language model of the other benchmarks (2 x 650, 10,000 words, 20 sequences of 35), by
the training loop itself, on random words. Every line is a run of its own, one after the other; the
time of a step is the median. Prints a table in Markdown.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from bayesrnn.runs.start import make_trainer
from bayesrnn.tasks import TASKS
from bayesrnn.training.distributed import joined
from bayesrnn.training.run_directory import RunDirectory

VOCABULARY = 10_000


class Setting(NamedTuple):
    """A line of the table."""

    title: str
    method: str
    processes: int
    threads: int
    noise: str = "own"


SETTINGS = [
    Setting("1 process x 1 thread", "bbb", 1, 1),
    Setting("1 process x 2 threads", "bbb", 1, 2),
    Setting("2 processes x 1 thread, own noise", "bbb", 2, 1),
    Setting("2 processes x 1 thread, shared noise", "bbb", 2, 1, "shared"),
    Setting("plain: 1 process x 1 thread", "plain", 1, 1),
    Setting("plain: 1 process x 2 threads", "plain", 1, 2),
    Setting("plain: 2 processes x 1 thread", "plain", 2, 1),
]


def work(setting: Setting, hidden: int, steps: int, text: Path) -> dict[str, float]:
    """The median seconds of a step, and the bytes that a process sends in one."""
    torch.set_num_threads(setting.threads)
    task = TASKS["lm"]
    options = {"corpus": (str(text),), "method": setting.method, "hidden": hidden, "layers": 2}
    sizes = {"unroll": 35, "batch_size": 20, "epochs": 1, "average": 0.0, "size": "medium"}
    cut = {"shards": setting.processes, "shard_noise": setting.noise}
    config = task.resolve({**options, **sizes, **cut, "vocabulary_limit": VOCABULARY})
    with joined(600.0) as group, tempfile.TemporaryDirectory() as folder:
        device, data = torch.device("cpu"), task.load(config)
        trainer = make_trainer(task, config, data, RunDirectory(Path(folder)), device, group)
        trainer.step()  # warms up
        trainer.step()
        group.sent, seconds = 0, []
        for _ in range(steps):
            group.wait()
            start = time.perf_counter()
            trainer.step()
            group.wait()
            seconds.append(time.perf_counter() - start)
        # Noise is drawn anew in every second step of two: take both.
        pairs = [sum(pair) / 2 for pair in zip(seconds[::2], seconds[1::2], strict=True)]
        return {"seconds": statistics.median(pairs), "sent": group.sent / steps}


def measured(setting: Setting, hidden: int, steps: int, text: Path) -> dict[str, float]:
    """What the first of the setting's processes has found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = json.dumps([setting, hidden, steps, str(text)])
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", given],
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(setting.processes),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": str(setting.threads),
            },
        )
        for rank in range(setting.processes)
    ]
    said = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"a process of {setting.title!r} failed")
    found: dict[str, float] = json.loads(said[0].splitlines()[-1])
    return found


def table(rows: list[tuple[Setting, dict[str, float]]]) -> str:
    """The figures in Markdown; speeds are relative to one thread of the same method."""
    one = {s.method: found["seconds"] for s, found in rows if (s.processes, s.threads) == (1, 1)}
    lines = ["| | s/step | speed | MB sent per step and process |", "|---|---:|---:|---:|"]
    for setting, found in rows:
        speed = one[setting.method] / found["seconds"]
        sent = f"{found['sent'] / 1e6:.1f}" if found["sent"] else ""
        lines.append(f"| {setting.title} | {found['seconds']:.3f} | {speed:.2f}x | {sent} |")
    return "\n".join(lines)


def write_words(path: Path, count: int) -> None:
    """A text of random words in which each is known."""
    drawn = np.random.default_rng(0).integers(VOCABULARY, size=count)
    every = np.concatenate([np.arange(VOCABULARY), drawn])
    lines = [" ".join(f"w{word}" for word in line) for line in np.array_split(every, count // 20)]
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Measure every setting and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20, help="an even number of them")
    parser.add_argument("--hidden", type=int, default=650)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        setting, hidden, steps, text = json.loads(given.worker)
        print(json.dumps(work(Setting(*setting), hidden, steps, Path(text))))
        return
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "words.txt"
        write_words(text, 60_000)
        rows = []
        for setting in SETTINGS:
            rows.append((setting, measured(setting, given.hidden, given.steps, text)))
            print(f"{setting.title}: {rows[-1][1]}", file=sys.stderr, flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
