"""A trial as its folder tells it: its settings, what became of it, and how good it is."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from bayesrnn.durable import write_durably
from bayesrnn.errors import RunError
from bayesrnn.methods import METHODS
from bayesrnn.runs.load import read_config
from bayesrnn.training.averaging import CHOOSE
from bayesrnn.training.optimisation import Schedule
from bayesrnn.training.run_directory import RunDirectory

_FILE: Final = "trial.json"

#: What can become of a trial. Of one that diverged nothing is known but that it is no good.
RUNNING, COMPLETE, PRUNED, DIVERGED = "running", "complete", "pruned", "diverged"


@dataclass(frozen=True)
class TrialRecord:
    """A trial: its number, its settings, and what is known of it.

    value: the validation loss of its best epoch, once it is over.
    """

    number: int
    params: Mapping[str, Any]
    state: str = RUNNING
    value: float | None = None
    reason: str = ""

    def over(self, state: str, value: float | None, reason: str = "") -> "TrialRecord":
        """The same when it is over."""
        return replace(self, state=state, value=value, reason=reason)

    def write(self, folder: Path) -> None:
        """Keep it in the folder of the trial."""
        write_durably(folder / _FILE, (json.dumps(asdict(self), indent=1) + "\n").encode())


def read_record(folder: Path) -> TrialRecord | None:
    """The trial in a folder; None where there is none yet."""
    path = folder / _FILE
    try:
        record = TrialRecord(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError):
        raise RunError(
            f"{path} is damaged; remove the folder {folder}, and its trial begins again"
        ) from None
    return record


@dataclass(frozen=True)
class Progress:
    """How far a trial has come, by what its run has logged.

    losses: the validation loss after each epoch; None where it was no number.
    best: that of the epoch which the run holds for its best.
    falling: whether the learning rate has begun to fall. Methods that train in several rounds have
        one course for each, so that of no epoch it can be said how good the run will be.
    """

    losses: Sequence[float | None]
    best: float | None
    planned: int
    falling: bool
    metrics: Mapping[str, Any]

    @property
    def epochs(self) -> int:
        """How many are finished."""
        return len(self.losses)

    @property
    def is_done(self) -> bool:
        """Whether all of them are."""
        return self.epochs >= self.planned


def read_progress(folder: Path) -> Progress | None:
    """How far the run of a trial has come; None where it has not begun."""
    run = RunDirectory(folder)
    if not run.has_config():
        return None
    config = read_config(folder)
    records = [record for record in run.metrics.read() if record.get("kind") == "epoch"]
    best: Mapping[str, Any] = next((one for one in reversed(records) if one.get("best")), {})
    rounds = METHODS[config["method"]].round_epochs(config.get("options", {}), config["epochs"])
    schedule = Schedule(config["lr"], config["hold_epochs"], config["decay"])
    return Progress(
        [_loss(record) for record in records],
        _loss(best),
        sum(rounds),
        len(rounds) == 1 and schedule.at(len(records) - 1) < config["lr"],
        best,
    )


def _loss(record: Mapping[str, Any]) -> float | None:
    """What training chooses the best epoch by."""
    found = [record.get(f"valid_{name}") for name in CHOOSE if f"valid_{name}" in record]
    return float(found[0]) if found and found[0] is not None and math.isfinite(found[0]) else None
