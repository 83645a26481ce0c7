"""How unlike its own past the end of a series is: the situation that a forecast starts from."""

from typing import Final

import numpy as np

from bayesrnn.data.series import Floats
from bayesrnn.uncertainty.novelty import Novelty, window_features

#: From which rank among the windows of the past on a situation is unfamiliar.
UNFAMILIAR_RANK: Final = 0.95


def past_novelty(target: Floats, horizon: int, season: int) -> Novelty | None:
    """What windows as long as the horizon looked like so far; None of fewer than two.

    They end where the series does, or horizons before: with whole seasons in a horizon, all begin
    at the same place of a season.
    """
    stops = range(len(target), season + horizon - 1, -horizon)
    if len(stops) < 2:
        return None
    return Novelty(np.array([window_features(target[:stop], horizon, season) for stop in stops]))


def last_novelty(target: Floats, horizon: int, season: int) -> tuple[float, str]:
    """The novelty of the last values of a series among its windows before, and by what.

    NaN and nothing where there are too few.
    """
    before = past_novelty(target[:-horizon], horizon, season)
    if before is None:
        return float("nan"), ""
    features = window_features(target, horizon, season)[None]
    return float(before.novelty(features)[0]), before.words(features, "windows")[0]
