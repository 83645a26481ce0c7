"""Files read, cut into the windows of the benchmarks and forecast by seasonal naive.

The figures of m4_hourly, tourism_monthly, hospital and car_parts agree with published ones to all
digits that these print (the result files of Chronos and GIFT-Eval); those of the other sets were
computed by another program with the same definitions.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from bayesrnn.data.reading import read_series
from bayesrnn.tasks.forecast.scores import Truths, naive_scales, score, seasonal_naive

FOLDER = Path(os.environ.get("BAYESRNN_DATA", "")) / "forecast"

# name: options, season, horizon, windows, and MASE, sMAPE, WQL, ND, MSIS, coverage of 80 and 95%
SETS = {
    "us_births": ({}, 7, 30, 20, 1.4856, 3.86, 0.0333, 0.0380, 16.07, 0.90, 0.95),
    "i94_traffic": ({}, 168, 24, 20, 0.6231, 8.56, 0.0650, 0.0600, 8.10, 0.96, 0.99),
    "beijing_pm25": (
        {"target_col": "pm2.5"},
        *(24, 24, 20, 1.0728, 91.6, 0.7120, 0.8547, 7.70, 0.81, 0.92),
    ),
    "taylor": ({}, 336, 48, 14, 0.8823, 1.74, 0.0134, 0.0172, 5.46, 0.88, 0.98),
    "us_employment": ({}, 12, 12, 4, 0.8770, 2.48, 0.0129, 0.0180, 6.39, 0.85, 0.97),
    "m4_hourly": ({}, 24, 48, 1, 1.1932, 13.91, 0.0376, 0.0483, 9.05, 0.84, 0.96),
    "tourism_monthly": ({}, 12, 24, 1, 1.6309, 21.67, 0.0859, 0.1042, 14.50, 0.76, 0.89),
    "hospital": ({}, 12, 12, 1, 0.9205, 21.03, 0.0625, 0.0726, 6.54, 0.84, 0.95),
    "car_parts": ({}, 12, 12, 1, 1.2015, 66.1, 1.7217, 1.6000, 21.09, 0.84, 0.91),
    "nyc_taxi": ({}, 336, 48, 20, 1.2602, 18.43, 0.1165, 0.1304, 17.22, 0.88, 0.93),
    "pedestrians_covid": ({}, 7, 28, 4, 1.8512, 39.6, 0.2461, 0.2966, 12.22, 0.73, 0.88),
    "bike_sharing": (
        {"target_col": "users"},
        *(168, 24, 20, 1.3315, 53.1, 0.4638, 0.5067, 17.10, 0.81, 0.88),
    ),
}


@pytest.mark.skipif(not FOLDER.is_dir(), reason="BAYESRNN_DATA has no folder forecast")
@pytest.mark.parametrize("name", SETS)
def test_seasonal_naive_has_its_known_figures(name):
    options, season, horizon, windows, *expected = SETS[name]
    series = read_series(FOLDER / f"{name}.csv.gz", **options)
    pasts, truths = [], []
    for one in series.series:
        for back in range(windows, 0, -1):
            start = len(one.target) - back * horizon
            pasts.append(one.target[:start])
            truths.append(one.target[start : start + horizon])
    values, scales = np.array(truths), naive_scales(pasts, season)
    whole = score(seasonal_naive(pasts, horizon, season), Truths(values, scales))
    assert [round(figure, 4) for figure in (whole.mase, whole.wql, whole.nd)] == [
        *(expected[0], expected[2], expected[3])
    ]
    # The others are means over windows here, and over values there: where values are missing, that
    # is not the same.
    windows_apart = [whole]
    if np.isnan(values).any() and len(series.series) == 1:
        windows_apart = [
            score(seasonal_naive([past], horizon, season), Truths(values[[at]], scales[[at]]))
            for at, past in enumerate(pasts)
        ]
    found = np.mean([[w.smape, w.msis, *w.coverage.values()] for w in windows_apart], axis=0)
    digits = [1 if expected[1] > 30 else 2, 2, 2, 2]
    assert [round(figure, to) for figure, to in zip(found, digits, strict=True)] == [
        *(expected[1], *expected[4:])
    ]
