"""What pruning costs one run, and what it leaves, as plain numbers."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from bayesrnn.compression.file import CompactSize
from bayesrnn.compression.patterns import Pattern
from bayesrnn.uncertainty.likelihood import perplexity


@dataclass(frozen=True)
class Measured:
    """A pruned network: the fraction asked for, whole weights that were dropped, and metrics.

    nll: nats a prediction.
    value: the task's own metric, in the unit that is shown; None where it is perplexity.
    """

    fraction: float
    dropped: int
    nll: float
    value: float | None = None

    @property
    def perplexity(self) -> float:
        """exp(nll)."""
        return perplexity(self.nll)


@dataclass(frozen=True)
class Curve:
    """One order of dropping weights: what it costs, from the full network on."""

    order: str
    points: tuple[Measured, ...]


@dataclass(frozen=True)
class KeptQuality:
    """The largest fraction that was found whose perplexity is within `quality` of the full one.

    limit: the highest nll that is within.
    tried: what was measured to find it, beside the curve.
    """

    quality: float
    limit: float
    order: str
    found: Measured
    tried: tuple[Measured, ...]


@dataclass(frozen=True)
class PrunedFile:
    """A pruned network in a file.

    values: their type in the file.
    masked: the network before it was written, with zeros for the weights that were dropped.
    written: the network as it was read from the file.
    tuned: before fine-tuning and after each epoch of it; empty without.
    """

    path: str
    values: str
    size: CompactSize
    masked: Measured
    written: Measured
    tuned: tuple[Measured, ...] = ()


@dataclass(frozen=True)
class UnitsLeft:
    """How many units of a layer do anything still."""

    layer: str
    units: int
    left: int


@dataclass(frozen=True)
class PrunedRun:
    """What pruning costs one run.

    data: what it learnt from.
    place: what it was measured on, in words.
    title, digits: of the task's metric.
    only: patterns of the names of the weights that may be dropped; none for all.
    weights: how many can be dropped.
    fixed: how many parameters cannot.
    curves: the order to trust most first; each begins with the full network.
    shown_order, shown_fraction, shown_dropped: what the patterns show.
    whole_units: whether units were dropped, each with all of its weights.
    units: what is left of the layers of a network that knows its units.
    """

    name: str
    path: str
    method: str
    data: str
    settings: str
    split: str
    streams: int | None
    step: int
    seed: int
    only: tuple[str, ...]
    per_tensor: bool
    weights: int
    fixed: int
    curves: tuple[Curve, ...]
    quality: KeptQuality | None
    shown_order: str
    shown_fraction: float
    shown_dropped: int
    patterns: tuple[Pattern, ...]
    file: PrunedFile | None = None
    place: str = "validation text"
    title: str = "perplexity"
    digits: int = 2
    whole_units: bool = False
    units: tuple[UnitsLeft, ...] = ()

    @property
    def full(self) -> Measured:
        """The full network."""
        return self.curves[0].points[0]


def as_json(run: PrunedRun) -> dict[str, Any]:
    """The metrics as values for a JSON file, with those that follow from others."""
    quality, file = run.quality, run.file
    return {
        **asdict(run),
        "full": _point(run.full),
        "curves": {curve.order: [_point(point) for point in curve.points] for curve in run.curves},
        "quality": quality
        and {
            "quality": quality.quality,
            "order": quality.order,
            "limit": _finite(Measured(0, 0, quality.limit).perplexity),
            **_point(quality.found),
            "tried": [_point(point) for point in quality.tried],
        },
        "patterns": [
            {**asdict(pattern), "dropped": pattern.dropped, "share": pattern.share}
            for pattern in run.patterns
        ],
        "file": file
        and {
            "path": file.path,
            "values": file.values,
            "bytes": asdict(file.size),
            "ratio": file.size.ratio,
            "index_share": file.size.index_share,
            "masked": _point(file.masked),
            "written": _point(file.written),
            "tuned": [_point(point) for point in file.tuned],
        },
    }


def _point(point: Measured) -> dict[str, Any]:
    return {**asdict(point), "perplexity": _finite(point.perplexity)}


def _finite(value: float) -> float | None:
    """JSON knows no infinity."""
    return value if math.isfinite(value) else None
