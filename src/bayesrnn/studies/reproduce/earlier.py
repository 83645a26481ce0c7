"""What an earlier report of a reproduction says: of a run without weights, all that is left."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bayesrnn.durable import explained
from bayesrnn.errors import RunError
from bayesrnn.runs.summary import RunSummary
from bayesrnn.studies.reproduce.results import ReproducedRun, Speed, epoch_values, with_kept_figures

#: The report's file of plain values.
VALUES = "results.json"


@dataclass(frozen=True)
class EarlierReport:
    """What is said of each run, by its name, and the speeds by method.

    size: of the networks; None where there is no report.
    """

    path: Path
    size: str | None = None
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    speeds: Mapping[str, Speed] = field(default_factory=dict)

    def is_of(self, summary: RunSummary) -> bool:
        """Whether it knows the run, with the same figures after each epoch."""
        said = self.runs.get(summary.name)
        return said is not None and said.get("epoch_by_epoch") == epoch_values(summary)

    def complete(self, run: ReproducedRun) -> ReproducedRun:
        """The run with what the report has measured of it, where the run itself has less."""
        if not self.is_of(run.summary):
            return run
        try:
            said = with_kept_figures(run, self.runs[run.name])
        except (ValueError, TypeError, LookupError, AttributeError):
            raise _damaged(self.path) from None
        if len(run.figures) >= len(said.figures):
            said = replace(said, figures=run.figures, draws=run.draws, dynamic=run.dynamic)
        return replace(said, gaps=run.gaps or said.gaps, pruning=run.pruning or said.pruning)


def read_earlier(out: Path) -> EarlierReport:
    """The report that stands in the folder of a reproduction; an empty one if there is none."""
    path = out / VALUES
    with explained(f"read {path}", "see that it can be read"):
        data = path.read_bytes() if path.exists() else None
    if data is None:
        return EarlierReport(path)
    try:
        values = json.loads(data)
        return EarlierReport(
            path,
            values["size"],
            runs={run["name"]: run for run in (*values.get("not_shown", ()), *values["runs"])},
            speeds={method: Speed(**speed) for method, speed in values["speeds"].items()},
        )
    except (ValueError, TypeError, LookupError, AttributeError):
        raise _damaged(path) from None


def _damaged(path: Path) -> RunError:
    return RunError(
        f"{path} is damaged; give back a whole copy, or remove it: what it says of runs whose "
        "weights are gone is then lost"
    )
