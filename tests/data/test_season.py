"""Seasons: those usual for a frequency, and errors of seasonal naive by hand."""

import numpy as np
import pytest

from bayesrnn.data.season import best_season, seasonal_errors, usual_seasons
from bayesrnn.data.series import Frequency, Series


def series(*targets):
    start = np.datetime64("2024-01-01", "s")
    return [Series(str(n), start, np.array(values, float)) for n, values in enumerate(targets)]


@pytest.mark.parametrize(
    ("frequency", "seasons"),
    [
        (Frequency("second", 10), (6, 360, 8640)),
        (Frequency("minute"), (60, 1440, 10080)),
        (Frequency("minute", 5), (12, 288, 2016)),
        (Frequency("minute", 15), (96, 672)),
        (Frequency("minute", 30), (48, 336)),
        (Frequency("hour"), (24, 168)),
        (Frequency("hour", 5), ()),
        (Frequency("day"), (7,)),
        (Frequency("day", closed=(6,)), (6,)),
        (Frequency("business-day"), (5,)),
        (Frequency("week"), (52,)),
        (Frequency("week", 2), (26,)),
        (Frequency("month"), (12,)),
        (Frequency("month", 2), (6,)),
        (Frequency("quarter"), (4,)),
        (Frequency("year"), ()),
    ],
)
def test_usual_seasons(frequency, seasons):
    assert usual_seasons(frequency) == seasons


def test_errors_by_hand():
    # |y_t - y_(t-1)| and |y_t - y_(t-2)| for t >= 2 of 1 4 2 4 3 5: 2 2 1 2 and 1 0 1 1.
    found = seasonal_errors(series([1, 4, 2, 4, 3, 5]), (1, 2), share=1.0)
    assert found.tolist() == pytest.approx([7 / 14, 3 / 14])
    both = seasonal_errors(series([1, 4, 2, 4, 3, 5], [2, 2, 2, 2, 2, 2]), (1, 2), share=1.0)
    assert both.tolist() == pytest.approx([7 / 28, 3 / 28])
    gaps = seasonal_errors(series([1, 4, 2, np.nan, 3, 5]), (1, 2), share=1.0)
    assert gaps.tolist() == pytest.approx([(2 + 2) / 2 * 3 / 10, 1 * 3 / 10])


def test_only_the_beginning_counts_and_long_seasons_need_long_series():
    values = [*([1, 2] * 20), *range(10)]
    assert seasonal_errors(series(values), (2,)).tolist() == [0]
    assert seasonal_errors(series(values), (2, 30)).tolist() == [0, np.inf]
    assert seasonal_errors(series([1.0]), (2,)).tolist() == [np.inf]


def test_the_season_that_repeats_best():
    hours = np.arange(24 * 7 * 6)
    daily, weekly = np.sin(hours * 2 * np.pi / 24), 1.0 * (hours // 24 % 7 == 6)
    noise = np.random.default_rng(0).normal(size=len(hours))
    assert best_season(series(daily + 0.1 * noise), Frequency("hour"))[0] == 24
    assert best_season(series(daily * (1 - weekly)), Frequency("hour"))[0] == 168
    assert best_season(series(range(30)), Frequency("year"))[0] == 1
    assert best_season(series(daily + 0.1 * noise), None)[0] in (24, 48, 168)
    assert best_season(series(noise.cumsum()), None)[0] == 1
