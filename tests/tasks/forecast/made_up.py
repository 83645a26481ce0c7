"""Series for the tests of forecasts."""

import numpy as np

from bayesrnn.data.series import Frequency, Series, SeriesSet

MONDAY = np.datetime64("2001-01-01", "s")


def daily(*targets, season=7, **covariates):
    """Daily series from a Monday on."""
    made = [
        Series(f"s{number}", MONDAY, np.asarray(target, dtype=float), **covariates)
        for number, target in enumerate(targets)
    ]
    return SeriesSet(tuple(made), Frequency("day"), season, (season,))


def noisy_week(length=200, seed=0, level=100.0):
    """A weekly pattern with noise."""
    noise = np.random.default_rng(seed).normal(size=length)
    pattern = np.array([10.0, 12.0, 11.0, 9.0, 10.0, 3.0, 1.0])
    return level + 5 * pattern[np.arange(length) % 7] + 2 * noise
