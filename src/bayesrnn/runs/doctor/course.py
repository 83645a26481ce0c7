"""What the log of a run says of its training: epochs, the best of them, and clipped steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayesrnn.runs.task import Measure, finite_number
from bayesrnn.training.rounds import round_of


@dataclass(frozen=True)
class Course:
    """The course of a training; where a method trains in rounds, of the last one that was begun.

    planned: epochs of that round.
    valid: the measure on the validation set after each finished epoch, as it is shown.
    best: the epoch of the round whose weights are kept as the best, counted from 1.
    clipped: the share of logged steps whose gradient was longer than the limit; None without one.
    norms: median norm of the logged gradients.
    """

    planned: int
    valid: tuple[float, ...]
    best: int | None
    clipped: float | None
    norms: float | None

    @property
    def epochs(self) -> int:
        """Finished epochs."""
        return len(self.valid)

    @property
    def last_gain(self) -> float | None:
        """By which share the last epoch lowered the measure."""
        if self.epochs < 2 or not self.valid[-2]:
            return None
        return 1 - self.valid[-1] / self.valid[-2]

    @property
    def rise(self) -> float | None:
        """By which share the measure has risen from its lowest to the last epoch."""
        lowest = min(self.valid, default=0.0)
        return self.valid[-1] / lowest - 1 if lowest else None


def read_course(
    records: Sequence[Mapping[str, Any]],
    measure: Measure,
    rounds: Sequence[int],
    clip: float | None,
) -> Course:
    """The course from the records of `metrics.jsonl`; `rounds` are the epochs of each round."""
    epochs = {r["epoch"]: r for r in records if r.get("kind") == "epoch"}
    _, before, planned = round_of(max(epochs, default=1) - 1, rounds)
    own = [record for number, record in sorted(epochs.items()) if number > before]
    values = [measure.read(record, "valid_") for record in own]
    best = [record["epoch"] - before for record in own if record.get("best") is True]
    logged = [finite_number(r.get("gradient_norm")) for r in records if r.get("kind") == "train"]
    norms = sorted(norm for norm in logged if norm is not None)
    return Course(
        planned=planned,
        valid=tuple(value for value in values if value is not None),
        best=best[-1] if best else None,
        clipped=sum(norm > clip for norm in norms) / len(norms) if clip and norms else None,
        norms=norms[len(norms) // 2] if norms else None,
    )
