"""Forecasts of published sets beside seasonal naive, and beside other libraries: one table.

    python benchmarks/forecast.py --data FOLDER --out runs/forecasts --methods bbb --seeds 1,2,3

trains each method on each set by `bayesrnn train forecast`, evaluates it on the windows that the
set's published figures are of, and prints means and standard errors over seeds. What is done is
kept in --out and not done again. Options after `--` go to `train forecast`.
"""

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bayesrnn.durable import write_durably
from bayesrnn.report.table import Table
from bayesrnn.report.text import number_text

#: Draws and paths of each forecast, as `bayesrnn forecast` has them.
DRAWS, PATHS = 20, 200
NAIVE: Final = "seasonal-naive"
RIVALS: Final = ("AutoETS", "MSTL", "DeepAR")
RIVAL_SETS: Final = ("us_births", "taylor", "tourism_monthly")


@dataclass(frozen=True)
class Published:
    """A set: its windows, how its file is read, and what MASE and WQL are to reach."""

    horizon: int
    windows: int
    must: tuple[float, float] | None = None
    goal: tuple[float, float] | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def arguments(self, name: str, folder: Path) -> list[str]:
        """The options of `train forecast` that say what is learnt."""
        given = {
            "data": str(folder / f"{name}.csv.gz"),
            "horizon": str(self.horizon),
            "test-windows": str(self.windows),
            **self.options,
        }
        return [part for option, value in given.items() for part in (f"--{option}", value)]


SETS: Final = {
    "us_births": Published(30, 20, (1.25, 0.0265), (1.00, 0.0210)),
    "i94_traffic": Published(24, 20, (0.62, 0.050), (0.55, 0.044)),
    "m4_hourly": Published(48, 1, (0.95, 0.0345), (0.80, 0.028)),
    "tourism_monthly": Published(24, 1, (1.53, 0.0859), (1.45, 0.078)),
    "hospital": Published(12, 1, (0.84, 0.060), (0.78, 0.054)),
    "car_parts": Published(12, 1, (0.84, 1.00), (0.80, 0.90)),
    "us_employment": Published(12, 4, (0.45, 0.0055), (0.36, 0.0040)),
    "beijing_pm25": Published(24, 20, (0.80, 0.52), (0.70, 0.45), {"target-col": "pm2.5"}),
    "bike_sharing": Published(24, 20, (1.10, 0.35), (0.85, 0.28), {"target-col": "users"}),
    "taylor": Published(48, 14, (0.80, 0.0130), (0.58, 0.0090)),
    "nyc_taxi": Published(48, 20, (1.30, 0.1165), (1.15, 0.100)),
    # From 2020-02-13 on, through the lockdowns: four windows would have only the last of them.
    "pedestrians_covid": Published(28, 18),
}
#: The single series with little to learn from, on which `bbb` is to hold more than `plain`.
SHORT: Final = ("taylor", "nyc_taxi", "pedestrians_covid")
BARRED: Final = tuple(name for name, published in SETS.items() if published.must is not None)


@dataclass(frozen=True)
class Score:
    """What a method reached on a set with one seed; None where there is no such figure."""

    mase: float
    wql: float
    msis: float
    held: float
    calibrated: float | None
    minutes: float | None

    @classmethod
    def of(cls, row: Mapping[str, Any], minutes: float | None) -> "Score":
        """From a row of an evaluation: `held` is the share of values in 80% intervals."""
        calibrated = row.get("coverage_calibrated") or {}
        return cls(
            row["mase"],
            row["wql"],
            row["msis"],
            row["coverage"]["80"],
            calibrated.get("80"),
            minutes,
        )


@dataclass(frozen=True)
class Mean:
    """The mean over seeds and its standard error, NaN of a single seed."""

    value: float
    error: float

    def text(self, digits: int) -> str:
        """Such as 1.059 ±0.004."""
        shown = number_text(self.value, digits)
        return shown if math.isnan(self.error) else f"{shown} ±{number_text(self.error, digits)}"


def mean_of(values: Iterable[float | None]) -> Mean | None:
    """None where there is no value."""
    there = [value for value in values if value is not None]
    if not there:
        return None
    error = statistics.stdev(there) / math.sqrt(len(there)) if len(there) > 1 else math.nan
    return Mean(statistics.fmean(there), error)


#: By set and method, the scores of its seeds.
Found = dict[tuple[str, str], dict[int, Score]]


def value(found: Found, name: str, method: str, metric: str) -> float | None:
    """The mean over seeds of a metric."""
    mean = mean_of(getattr(score, metric) for score in found.get((name, method), {}).values())
    return None if mean is None else mean.value


def reached(found: Found, name: str, method: str, bars: tuple[float, float] | None) -> str:
    """Which of two bars, on MASE and on WQL, the means are above; empty where there are none."""
    if bars is None or method == NAIVE:
        return ""
    named = zip(("mase", "wql"), bars, strict=True)
    missed = [
        metric.upper() for metric, bar in named if (value(found, name, method, metric) or 0.0) > bar
    ]
    return f"not {', '.join(missed)}" if missed else "met"


