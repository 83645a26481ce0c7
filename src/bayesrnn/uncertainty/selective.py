"""What is gained by withholding doubtful answers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.uncertainty.calibration import mean_over_ties


@dataclass(frozen=True)
class RiskCoverage:
    """The mean loss of the answers that are kept when the most doubtful ones are withheld.

    coverage: share of answers kept, rising; the last is 1.
    risk: mean loss of those that are kept.
    area: mean of the risk over every number of kept answers, not only over the coverages listed
        here (AURC, Geifman & El-Yaniv 2017); less is better.
    """

    coverage: tuple[float, ...]
    risk: tuple[float, ...]
    area: float


def risk_coverage(doubt: Tensor, loss: Tensor, points: int = 100) -> RiskCoverage:
    """Risk for rising coverage; the answers with the highest `doubt` are withheld first.

    `doubt` and `loss` are [answers]; a loss is 0 or 1 for right and wrong, or any other number.
    The curve has at most `points` coverages, evenly spaced. Among answers of equal doubt, the
    figures are the means over all orders: each counts with the mean loss of them all.
    """
    doubt, loss = _checked(doubt, loss, points)
    kept = mean_over_ties(doubt, loss)[doubt.argsort()]
    total = len(kept)
    risk = kept.cumsum(0) / torch.arange(1, total + 1)
    points = min(points, total)
    counts = [-(-place * total // points) for place in range(1, points + 1)]  # rounded up
    return RiskCoverage(
        coverage=tuple(count / total for count in counts),
        risk=tuple(risk[count - 1].item() for count in counts),
        area=risk.mean().item(),
    )


def _checked(doubt: Tensor, loss: Tensor, points: int) -> tuple[Tensor, Tensor]:
    """Doubt and loss as float64 on the CPU, when they fit."""
    if points < 1:
        raise ConfigError(f"points is {points}; it has to be 1 or more")
    if doubt.dim() != 1 or loss.shape != doubt.shape:
        raise ConfigError(
            f"doubt has the shape {list(doubt.shape)} and loss {list(loss.shape)}; "
            "both have to be [answers]"
        )
    if not len(doubt):
        raise CorpusError("there are no answers to choose from; give at least one")
    for name, values in (("doubt", doubt), ("loss", loss)):
        if bad := int((~values.isfinite()).sum()):
            raise ConfigError(
                f"{name} is NaN or infinite for {bad} of {len(values)} answers; give finite numbers"
            )
    return doubt.detach().cpu().double(), loss.detach().cpu().double()
