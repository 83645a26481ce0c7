"""Break it: kills, torn saves, damaged files, hostile inputs, limits; one table of what came out.

    python benchmarks/torture.py FOLDER --kills 200 --mutations 10000 --inputs 5000

FOLDER keeps all that was done: called again, also after a kill, it goes on. `--seconds 200` stops
after that time. Each case is made by its number, so that what was found can be done again; FOLDER
has a line for each in `PART.jsonl`. It needs Linux.

kills: training of each task by each method is killed at random moments, resumed, maybe killed
    again, and has to end with the bits of a run that nobody killed.
saves: a process is killed, or the disk is full, at every call of a save to the file system; what
    was there before or what was to be written has to be there, whole.
mutations: a file of a run directory, or a compact file, is damaged; what uses it has to refuse it
    in one line, or to say exactly what it said before.
inputs: texts, tables, series, images, features and digits that were made up, strange or damaged
    are read, or refused in one line.
limits: training with little memory, on a full disk, with little time; resumed, it has to end with
    the same bits.
memory: training for many steps, and predicting many times, must not take more and more of it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))  # its neighbours, also where this is imported

from torture_cases import INPUTS, OPTIONAL, damage_file, files_of, fresh_copy
from torture_limits import limit_cases, memory_cases
from torture_runs import Runs
from torture_saves import save_cases
from torture_worker import (
    all_cases,
    append,
    done_in,
    ended,
    exit_code,
    forked,
    judged,
    judged_call,
    killed,
    say_to,
)

#: How a case ends well, and how it does not.
GOOD = ("equal", "same", "refused", "flat")
BAD = ("wrong", "unclear", "traceback", "hang", "crash", "executed")


def kill_case(runs: Runs, number: int, folder: Path) -> dict[str, Any]:
    """Kill a training once or a few times, and let it end."""
    dice = random.Random(f"kill {number}")
    pair = runs.pairs[number % len(runs.pairs)]
    arguments, reference = runs.arguments(*pair), runs.reference(*pair)
    run, kills = folder / "killed", 0
    fresh_copy(runs.empty, run)
    where = {"what": " ".join(pair)}
    while True:
        process = forked(lambda: exit_code([*arguments, "--resume", "--out", str(run)]), folder)
        last = kills > 0 and dice.random() < 0.6
        moment = 120 if last else dice.random() * reference.seconds
        code = ended(process, moment)
        if code is None:
            killed(process)
            if last:
                return {**where, "kills": kills, "end": "hang"}
            kills += 1
        elif code:
            said = say_to([*arguments, "--resume", "--out", str(run)])
            note = (said.traceback or said.errors)[-600:]
            return {**where, "kills": kills, "end": "wrong", "note": f"exit code {code}: {note}"}
        elif last:
            break
        else:
            fresh_copy(runs.empty, run)  # it was faster than the kill
    same = runs.hash(run) == reference.hash
    return {**where, "kills": kills, "end": "equal" if same else "wrong"}


def kill_cases(runs: Runs, kills: int, results: Path, folder: Path, until: float) -> None:
    """Kill until it was often enough."""
    while time.monotonic() < until:
        done = done_in(results)
        if sum(line["kills"] for line in lines_of(results)) >= kills:
            return
        append(results, done, kill_case(runs, done, folder))


def mutation_case(runs: Runs, number: int, folder: Path) -> dict[str, Any]:
    """Damage one file, and use it."""
    dice = random.Random(f"mutation {number}")
    source = dice.choices(runs.targets, [target.weight for target in runs.targets])[0]
    copy = fresh_copy(source.path, folder / source.path.name)
    name = dice.choice(files_of(copy)) if copy.is_dir() else ""
    by_state = name.endswith("state.safetensors") or name == "last"
    expected = None if by_state else source.expected(name, copy)
    damaged, optional = (copy / name if name else copy), name.startswith(OPTIONAL)
    how = damage_file(dice, damaged, source.path / name, optional)
    where = {"what": f"{source.path.name}/{name}", "how": how}
    if by_state:
        return {**where, **runs.judged_state(copy, source)}
    return {**where, **judged(say_to(source.command(name, copy)), expected)}


def input_case(runs: Runs, number: int, folder: Path) -> dict[str, Any]:
    """Make up an input, and read it."""
    dice = random.Random(f"input {number}")
    kind = list(INPUTS)[number % len(INPUTS)]
    content = INPUTS[kind](dice, runs.sample(kind))
    where, use = {"what": kind}, runs.reader(kind)
    file = folder / use.name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    if use.call is not None:
        call = use.call
        return {**where, **judged_call(lambda: call(file))}
    said = say_to(use.arguments(file))
    if said.code == 0 and not said.traceback:
        escapes = "\x1b" in said.out + said.errors
        return {**where, "end": "wrong" if escapes else "same", "note": "escapes" * escapes}
    return {**where, **judged(said, None)}


def lines_of(results: Path) -> list[dict[str, Any]]:
    """The results of a part."""
    done_in(results)
    return list(map(json.loads, results.read_text().splitlines())) if results.exists() else []


def table(folder: Path, asked: dict[str, int]) -> tuple[str, bool]:
    """One row for each part, and whether nothing went wrong."""
    heads = ("part", "asked", "done", *GOOD, *BAD)
    rows, fine = [heads], True
    for part, wanted in asked.items():
        found = lines_of(folder / f"{part}.jsonl")
        ends = Counter(line["end"] for line in found)
        done = sum(line["kills"] for line in found) if part == "kills" else len(found)
        fine = fine and not any(ends[name] for name in BAD)
        rows.append((part, f"{wanted:,}", f"{done:,}", *(str(ends[n]) for n in (*GOOD, *BAD))))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
    return "\n".join(lines), fine


def main() -> int:
    """Do what is asked for, as far as time allows, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where everything is kept")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--inputs", type=int, default=5_000)
    parser.add_argument("--saves", type=int, default=10_000, help="at most; there are fewer")
    parser.add_argument("--limits", type=int, default=60)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--predictions", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--few", action="store_true", help="damage runs of two tasks only")
    parser.add_argument("--table", action="store_true", help="only show what was found before")
    given = parser.parse_args()
    folder = given.folder.resolve()
    asked = {
        "kills": given.kills,
        "saves": len(lines_of(folder / "saves.jsonl")),
        "mutations": given.mutations,
        "inputs": given.inputs,
        "limits": given.limits,
        "memory": 2 * bool(given.steps or given.predictions),
    }
    if not given.table:
        torch.set_num_threads(1)  # processes with threads cannot be forked
        os.environ["OMP_NUM_THREADS"] = "1"
        until = time.monotonic() + given.seconds
        work = folder / "work"
        work.mkdir(parents=True, exist_ok=True)
        runs = Runs(folder / "base", whole=not given.few)

        def file(part: str) -> Path:
            return folder / f"{part}.jsonl"

        asked["saves"] = save_cases(file("saves"), given.saves, work, until)
        limit_cases(runs, given.limits, file("limits"), work, until)
        for part in ("mutations", "inputs"):
            case = {"mutations": mutation_case, "inputs": input_case}[part]
            all_cases(
                lambda number, case=case: case(runs, number, work),
                asked[part],
                file(part),
                work,
                until,
            )
        kill_cases(runs, given.kills, file("kills"), work, until)
        if asked["memory"]:
            memory_cases(runs, given.steps, given.predictions, file("memory"), work, until)
    text, fine = table(folder, asked)
    print(text)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
