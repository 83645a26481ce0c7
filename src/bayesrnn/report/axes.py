"""Axes of a chart: from values to places, with ticks at round numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_LOG_FROM = 4.0  # largest over smallest value
_STEPS = (1, 2, 5)


@dataclass(frozen=True)
class Axis:
    """Maps values between `low` and `high` onto 0 to 1, evenly or by their logarithm."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float) -> float:
        """Where the value is, from 0 to 1."""
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return min(max((value - low) / (high - low), 0.0), 1.0)


def value_axis(values: Sequence[float]) -> Axis:
    """An axis for values such as perplexities: logarithmic when they span more than a factor 4."""
    low, high = _range(values, margin=0.1 * max(map(abs, values), default=0.0) or 1.0)
    if low > 0 and high / low > _LOG_FROM:
        margin = (high / low) ** 0.04
        low, high = max(low / margin, 1e-308), min(high * margin, 1e308)
        return Axis(low, high, _log_ticks(low, high), log=True)
    step = _step(high - low, 6)
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    return Axis(low, high, _linear_ticks(low, high, step))


def count_axis(values: Sequence[float]) -> Axis:
    """An axis for counts such as epochs: from the first to the last, ticks at whole numbers."""
    low, high = _range(values, margin=0.5)
    return Axis(low, high, _linear_ticks(low, high, max(_step(high - low, 10), 1)))


def tick_text(value: float) -> str:
    """A tick as short as it can be said."""
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        digits, power = f"{value:.9e}".split("e")
        return f"{float(digits):.10g}e{int(power)}"
    return f"{value:,.10g}"


def _range(values: Sequence[float], margin: float) -> tuple[float, float]:
    """The smallest and the largest value, pulled apart by the margin if they are equal."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if high - low <= max(1e-9 * max(abs(low), abs(high)), 1e-12):
        return low - margin, high + margin
    return low, high


def _step(span: float, most: int) -> float:
    """The smallest round step that cuts the span in at most `most` parts."""
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(m * power for m in (*_STEPS, 10, 20) if m * power * most >= span * (1 - 1e-9))


def _linear_ticks(low: float, high: float, step: float) -> tuple[float, ...]:
    first, last = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
    return tuple(float(f"{k * step:.12g}") for k in range(first, last + 1))


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Round numbers inside the range: as many per power of ten as there is room for."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 3, 5), _STEPS, (1,)):
        ticks = [float(f"{d}e{power}") for power in powers for d in digits]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) <= 10:
            return tuple(inside)
    return tuple(inside[:: math.ceil(len(inside) / 8)])