def table_of(found: Found) -> Table:
    """One row for each set and method, and below what is reached over all sets."""
    digits = {"mase": 3, "wql": 4, "msis": 2, "held": 3, "calibrated": 3, "minutes": 1}
    rows = []
    for (name, method), scores in found.items():
        means = {metric: mean_of(getattr(s, metric) for s in scores.values()) for metric in digits}
        cells = [mean.text(digits[m]) if mean else "-" for m, mean in means.items()]
        published = SETS[name]
        bars = [reached(found, name, method, bar) for bar in (published.must, published.goal)]
        count = "" if method == NAIVE else str(len(scores))
        rows.append([name, method, count, *cells, *bars])
    header = ["set", "method", "seeds", "MASE", "WQL", "MSIS", "80% holds", "calibrated"]
    header += ["CPU min", "must", "goal"]
    methods = dict.fromkeys(method for _, method in found if method != NAIVE)
    notes = [note for method in methods for note in notes_of(found, method)]
    return Table(header, rows, left=("set", "method", "must", "goal"), notes=notes)


def notes_of(found: Found, method: str) -> list[str]:
    """What a method reaches over the sets that have bars."""
    names = [name for name in BARRED if (name, method) in found]
    if not names:
        return []
    ratios = {m: [_ratio(found, name, method, m) for name in names] for m in ("mase", "wql")}
    means = {m: statistics.geometric_mean(of) for m, of in ratios.items()}
    below = sum(ratio < 1 for ratio in ratios["wql"])
    raw = [_within(value(found, name, method, "held"), 0.70, 0.92) for name in names]
    calibrated = [_within(value(found, name, method, "calibrated"), 0.75, 0.86) for name in names]
    musts = sum(reached(found, name, method, SETS[name].must) == "met" for name in names)
    goals = sum(reached(found, name, method, SETS[name].goal) == "met" for name in names)
    notes = [
        f"{method}, {len(names)} sets against seasonal naive: geometric mean of the ratios MASE "
        f"{means['mase']:.3f}, WQL {means['wql']:.3f}; WQL below it on {below}",
        f"{method}: must met on {musts} of {len(names)}, goal on {goals}; 80% intervals hold 70 to "
        f"92% on {sum(raw)}, calibrated 75 to 86% on {sum(calibrated)}",
    ]
    return notes + (short_notes(found) if method == "bbb" else [])


def short_notes(found: Found) -> list[str]:
    """On short series, what `bbb` holds more than `plain` with the same seed, and both MSIS."""
    notes = []
    for name in SHORT:
        ours, plain = found.get((name, "bbb"), {}), found.get((name, "plain"), {})
        for seed in sorted(ours.keys() & plain.keys()):
            more = ours[seed].held - plain[seed].held
            notes.append(
                f"{name}, seed {seed}: 80% intervals of bbb hold {more:+.3f} more than those of "
                f"plain, MSIS {ours[seed].msis:.2f} against {plain[seed].msis:.2f}"
            )
    return notes


def _ratio(found: Found, name: str, method: str, metric: str) -> float:
    own, naive = value(found, name, method, metric), value(found, name, NAIVE, metric)
    assert own is not None
    assert naive is not None
    return own / naive


def _within(value: float | None, low: float, high: float) -> bool:
    return value is not None and low <= value <= high


