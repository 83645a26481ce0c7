"""Forecasts of several runs side by side, and which differences are more than chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from bayesrnn.errors import RunError
from bayesrnn.random import seeded
from bayesrnn.report.table import Table, distinct_names
from bayesrnn.runs.evaluation import CALIBRATED
from bayesrnn.runs.summary import RunSummary
from bayesrnn.tasks.forecast.evaluate import REFITTED
from bayesrnn.tasks.forecast.resampling import drawn_ratios, interval, ratios
from bayesrnn.uncertainty.bootstrap import Interval

_SPLIT: Final = "test"
_RESAMPLES: Final = 1000
#: Fewer windows than this say nothing about chance.
_FEWEST: Final = 3


class _Score(NamedTuple):
    """A metric as one sum over windows over another: names of `by_window`; "" counts windows."""

    above: str
    below: str
    form: str


SCORES: Final = {
    "MASE": _Score("mase", "", ".3f"),
    "WQL": _Score("pinball", "size", ".4f"),
    "MSIS": _Score("msis", "", ".2f"),
    "80% holds": _Score("held_80", "values", ".3f"),
}


@dataclass(frozen=True)
class ForecastLine:
    """The forecasts of one run by one kind of inference.

    problem: two lines whose problem differs have no window in common.
    keys: of each window the number of its series, its start, and the sum of |y| that came.
    by_window: float64 [windows]; none of a result of an earlier version.
    differences: by score, how far it is above the first line.
    """

    run: str
    label: str
    problem: tuple[object, ...]
    keys: tuple[tuple[int, int, float], ...] = ()
    by_window: Mapping[str, Tensor] = field(default_factory=dict)
    differences: Mapping[str, Interval] = field(default_factory=dict)

    def part(self, keys: Sequence[tuple[int, int, float]]) -> ForecastLine:
        """Of these windows alone."""
        places = {key: place for place, key in enumerate(self.keys)}
        kept = torch.tensor([places[key] for key in keys])
        by_window = {name: of[kept] for name, of in self.by_window.items()}
        return replace(self, keys=tuple(keys), by_window=by_window)

    def sums(self, name: str) -> tuple[Tensor, Tensor]:
        """What a score is the ratio of, by window."""
        wanted = SCORES[name]
        above = self.by_window[wanted.above]
        return above, self.by_window[wanted.below] if wanted.below else torch.ones_like(above)

    def score(self, name: str) -> Tensor:
        """A score of all windows once."""
        above, below = self.sums(name)
        return ratios(torch.ones(1, len(above), dtype=torch.double), above, below)


def compare_forecasts(summaries: Sequence[RunSummary]) -> Table | None:
    """The scores of the test windows that `evaluate` kept; None where no run has any.

    Each line is compared with the first one, window by window.
    """
    found = kept_lines(summaries)
    lines = [line for line in found if line.keys]
    if not lines:
        return None
    compared = compared_lines(lines)
    notes = [
        f"forecasts: of the {_SPLIT} windows, as `bayesrnn evaluate` kept them, intervals as the "
        "network has them; MASE, WQL and MSIS: lower is better"
    ]
    if any(line.differences for line in compared):
        notes.append(
            "difference: from the first line, with the 95% interval of a paired bootstrap over "
            f"series and the windows of each ({_RESAMPLES:,} resamples); real: it excludes 0"
        )
    other = [line for line in compared[1:] if not line.differences]
    if other:
        which = ", ".join(f"{line.run} ({line.label})" for line in other)
        notes.append(f"fewer than {_FEWEST} windows in common with the first line: {which}")
    old = dict.fromkeys(line.run for line in found if not line.keys)
    if old:
        notes.append(f"no scores by window: {', '.join(old)}; run `bayesrnn evaluate` again")
    return forecast_table(compared, notes)


def forecast_table(lines: Sequence[ForecastLine], notes: Sequence[str]) -> Table:
    """A row for each score of each line, with differences where there are any."""
    differ = any(line.differences for line in lines)
    rows = []
    for name, (_, _, form) in SCORES.items():
        for line in lines:
            value = line.score(name).item()
            row = [name, line.run, line.label, str(len(line.keys))]
            row.append(f"{value:{form}}" if value == value else "-")
            rows.append(row + [_difference(line.differences.get(name), form)] * differ)
    header = ["score", "run", "by", "windows", "value", *["difference"] * differ]
    return Table(header, rows, ("score", "run", "by"), notes)


def _difference(found: Interval | None, form: str) -> str:
    """The difference with its interval, called real where that is all on one side of 0."""
    if found is None or found.value != found.value:
        return "-"
    real = " real" if found.low > 0 or found.high < 0 else ""
    return f"{found.value:+{form}} ({found.low:+{form}}, {found.high:+{form}}){real}"


def compared_lines(lines: Sequence[ForecastLine]) -> list[ForecastLine]:
    """The lines with the differences between each and the first, on the windows of both."""
    first = lines[0]
    made = [first]
    for line in lines[1:]:
        own = set(line.keys) if line.problem == first.problem else set()
        common = [key for key in first.keys if key in own]
        if len(common) < _FEWEST:
            made.append(line)
            continue
        ours, theirs = line.part(common), first.part(common)
        drawn = drawn_ratios(
            torch.tensor([key[0] for key in common]),
            {(name, of is ours): of.sums(name) for name in SCORES for of in (ours, theirs)},
            _RESAMPLES,
            seeded(1),
        )
        differences = {
            name: interval(
                (ours.score(name) - theirs.score(name)).item(),
                drawn[name, True] - drawn[name, False],
            )
            for name in SCORES
        }
        made.append(replace(line, differences=differences))
    return made


def kept_lines(summaries: Sequence[RunSummary]) -> list[ForecastLine]:
    """What evaluations of each run kept: of the mean, of draws, and of what is calibrated."""
    found = []
    for run, summary in zip(distinct_names(summaries), summaries, strict=True):
        for inference in ("mean", "samples", CALIBRATED, REFITTED):
            result = summary.result(_SPLIT, inference)
            if result is not None:
                found.append(_read(result, run, summary))
    return found


def _read(result: Mapping[str, Any], run: str, summary: RunSummary) -> ForecastLine:
    try:
        label = str(result["label"]).removeprefix("averaged over ").removeprefix("phi ")
        problem = (summary.data, result["horizon"], result["season"])
        given = result.get("by_window")
        if given is None:
            return ForecastLine(run, label, problem)
        places = zip(given["series"], given["start"], given["size"], strict=True)
        # As many digits as another order of adding up leaves alone.
        keys = tuple((int(one), int(start), float(f"{size:.9g}")) for one, start, size in places)
        names = {name for wanted in SCORES.values() for name in wanted[:2] if name}
        by_window = {
            name: torch.tensor(
                [float("nan") if value is None else float(value) for value in given[name]],
                dtype=torch.double,
            )
            for name in names
        }
        if any(len(of) != len(keys) for of in by_window.values()):
            raise ValueError
        return ForecastLine(run, label, problem, keys, by_window)
    except (KeyError, TypeError, AttributeError, ValueError):
        raise RunError(
            f"a result of {summary.path} does not have the windows that it should; write it again "
            "with `bayesrnn evaluate`"
        ) from None
