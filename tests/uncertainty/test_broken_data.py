"""Broken data: stuck sensors, gaps and wrong units, told from what the past had, too."""

import numpy as np
import pytest

from bayesrnn.uncertainty.broken_data import Broken, broken_mask, broken_runs

RNG = np.random.default_rng(3)
PAST = 100 + 10 * RNG.normal(size=500)


def test_a_run_of_equal_values_is_found():
    values = PAST[:50].copy()
    values[20:26] = values[20]
    assert broken_runs(values, PAST) == (Broken(20, 6, "constant"),)
    assert broken_runs(values, PAST)[0].words == "6 values in a row are equal"
    values[23:26] = PAST[23:26]
    assert broken_runs(values, PAST) == ()


def test_runs_that_the_past_had_are_no_news():
    past = np.where(np.arange(500) % 20 < 8, 0.0, PAST)
    values = PAST[:40].copy()
    values[5:21] = 0
    assert broken_runs(values, past) == ()
    values[5:22] = 0
    assert broken_runs(values, past) == (Broken(5, 17, "constant"),)


def test_a_gap_is_found_and_usual_gaps_are_not():
    values = PAST[:50].copy()
    values[10:15] = np.nan
    assert broken_runs(values, PAST) == (Broken(10, 5, "gap"),)
    assert broken_runs(values, PAST)[0].words == "5 values in a row are missing"
    past = PAST.copy()
    past[100:104] = np.nan
    assert broken_runs(values, past) == ()


@pytest.mark.parametrize(
    ("factor", "words"),
    [(10.0, "about 10 times"), (1000.0, "1,000 times"), (0.1, "1/10 of"), (0.001, "1/1,000 of")],
)
def test_another_unit_is_found(factor, words):
    values = PAST[:50].copy()
    values[30:33] *= factor
    (found,) = broken_runs(values, PAST, np.full(50, 100.0))
    assert found == Broken(30, 3, "factor", factor)
    assert words in found.words
    assert np.flatnonzero(broken_mask((found,), 50)).tolist() == [30, 31, 32]


def test_large_values_are_not_another_unit():
    expected = np.full(50, 100.0)
    assert broken_runs(PAST[:50], PAST, expected) == ()
    values = PAST[:50].copy()
    values[7] = 400.0  # an anomaly, but no factor
    assert broken_runs(values, PAST, expected) == ()
    heavy = np.r_[PAST, 900.0]  # the past had such values
    values[7] = 1000.0
    assert broken_runs(values, heavy, expected) == ()
    assert broken_runs(values, np.zeros(9), expected) == ()
