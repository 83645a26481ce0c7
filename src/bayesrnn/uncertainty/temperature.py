"""Temperature scaling (Guo et al. 2017): one number that makes a model flatter or sharper."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from bayesrnn.errors import CorpusError
from bayesrnn.uncertainty.average import blocks

#: The grid of inverse temperatures; the best one is found between two of them.
_HOTTEST = 4.0
_POINTS = 9


class TemperatureFit:
    """Finds the temperature T under which p ** (1/T), normalised, makes given words most probable.

    Predictions are added as they come, so that none has to be stored. With b = 1/T the mean
    negative log-likelihood is convex: its slope, E_b[log p] - log p(word), rises with b, and its
    curvature is the variance of log p. Both are summed up for a few values of b, and the zero of
    the slope is found between two of them by cubic interpolation, to 0.3%.
    """

    def __init__(self) -> None:
        end = math.log(_HOTTEST)
        self._inverses = torch.linspace(-end, end, _POINTS, dtype=torch.double).exp()
        self._slopes = torch.zeros(_POINTS, dtype=torch.double)
        self._curvatures = torch.zeros(_POINTS, dtype=torch.double)
        self._words = 0

    def add(self, probabilities: Tensor, targets: Tensor) -> None:
        """Add predictions [..., classes] and the words [...] that followed."""
        start, targets = 0, targets.flatten()
        for block in blocks(probabilities):
            words = targets[start : (start := start + len(block))]
            logs = block.clamp_min(torch.finfo(block.dtype).tiny).log()
            of_target = logs.gather(-1, words[:, None]).sum(dtype=torch.double)
            squares = logs.square()
            for place, inverse in enumerate(self._inverses.tolist()):
                weights = (logs * inverse).softmax(-1)
                mean = torch.linalg.vecdot(weights, logs).double()
                mean_square = torch.linalg.vecdot(weights, squares).double()
                self._slopes[place] += (mean.sum() - of_target).cpu()
                self._curvatures[place] += (mean_square - mean.square()).sum().cpu()
        self._words += len(targets)

    def temperature(self) -> float:
        """The best temperature, between 1/4 and 4."""
        if not self._words:
            raise CorpusError("there are no words to fit a temperature to; give at least one")
        slopes: list[float] = self._slopes.tolist()
        if slopes[0] >= 0:
            return _HOTTEST
        if slopes[-1] <= 0:
            return 1 / _HOTTEST
        right = next(place for place, slope in enumerate(slopes) if slope > 0)
        left = right - 1
        low: float = self._inverses[left].item()
        high: float = self._inverses[right].item()
        # The cubic with these values and derivatives at the ends of the interval, t from 0 to 1.
        width = high - low
        start, rise = slopes[left], slopes[right] - slopes[left]
        first, last = (self._curvatures[place].item() * width for place in (left, right))
        square, cube = 3 * rise - 2 * first - last, first + last - 2 * rise

        def slope(t: float) -> float:
            return start + t * (first + t * (square + t * cube))

        return 1 / (low + width * _zero(slope))


def _zero(rising: Callable[[float], float]) -> float:
    """Where a function that is negative at 0 and positive at 1 is zero, by halving."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2