@dataclass(frozen=True)
class Bench:
    """Where the data and the runs are, and how runs are trained and evaluated."""

    data: Path
    out: Path
    part: str = "test"
    threads: int = 1
    options: Sequence[str] = ()

    def measured(self, name: str, method: str, seed: int) -> dict[str, Any]:
        """The evaluation of a run with its `minutes`; trains what is not there yet."""
        folder = self.out / name / f"{method}-seed{seed}"
        given = SETS[name].arguments(name, self.data)
        given += ["--method", method, "--seed", str(seed), *self.options]
        trained = folder / "trained.json"
        if not trained.exists():
            folder.mkdir(parents=True, exist_ok=True)
            keep = ["--threads", str(self.threads), "--out", str(folder / "run"), "--resume"]
            seconds = self._run(folder, ["train", "forecast", *given, *keep])
            _write(trained, {"arguments": given, "seconds": seconds})
        kept = _read(trained)
        _require_same(trained, kept["arguments"], given)
        file = folder / f"{self.part}.json"
        if not file.exists():
            draws = ["--samples", str(DRAWS), "--paths", str(PATHS), "--uncalibrated"]
            raw = folder / f"{self.part}-evaluation.json"
            asked = ["--split", self.part, *draws, "--json", str(raw)]
            seconds = self._run(folder, ["evaluate", str(folder / "run"), *asked])
            _write(file, {**_read(raw), "minutes": (kept["seconds"] + seconds) / 60})
        return _read(file)

    def rival(self, name: str, model: str) -> dict[str, Any]:
        """The evaluation of another library's model on the test windows."""
        file = self.out / name / model / "test.json"
        if not file.exists():
            from forecast_rivals import evaluation_of

            file.parent.mkdir(parents=True, exist_ok=True)
            published = SETS[name]
            before = _seconds(resource.RUSAGE_SELF)
            made = evaluation_of(
                model,
                self.data / f"{name}.csv.gz",
                {option.replace("-", "_"): of for option, of in published.options.items()},
                horizon=published.horizon,
                windows=published.windows,
            )
            minutes = (_seconds(resource.RUSAGE_SELF) - before) / 60
            _write(file, {**made, "minutes": minutes})
        return _read(file)

    def _run(self, folder: Path, arguments: list[str]) -> float:
        """The seconds of processor time of a command of the program; its words are kept."""
        command = [sys.executable, "-m", "bayesrnn", *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        before = _seconds(resource.RUSAGE_CHILDREN)
        with (folder / "log.txt").open("a") as log:
            log.write(f"$ bayesrnn {' '.join(arguments)}\n")
            log.flush()
            done = subprocess.run(command, stdout=log, stderr=log, env=environment, check=False)
        if done.returncode:
            sys.exit(f"failed, see {folder / 'log.txt'}: bayesrnn {' '.join(arguments)}")
        return _seconds(resource.RUSAGE_CHILDREN) - before


def collect(bench: Bench, args: argparse.Namespace) -> Found:
    """Everything that is asked for; says what it is at."""
    found: Found = {}
    for name in args.sets:
        naive: dict[str, Any] = {}
        for method in args.methods:
            for seed in args.seeds:
                print(f"{name}, {method}, seed {seed}", file=sys.stderr)
                made = bench.measured(name, method, seed)
                naive = made["seasonal_naive"]
                found.setdefault((name, NAIVE), {})[0] = Score.of(naive, None)
                score = Score.of(made["rows"][-1], made["minutes"])
                found.setdefault((name, method), {})[seed] = score
        for model in args.rivals if name in RIVAL_SETS else ():
            print(f"{name}, {model}", file=sys.stderr)
            made = bench.rival(name, model)
            found.setdefault((name, NAIVE), {})[0] = Score.of(made["seasonal_naive"], None)
            found[name, model] = {1: Score.of(made["scores"], made["minutes"])}
    return found


def as_json(found: Found) -> dict[str, Any]:
    """By set, method and seed."""
    made: dict[str, Any] = {}
    for (name, method), scores in found.items():
        by_seed = {str(seed): vars(score) for seed, score in scores.items()}
        made.setdefault(name, {})[method] = by_seed
    return made


def _require_same(file: Path, kept: list[str], given: list[str]) -> None:
    if kept != given:
        sys.exit(
            f"{file} is of a run with other options: {' '.join(kept)}; now they are "
            f"{' '.join(given)}; give another --out"
        )


def _seconds(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def _read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text())
    return values


def _write(path: Path, values: Mapping[str, Any]) -> None:
    write_durably(path, json.dumps(values, indent=2).encode() + b"\n")


def _names(known: Iterable[str]) -> Any:
    def names(text: str) -> list[str]:
        asked = [name for name in text.split(",") if name]
        unknown = [name for name in asked if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"no {', '.join(unknown)}; there are {', '.join(known)}"
            )
        return asked

    return names


def _seeds(text: str) -> list[int]:
    return [int(seed) for seed in text.split(",") if seed]


def main() -> None:
    """Train and evaluate what is missing, and print the table."""
    parser = argparse.ArgumentParser(description="forecasts of published sets in one table")
    folder = Path(os.environ.get("BAYESRNN_DATA", ".")) / "forecast"
    parser.add_argument("--data", type=Path, default=folder, help="folder of the sets")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--sets", type=_names(SETS), default=list(BARRED), help="NAME,NAME,...")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=["bbb"])
    parser.add_argument("--seeds", type=_seeds, default=[1])
    parser.add_argument("--part", choices=("valid", "calibration", "test"), default="test")
    parser.add_argument("--threads", type=int, default=1, help="processor threads")
    parser.add_argument(
        "--rivals",
        type=_names(RIVALS),
        nargs="?",
        const=list(RIVALS),
        default=[],
        help=f"other libraries, on {', '.join(RIVAL_SETS)}: all, or NAME,NAME,...",
    )
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    own, passed_on = _cut(sys.argv[1:])
    args = parser.parse_args(own)
    bench = Bench(args.data, args.out, args.part, args.threads, passed_on)
    found = collect(bench, args)
    table = table_of(found)
    print(table.markdown() if args.markdown else table.text(width=160), end="")
    if args.json is not None:
        _write(args.json, as_json(found))


def _cut(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Before and after `--`."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


if __name__ == "__main__":
    main()
