"""What a reproduction of published results has found, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bayesrnn.runs.summary import RunSummary


@dataclass(frozen=True)
class GapLevel:
    """The entropy gap by the number of draws, 0 for the mean weights, in nats a word.

    scaled_gap: with the temperature that suits the validation text best; None where not measured.
    """

    samples: int
    nll: float
    entropy: float
    gap: float
    scaled_gap: float | None


@dataclass(frozen=True)
class PruningCurves:
    """What dropping weights costs on the validation text.

    by_ratio, by_magnitude: perplexities by the share that is dropped, lowest |mean| / sigma or
        smallest weights first; None for one that is not finite. Where there is no sigma, nothing
        is dropped by ratio.
    within: the largest share that costs at most 1% in perplexity, and the perplexity there.
    """

    by_ratio: Mapping[float, float | None]
    by_magnitude: Mapping[float, float | None]
    within: tuple[float, float]

    @property
    def curve(self) -> Mapping[float, float | None]:
        """By the order that `within` is of: the ratio, or magnitude for weights without sigma."""
        return self.by_ratio or self.by_magnitude


@dataclass(frozen=True)
class ReproducedRun:
    """One run of the reproduction.

    settings: the same text for runs that differ only in their seed.
    perplexities: at the best epoch, by "valid-mean", "test-draws" and the like.
    draws: how many are behind the averaged ones.
    one_network: a name for what predicts without draws.
    dynamic: a text with the settings of dynamic evaluation.
    unlike_asked: what is different from what was asked for.
    unlike_published: what is different from the published set-up.
    """

    summary: RunSummary
    seed: int
    settings: str
    perplexities: Mapping[str, float] = field(default_factory=dict)
    draws: int = 0
    one_network: str = "mean weights"
    dynamic: str = ""
    unlike_asked: tuple[str, ...] = ()
    unlike_published: tuple[str, ...] = ()
    gaps: tuple[GapLevel, ...] = ()
    pruning: PruningCurves | None = None

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.summary.name

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.summary.epochs_done >= self.summary.epochs_planned


@dataclass(frozen=True)
class Speed:
    """Training at medium size against plain training: steps a second, and memory at the peak."""

    ratio: float
    memory_ratio: float


@dataclass(frozen=True)
class Reproduction:
    """All that was found.

    made_with: the program and what it ran on, at the time of this report.
    missing: runs that were asked for and are not begun.
    skipped: what was left out, and never measured.
    """

    size: str
    command: str
    runs: Sequence[ReproducedRun]
    made_with: str = ""
    missing: Sequence[str] = ()
    skipped: Sequence[str] = ()
    speeds: Mapping[str, Speed] = field(default_factory=dict)


def reproduction_values(found: Reproduction) -> dict[str, Any]:
    """All of it as plain values, for a JSON file."""
    return {
        "size": found.size,
        "command": found.command,
        "made_with": found.made_with,
        "runs": [_run_values(run) for run in found.runs],
        "missing": list(found.missing),
        "not_measured": list(found.skipped),
        "speeds": {method: asdict(speed) for method, speed in found.speeds.items()},
    }


def _run_values(run: ReproducedRun) -> dict[str, Any]:
    summary, pruning = run.summary, run.pruning
    return {
        "name": run.name,
        "method": summary.method,
        "network": summary.network,
        "seed": run.seed,
        "epochs": summary.epochs_planned,
        "epochs_done": summary.epochs_done,
        "best_epoch": summary.best_epoch,
        "perplexities": dict(run.perplexities),
        "draws": run.draws,
        "dynamic": run.dynamic,
        "unlike_asked": list(run.unlike_asked),
        "unlike_published": list(run.unlike_published),
        "epoch_by_epoch": [
            {"epoch": point.epoch, "train": point.train, "valid": point.valid}
            for point in summary.points
        ],
        "entropy_gaps": [asdict(level) for level in run.gaps],
        "pruning": pruning
        and {
            "by_ratio": [list(point) for point in pruning.by_ratio.items()],
            "by_magnitude": [list(point) for point in pruning.by_magnitude.items()],
            "within_1_percent": list(pruning.within),
        },
    }
