"""How well `bayesrnn anomalies` finds the event days of New York's taxis.

    python benchmarks/anomalies.py FOLDER --out taxi --seed 1

FOLDER holds nyc_taxi.csv.gz, half-hourly counts from 2014-07-01 to 2015-01-31 (Numenta Anomaly
Benchmark). A run with default settings is trained on what lies before 2014-10-01, and judges the
123 days after that, of which six are events: the marathon, Thanksgiving, Christmas, New Year and
two days of a snow storm. AUROC is by the score of a day, and of the 16 whole weeks.
"""

import argparse
import gzip
import json
from pathlib import Path

import numpy as np
import torch

from bayesrnn.cli.main import main as program
from bayesrnn.random import seeded
from bayesrnn.uncertainty.detection import detection

EVENTS = ("2014-11-02", "2014-11-27", "2014-12-25", "2015-01-01", "2015-01-26", "2015-01-27")
ECHO = "2015-01-08"
CUT = "2014-10-01"


def main() -> None:
    """Train if there is no run yet, judge days and weeks, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("taxi"))
    parser.add_argument("--seed", default="1")
    parser.add_argument("--threads", default="1")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    run = options.out / f"run-seed{options.seed}"
    before, after = options.out / "before.csv", options.out / "after.csv"
    header, *rows = gzip.decompress((options.folder / "nyc_taxi.csv.gz").read_bytes()).splitlines()
    for file, kept in ((before, rows_from(rows, "", CUT)), (after, rows_from(rows, CUT, "9"))):
        file.write_bytes(b"\n".join([header, *kept]) + b"\n")
    if not run.exists():
        arguments = ("--out", str(run), "--seed", options.seed, "--threads", options.threads)
        program(["train", "forecast", "--data", str(before), *arguments])
    days, weeks = (windows(run, after, kind) for kind in ("day", "week"))
    order = sorted(days, key=days.__getitem__)
    print(f"AUROC by day: {auroc(days, 1):.4f} of {len(days)}")
    # Monday to Sunday: the first and the last week of the file are not whole.
    whole = {day: score for day, score in weeks.items() if CUT <= day <= "2015-01-19"}
    print(f"AUROC by week: {auroc(whole, 7):.4f} of {len(whole)}")
    print(f"ranks of events: {', '.join(str(order.index(day) + 1) for day in EVENTS)}")
    print(f"rank of {ECHO}, a week after New Year: {order.index(ECHO) + 1}")


def rows_from(rows: list[bytes], first: str, stop: str) -> list[bytes]:
    """The rows of dates from `first` to before `stop`."""
    return [row for row in rows if first.encode() <= row < stop.encode()]


def windows(run: Path, data: Path, kind: str) -> dict[str, float]:
    """The scores of days or weeks by their first day; less is stranger."""
    out = run.parent / f"{kind}.json"
    program(["anomalies", str(run), "--data", str(data), "--window", kind, "--json", str(out)])
    (found,) = json.loads(out.read_text())["windows"].values()
    return {one["window"]: one["score"] for one in found}


def auroc(scores: dict[str, float], length: int) -> float:
    """The chance that a window of so many days with an event in it is stranger than one without."""
    events = np.array(EVENTS, dtype="datetime64[D]")
    doubts: dict[bool, list[float]] = {False: [], True: []}
    for name, score in scores.items():
        apart = (events - np.datetime64(name)).astype(int)
        doubts[bool(((apart >= 0) & (apart < length)).any())].append(-score)
    regular, strange = (torch.tensor(doubts[kind]) for kind in (False, True))
    return detection(regular, strange, seeded(1), bootstrap=0).auroc.value


if __name__ == "__main__":
    main()
