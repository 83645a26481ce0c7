"""What an earlier report of a reproduction says: all that is left of a run without its weights."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bayesrnn.errors import RunError
from bayesrnn.files import explained
from bayesrnn.report import ReproducedRun, Speed, with_kept_figures

#: The report's file of plain values.
VALUES = "results.json"


@dataclass(frozen=True)
class EarlierReport:
    """What is said of each run, by its name, and the speeds by method."""

    path: Path
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    speeds: Mapping[str, Speed] = field(default_factory=dict)

    def figures(self, run: ReproducedRun) -> ReproducedRun:
        """The run with what the report has measured of it."""
        try:
            return with_kept_figures(run, self.runs[run.name])
        except (ValueError, TypeError, LookupError, AttributeError):
            raise _damaged(self.path) from None


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
            runs={run["name"]: run for run in values["runs"]},
            speeds={method: Speed(**speed) for method, speed in values["speeds"].items()},
        )
    except (ValueError, TypeError, LookupError, AttributeError):
        raise _damaged(path) from None


def _damaged(path: Path) -> RunError:
    return RunError(
        f"{path} is damaged; give back a whole copy, or remove it: what it says of runs whose "
        "weights are gone is then lost"
    )
