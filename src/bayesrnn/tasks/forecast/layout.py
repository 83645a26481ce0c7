"""What a forecaster reads and what it gives: everything that its network needs to be used."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from bayesrnn.errors import RunError
from bayesrnn.untrusted import plain_json

BASES: Final = ("seasonal", "last", "none")
LIKELIHOODS: Final = ("student-t", "gaussian", "negative-binomial")

#: The context covers about two seasons, within these numbers of steps.
_SHORTEST, _LONGEST = 28, 96
#: Seasons of the past that the scales of a window are taken from.
_SCALE_SEASONS = 4
#: Days after which a weekday and, in most years, a date come back.
_YEAR_OF_WEEKS, _YEAR = 364, 365


@dataclass(frozen=True)
class Layout:
    """The inputs and outputs of a forecaster.

    frequency: the step of the grid in words; empty without dates.
    base: what is added to the output: the value a season ago, the last value, or nothing.
    season, seasons: the values of a season, and of all seasons that the lags know.
    lags: how far back the values lie that are inputs.
    calendar: the names of the calendar's inputs, see `calendar.py`.
    known, past, static: names of covariates; `centres` and `widths` standardise those that are
        numbers, and `categories` are the texts that a static covariate can be.
    """

    frequency: str
    base: str
    likelihood: str
    horizon: int
    context: int
    season: int
    seasons: tuple[int, ...]
    lags: tuple[int, ...]
    differences: tuple[tuple[int, int], ...]
    calendar: tuple[str, ...]
    non_negative: bool
    known: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    centres: Mapping[str, float] | None = None
    widths: Mapping[str, float] | None = None
    categories: Mapping[str, tuple[str, ...]] | None = None

    @property
    def base_lag(self) -> int:
        """How far back the base lies; of none, the difference that measures the spread."""
        return 1 if self.base == "last" else self.season

    @property
    def span(self) -> int:
        """The values before a forecast that its scales are taken from."""
        return max(self.context, _SCALE_SEASONS * self.season)

    @property
    def reach(self) -> int:
        """The values before a forecast that it depends on."""
        furthest = max(*self.lags, *(max(pair) for pair in self.differences))
        return max(self.context + furthest, self.span + self.season)

    @property
    def fewest(self) -> int:
        """The values that there have to be before a forecast."""
        return self.season + 2

    @property
    def past_columns(self) -> slice:
        """Where the past covariates are among calendar and covariates."""
        first = len(self.calendar) + len(self.known)
        return slice(first, first + 2 * len(self.past))

    @property
    def static_inputs(self) -> int:
        """The inputs that static covariates become."""
        categories = self.categories or {}
        return sum(len(categories.get(name, (name,))) for name in self.static)

    @property
    def inputs(self) -> int:
        """The inputs of the network at each step."""
        own = len(self.lags) + len(self.differences) + 2  # and what was missing
        covariates = len(self.known) + 2 * len(self.past) + self.static_inputs
        return own + len(self.calendar) + covariates + 1  # and the ratio of the scales

    def text(self) -> str:
        """A text that `read_layout` takes."""
        return json.dumps(asdict(self), indent=2) + "\n"


def read_layout(text: str) -> Layout:
    """What `Layout.text` wrote."""
    try:
        values: dict[str, Any] = plain_json(text)
        tuples = ("seasons", "lags", "calendar", "known", "past", "static")
        made = {**values, **{name: tuple(values[name]) for name in tuples}}
        made["differences"] = tuple((int(a), int(b)) for a, b in values["differences"])
        if values["categories"] is not None:
            made["categories"] = {n: tuple(of) for n, of in values["categories"].items()}
        return Layout(**made)
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"the layout of the forecaster is damaged: {error}") from None


def usual_context(season: int) -> int:
    """Two seasons, within limits: the lags reach further back."""
    return min(max(2 * season, _SHORTEST), _LONGEST)


def usual_lags(season: int, seasons: tuple[int, ...]) -> tuple[int, ...]:
    """The last three values, those one and two seasons ago, and one of each other season ago."""
    return tuple(sorted({1, 2, 3, season, 2 * season, *seasons}))


def usual_differences(
    season: int, seasons: tuple[int, ...], yearly: bool
) -> tuple[tuple[int, int], ...]:
    """Pairs of lags whose differences are inputs.

    They are the last seasonal differences; how the same place of another season differs from this
    season's base; and with `yearly` the seasonal differences a year of days ago, by weekday and by
    date.
    """
    pairs = [(lag, lag + season) for lag in (1, 2, 3, season)]
    pairs += [(other, season) for other in seasons if other != season]
    pairs += [(other, other + season) for other in seasons if other > season]
    if yearly:
        days = (_YEAR_OF_WEEKS, _YEAR, _YEAR + 1)
        pairs += [(lag, lag + season) for lag in days]
    return tuple(dict.fromkeys(pairs))


def scale_text(value: float) -> str:
    """A number of a series, with as many digits as tell it from its neighbours."""
    if not math.isfinite(value):
        return "-"
    digits = 0 if abs(value) >= 1000 else max(0, 3 - math.floor(math.log10(abs(value) or 1)) - 1)
    return f"{value:,.{min(digits, 6)}f}"
