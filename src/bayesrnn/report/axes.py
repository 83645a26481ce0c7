"""Axes of a chart: from values to places, with ticks at round numbers."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

_LOG_FROM = 4.0  # largest over smallest value
_STEPS = (1, 2, 5)
_MOST_STEPS = 12


@dataclass(frozen=True)
class Axis:
    """Maps values between `low` and `high` onto 0 to 1.

    scale: evenly, by their logarithm, or by steps: every tick as far from the next, whatever
        lies between them.
    words: what to write instead of a number.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    scale: Literal["even", "log", "steps"] = "even"
    words: Mapping[float, str] = field(default_factory=dict)

    @property
    def log(self) -> bool:
        """Whether the scale is logarithmic."""
        return self.scale == "log"

    def text(self, value: float) -> str:
        """What to write at a value."""
        return self.words.get(value) or tick_text(value)

    def place(self, value: float) -> float:
        """Where the value is, from 0 to 1."""
        if self.scale == "steps":
            middles = [(step + 0.5) / len(self.ticks) for step in range(len(self.ticks))]
            return float(np.interp(value, self.ticks, middles))
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return min(max((value - low) / (high - low), 0.0), 1.0)


#: Makes the axis for the values that a chart shows.
AxisMaker = Callable[[Sequence[float]], Axis]


def value_axis(values: Sequence[float]) -> Axis:
    """An axis for values such as perplexities: logarithmic when they span more than a factor 4."""
    low, high = _value_range(values)
    if low > 0 and high / low > _LOG_FROM:
        margin = (high / low) ** 0.04
        low, high = max(low / margin, 1e-308), min(high * margin, 1e308)
        return Axis(low, high, _log_ticks(low, high), "log")
    return even_axis(values)


def even_axis(values: Sequence[float]) -> Axis:
    """An axis for values such as entropies, which may be negative: never logarithmic."""
    low, high = _value_range(values)
    step = _step(high - low, 6)
    # A value that is next to nothing becomes nothing when it is divided.
    low, high = min(math.floor(low / step) * step, low), max(math.ceil(high / step) * step, high)
    return Axis(low, high, _linear_ticks(low, high, step))


def count_axis(values: Sequence[float]) -> Axis:
    """An axis for counts such as epochs: from the first to the last, ticks at whole numbers."""
    low, high = _range(values, margin=0.5)
    return Axis(low, high, _linear_ticks(low, high, max(_step(high - low, 10), 1)))


def share_axis(values: Sequence[float]) -> Axis:
    """An axis for shares: from 0 to 1, whatever the values."""
    return Axis(0.0, 1.0, _linear_ticks(0.0, 1.0, 0.2))


def step_axis(values: Sequence[float]) -> Axis:
    """An axis for a few chosen numbers such as 0, 1, 2, 5, 10, 20: ticks at these, evenly."""
    stops = sorted(set(values)) or [0.0, 1.0]
    ticks = (*stops[: -1 : math.ceil(len(stops) / _MOST_STEPS)], stops[-1])
    return Axis(stops[0], stops[-1], ticks, "steps")


def draw_axis(values: Sequence[float]) -> Axis:
    """An axis for numbers of draws; 0 is the mean network."""
    return replace(step_axis(values), words={0: "mean"})


def tick_text(value: float) -> str:
    """The shortest text for a tick."""
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        digits, power = f"{value:.9e}".split("e")
        return f"{float(digits):.10g}e{int(power)}"
    return f"{value:,.10g}"


def _value_range(values: Sequence[float]) -> tuple[float, float]:
    return _range(values, margin=0.1 * max(map(abs, values), default=0.0) or 1.0)


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
