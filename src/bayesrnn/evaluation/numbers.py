"""How far predicted numbers are from the truth, and how honest their intervals are."""

from dataclasses import dataclass
from typing import Final

from torch import Tensor

from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.evaluation.regression import RegressionPrediction

#: The shares of probability of the central intervals whose coverage is measured.
INTERVALS: Final = (0.5, 0.8, 0.9, 0.95)

_WIDTH_OF = 0.9


@dataclass(frozen=True)
class NumberFigures:
    """Figures over `examples` predicted numbers, in their own unit.

    rmse: root of the mean squared error of the predicted mean.
    mae: its mean absolute error.
    nll: mean negative logarithm of the predicted density at the truth.
    coverage: the share of truths inside each of the central `INTERVALS`. An honest prediction has
        as much in an interval as it says.
    width: the mean width of the 90% interval; of honest ones, the narrower is the better.
    """

    rmse: float
    mae: float
    nll: float
    coverage: tuple[float, ...]
    width: float
    examples: int


def number_figures(prediction: RegressionPrediction, truths: Tensor) -> NumberFigures:
    """The figures of predicted distributions for `truths`, both [examples]."""
    if truths.dim() != 1 or prediction.mean.shape != truths.shape:
        raise ConfigError(
            f"predictions have the shape {list(prediction.mean.shape)} and truths "
            f"{list(truths.shape)}; both have to be [examples]"
        )
    if not len(truths):
        raise CorpusError("there are no numbers to compare with; give at least one")
    errors = prediction.mean - truths
    coverage = []
    for share in INTERVALS:
        low, high = prediction.interval(share)
        coverage.append(((low <= truths) & (truths <= high)).double().mean().item())
    low, high = prediction.interval(_WIDTH_OF)
    return NumberFigures(
        rmse=errors.square().mean().sqrt().item(),
        mae=errors.abs().mean().item(),
        nll=-prediction.log_density(truths).mean().item(),
        coverage=tuple(coverage),
        width=(high - low).mean().item(),
        examples=len(truths),
    )
