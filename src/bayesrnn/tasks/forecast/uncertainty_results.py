"""What is found of the uncertainty of forecasters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bayesrnn.uncertainty.bootstrap import Interval

#: The tables: what groups of values differ by.
BY_STEP: Final = "step"
BY_HISTORY: Final = "history"
BY_NOVELTY: Final = "novelty"
BY_SERIES: Final = "series"


@dataclass(frozen=True)
class ForecastGroup:
    """Values of test windows that have something in common.

    table: what they differ by from other groups. coverage, calibrated: by level, the share of
    values in the interval as the network has it, and calibrated; width: of the 80% interval, in
    units of the scale. epistemic_share: None of a single network.
    """

    table: str
    name: str
    windows: int
    values: int
    mase: Interval
    coverage: Mapping[str, Interval]
    calibrated: Mapping[str, Interval]
    width: float
    epistemic_share: float | None


@dataclass(frozen=True)
class ForecastLevel:
    """What the mean network (`samples` 0) or draws say.

    coverage_by_step: by level, of each step; share_by_step: the epistemic share, if there is one.
    """

    samples: int
    groups: tuple[ForecastGroup, ...]
    coverage_by_step: Mapping[str, tuple[float, ...]]
    share_by_step: tuple[float, ...]

    def of(self, table: str) -> list[ForecastGroup]:
        """The groups of a table."""
        return [group for group in self.groups if group.table == table]


@dataclass(frozen=True)
class ForecastUncertainty:
    """What is found of one run."""

    name: str
    path: str
    method: str
    data: str
    settings: str
    split: str
    step: int
    seed: int
    bootstrap: int
    horizon: int
    season: int
    levels: tuple[ForecastLevel, ...]
