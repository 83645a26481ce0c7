"""Kill the workers of a search at random, and see that nothing is lost.

    python benchmarks/search_kills.py --kills 100

Three workers train the trials of one search, on the first words of the embedded novel; at random
moments one of them is killed by SIGKILL, and another takes its place. In the end there has to be
what a quiet search of one worker finds: the same settings and the same losses, to the last bit,
each trial told once, and a journal that every reader can read. The first trials of a search do not
depend on what is known by then, so that an order of its own changes nothing. A line at the end says
what was found; an exit code of 1 says that something is wrong.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import optuna
import torch
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from bayesrnn.cli.main import main
from bayesrnn.studies.search.record import TrialRecord, read_record
from bayesrnn.tasks import TASKS

#: A network that learns an epoch in a fraction of a second, and is saved some times meanwhile.
TINY = (
    *("--hidden", "8", "--batch-size", "4", "--unroll", "10", "--vocabulary-limit", "300"),
    *("--epochs", "2", "--save-minutes", "0.002", "--device", "cpu", "--threads", "1"),
)
CHARACTERS = 8_000
_TOLD = (1, 2)  # the states complete and pruned in Optuna's journal


class Outcome(NamedTuple):
    """What a search left: its trials, how often each was told, and the lines of its journal."""

    trials: list[TrialRecord]
    told: Counter[int]
    lines: int


def worker(arguments: Sequence[str]) -> int:
    """Start a worker in a process that shares what is imported; gives its number."""
    process = os.fork()
    if process:
        return process
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        os._exit(main(arguments))


def search_with_kills(
    arguments: Sequence[str], lines: int, kills: int, workers: int, seed: int
) -> int:
    """Run workers until nothing is left to do, killing at random; gives the kills.

    Kills are spread over the work by its progress, the lines of the journal out of as many as the
    quiet search wrote, and not by time: on any machine they meet all of it.
    """
    chance = random.Random(seed)
    journal = Path(arguments[arguments.index("--out") + 1]) / "journal.log"
    running = [worker(arguments) for _ in range(workers)]
    done = due = 0
    while running:
        time.sleep(0.01)
        for process in list(running):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                running.remove(process)
                if status:
                    raise SystemExit(f"a worker ended by itself with {status}")
        if running and done < kills and lines_of(journal) >= due:
            time.sleep(chance.uniform(0.0, 0.1))
            process = chance.choice(running)
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            running.remove(process)
            running.append(worker(arguments))
            done += 1
            left = max(0, lines - lines_of(journal))
            due = lines_of(journal) + int(chance.uniform(0, 1.5) * left / (kills - done + 1))
    return done


def lines_of(journal: Path) -> int:
    """How many lines a journal has, if it is there."""
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def outcome(folder: Path) -> Outcome:
    """What the folder says, once from its trials and once from its journal, by plain Optuna."""
    lines = (folder / "journal.log").read_bytes().splitlines()
    records = [json.loads(line) for line in lines]
    told = Counter(r["trial_id"] for r in records if r["op_code"] == 6 and r["state"] in _TOLD)
    trials = [read_record(path) for path in sorted((folder / "trials").iterdir())]
    found = [trial for trial in trials if trial is not None]
    storage = JournalStorage(JournalFileBackend(str(folder / "journal.log")))
    study = optuna.load_study(study_name="search", storage=storage)
    assert [t.value for t in study.get_trials()] == [t.value for t in found]
    assert [t.params for t in study.get_trials()] == [t.params for t in found]
    return Outcome(found, told, len(lines))


def complaints(quiet: Outcome, killed: Outcome, trials: int) -> list[str]:
    """What is wrong with a search whose workers were killed."""
    wrong = []
    if quiet.trials != killed.trials:
        wrong.append("the trials differ from those of the quiet search")
    if killed.told != Counter(range(trials)):
        wrong.append(f"not each trial was told once: {dict(killed.told)}")
    if any(trial.state != "complete" for trial in killed.trials):
        wrong.append("not all trials are complete")
    return wrong


def run() -> int:
    """Search twice, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--trials", type=int, default=27)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    TASKS["lm"].resolve({})  # imported once, for all workers
    with tempfile.TemporaryDirectory() as place:
        text = Path(place) / "novel.txt"
        novel = Path(sys.modules["bayesrnn"].__path__[0]) / "data/bundled/pride-and-prejudice.txt"
        text.write_text(novel.read_text(encoding="utf-8")[:CHARACTERS], encoding="utf-8")
        common = ["search", "lm", "--corpus", str(text), *TINY, "--space", "paper", "--no-pruning"]
        common += ["--trials", str(given.trials)]
        quiet, killed = Path(place) / "quiet", Path(place) / "killed"
        os.waitpid(worker([*common, "--out", str(quiet)]), 0)
        expected = outcome(quiet)
        kills = search_with_kills(
            [*common, "--out", str(killed)],
            lines=expected.lines,
            kills=given.kills,
            workers=given.workers,
            seed=given.seed,
        )
        found = outcome(killed)
        wrong = complaints(expected, found, given.trials)
        same = (quiet / "best.toml").read_bytes() == (killed / "best.toml").read_bytes()
    wrong += [] if same else ["best.toml differs"]
    wrong += [] if kills == given.kills else [f"it was over after {kills} kills: more --trials"]
    print(
        f"{kills} kills of {given.workers} workers, {given.trials} trials told "
        f"{sum(found.told.values())} times, a journal of {found.lines} whole lines: "
        + ("; ".join(wrong) or "as the quiet search to the last bit")
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(run())
