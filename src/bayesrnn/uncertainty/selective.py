"""Selective prediction: what is gained by withholding uncertain answers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesrnn.uncertainty.calibration import mean_over_ties
from bayesrnn.uncertainty.checks import per_example


@dataclass(frozen=True)
class RiskCoverage:
    """The mean loss of the answers that are given when the most uncertain ones are withheld.

    coverage: share of answers given, rising; the last is 1.
    risk: mean loss of those that are given.
    area: mean of the risk over every number of answers given, not only over the coverages listed
        here (AURC, Geifman & El-Yaniv 2017); less is better.
    """

    coverage: tuple[float, ...]
    risk: tuple[float, ...]
    area: float


def risk_coverage(uncertainty: Tensor, loss: Tensor, points: int = 100) -> RiskCoverage:
    """Risk for rising coverage; the most uncertain answers are withheld first.

    `uncertainty` and `loss` are [answers]; a loss is 0 or 1 for right and wrong, or any other
    number. The curve has at most `points` coverages, evenly spaced. Among equally uncertain
    answers, the risk is the mean over all orders: each counts with the mean loss of them all.
    """
    uncertainty, loss = per_example(uncertainty=uncertainty, loss=loss)
    ordered = mean_over_ties(uncertainty, loss)[uncertainty.argsort()]
    total = len(ordered)
    risk = ordered.cumsum(0) / torch.arange(1, total + 1)
    points = min(points, total)
    counts = [-(-place * total // points) for place in range(1, points + 1)]  # rounded up
    return RiskCoverage(
        coverage=tuple(count / total for count in counts),
        risk=tuple(risk[count - 1].item() for count in counts),
        area=risk.mean().item(),
    )
