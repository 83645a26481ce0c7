"""What the log of a run says."""

import pytest

from bayesrnn.runs.doctor.course import read_course
from bayesrnn.runs.task import PERPLEXITY


def records(valid, norms=()):
    lowest = [value == min(valid[: place + 1]) for place, value in enumerate(valid)]
    epochs = [
        {"kind": "epoch", "epoch": place + 1, "valid_perplexity": value, "best": best}
        for place, (value, best) in enumerate(zip(valid, lowest, strict=True))
    ]
    return [*({"kind": "train", "gradient_norm": norm} for norm in norms), *epochs]


def course(valid, norms=(), clip=5.0, rounds=(4,)):
    return read_course(records(valid, norms), PERPLEXITY, rounds, clip)


def test_the_best_epoch_and_what_came_after_it():
    found = course([100.0, 80.0, 88.0])
    assert (found.epochs, found.planned, found.best) == (3, 4, 2)
    assert found.last_gain == pytest.approx(-0.1)
    assert found.rise == pytest.approx(0.1)


def test_clipped_steps_are_those_longer_than_the_limit():
    found = course([100.0], norms=[4.0, 5.0, 6.0, 9.0, None])
    assert found.clipped == 0.5
    assert found.norms == 6.0
    assert course([100.0], norms=[4.0], clip=None).clipped is None


def test_a_run_that_has_just_begun_has_no_course():
    found = course([])
    assert (found.epochs, found.best, found.clipped, found.norms) == (0, None, None, None)
    assert found.last_gain is found.rise is None


def test_of_several_rounds_the_last_one_counts():
    valid = [100.0, 80.0, 70.0, 60.0, 90.0, 40.0]
    found = course(valid, rounds=(4, 4))
    assert (found.epochs, found.valid, found.best) == (2, (90.0, 40.0), 2)
    found = course(valid, rounds=(3, 2, 2))
    assert (found.epochs, found.planned, found.valid, found.best) == (1, 2, (40.0,), 1)
