"""What pruning costs one run, and what it leaves, as plain numbers."""

from dataclasses import dataclass

from bayesrnn.compression.file import CompactSize
from bayesrnn.compression.patterns import Pattern
from bayesrnn.uncertainty.likelihood import perplexity


@dataclass(frozen=True)
class Measured:
    """A pruned network: the fraction asked for, whole weights that were dropped, nats a word."""

    fraction: float
    dropped: int
    nll: float

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
class PrunedRun:
    """What pruning costs one run.

    only: patterns of the names of the weights that may be dropped; none for all.
    weights: how many can be dropped.
    fixed: how many parameters cannot.
    curves: the order to trust most first; each begins with the full network.
    shown_order, shown_fraction, shown_dropped: what the patterns show.
    """

    name: str
    path: str
    method: str
    corpus: str
    settings: str
    split: str
    streams: int
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

    @property
    def full(self) -> Measured:
        """The full network."""
        return self.curves[0].points[0]
