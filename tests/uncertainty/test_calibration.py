import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.classification import BinaryCalibrationError, MulticlassCalibrationError

from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.uncertainty.calibration import Reliability, mean_over_ties, reliability
from bayesrnn.uncertainty.metrics import calibration_error


def double(values):
    return torch.tensor(values, dtype=torch.double)


def answers(count, seed, levels=None):
    """Random answers; with `levels`, of so many different confidences only."""
    generator = torch.Generator().manual_seed(seed)
    confidence = torch.rand(count, generator=generator, dtype=torch.double)
    if levels:
        confidence = (confidence * levels).floor() / levels
    return confidence, torch.rand(count, generator=generator) < 0.6


# By hand

FIVE = double([0.9, 0.1, 0.7, 0.3, 0.6]), torch.tensor([True, False, False, True, True])


def test_equal_width_by_hand():
    found = reliability(*FIVE, bins=2)
    assert found.count == (2, 3)
    assert found.confidence == pytest.approx((0.2, 2.2 / 3), rel=1e-12)
    assert found.accuracy == pytest.approx((0.5, 2 / 3), rel=1e-12)
    assert found.error == pytest.approx((2 * 0.3 + 3 * 0.2 / 3) / 5, rel=1e-12)


def test_equal_mass_by_hand():
    found = reliability(*FIVE, bins=2, equal_mass=True)  # 0.1 0.3 | 0.6 0.7 0.9
    assert found.count == (2, 3)
    uneven = reliability(FIVE[0] ** 4, FIVE[1], bins=2, equal_mass=True)
    assert uneven.count == (2, 3)  # of width, only one is above a half
    assert uneven.accuracy == found.accuracy == pytest.approx((0.5, 2 / 3), rel=1e-12)
    assert uneven.confidence == pytest.approx(
        ((0.1**4 + 0.3**4) / 2, (0.6**4 + 0.7**4 + 0.9**4) / 3), rel=1e-12
    )


def test_bins_without_answers_are_left_out():
    found = reliability(double([0.05, 0.95]), torch.tensor([False, True]), bins=10)
    assert found == Reliability((0.05, 0.95), (0.0, 1.0), (1, 1))
    assert found.error == pytest.approx(0.05, rel=1e-12)


def test_error_of_given_bins():
    assert Reliability((0.2, 0.9), (0.5, 0.5), (1, 3)).error == pytest.approx(0.375, rel=1e-12)


def test_zero_and_one_are_in_the_outer_bins():
    found = reliability(double([0, 0.5, 1]), torch.tensor([True, True, True]), bins=2)
    assert found.count == (2, 1)
    assert found.confidence == (0.25, 1)


@pytest.mark.parametrize("bins", [3, 10, 15])
def test_an_edge_belongs_to_the_lower_bin(bins):
    for edge in range(1, bins):
        at = edge / bins
        confidence = double([math.nextafter(at, 0), at, math.nextafter(at, 1)])
        assert reliability(confidence, torch.ones(3), bins).count == (2, 1)


# Against others


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 10**6))
def test_equal_width_against_loops(count, bins, seed):
    confidence, correct = answers(count, seed)
    found = reliability(confidence, correct, bins)
    pairs = list(zip(confidence.tolist(), correct.tolist(), strict=True))
    insides = [[p for p in pairs if i / bins < p[0] <= (i + 1) / bins] for i in range(bins)]
    insides = [inside for inside in insides if inside]
    assert found.count == tuple(map(len, insides))
    assert found.confidence == pytest.approx([sum(c for c, _ in i) / len(i) for i in insides])
    assert found.accuracy == pytest.approx([sum(r for _, r in i) / len(i) for i in insides])


@pytest.mark.parametrize("seed", range(5))
def test_error_against_torchmetrics(seed):
    confidence, correct = answers(500, seed)
    theirs = BinaryCalibrationError(n_bins=15, norm="l1")(confidence, correct.long())
    assert reliability(confidence, correct).error == pytest.approx(theirs.item(), rel=1e-5)
    generator = torch.Generator().manual_seed(seed)
    probabilities = torch.randn(500, 4, generator=generator).softmax(-1)
    labels = torch.randint(4, (500,), generator=generator)
    theirs = MulticlassCalibrationError(num_classes=4, n_bins=15, norm="l1")(probabilities, labels)
    assert calibration_error(probabilities, labels) == pytest.approx(theirs.item(), rel=1e-5)


@pytest.mark.parametrize("bins", [1, 4, 15, 60])
def test_equal_mass_against_numpy(bins):
    confidence, correct = answers(60, bins)
    order = np.argsort(confidence.numpy())
    parts = np.array_split(order, bins)
    found = reliability(confidence, correct, bins, equal_mass=True)
    assert found.count == (60 // bins,) * bins
    assert found.confidence == pytest.approx([confidence.numpy()[p].mean() for p in parts])
    assert found.accuracy == pytest.approx([correct.numpy()[p].mean() for p in parts])
    error = sum(
        len(p) / 60 * abs(confidence.numpy()[p].mean() - correct.numpy()[p].mean()) for p in parts
    )
    assert found.error == pytest.approx(error, rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 60), st.integers(1, 80), st.integers(0, 10**6), st.sampled_from([None, 5]))
def test_equal_mass_is_even_and_keeps_all_answers(count, bins, seed, levels):
    confidence, correct = answers(count, seed, levels)
    found = reliability(confidence, correct, bins, equal_mass=True)
    assert len(found.count) == min(bins, count)
    assert sum(found.count) == count
    assert max(found.count) - min(found.count) <= 1
    assert list(found.confidence) == sorted(found.confidence)
    right = sum(n * share for n, share in zip(found.count, found.accuracy, strict=True))
    assert right == pytest.approx(correct.sum().item())
    ordered, start = sorted(confidence.tolist()), 0
    for size, mean in zip(found.count, found.confidence, strict=True):
        assert mean == pytest.approx(sum(ordered[start : start + size]) / size, abs=1e-12)
        start += size


def test_calibrated_answers_have_no_error_but_noise():
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(100_000, generator=generator, dtype=torch.double)
    correct = torch.rand(100_000, generator=generator, dtype=torch.double) < confidence
    for equal_mass in (False, True):
        # A bin of n answers is off by at most 5 sqrt(n / 4); over 15 bins, 2.5 sqrt(15 N).
        found = reliability(confidence, correct, equal_mass=equal_mass)
        assert found.error < 2.5 * math.sqrt(15 / 100_000)
        # Saying sqrt(c) where c is true: off by sqrt(c) - c, on average 2/3 - 1/2.
        sure = reliability(confidence.sqrt(), correct, equal_mass=equal_mass)
        assert sure.error == pytest.approx(1 / 6, abs=0.01)


# Ties


def test_ties_count_as_the_mean_over_all_orders():
    # Of the four that are tied, one is right.
    confidence, correct = double([0.2, 0.6, 0.6, 0.6, 0.6, 0.8]), [1, 1, 0, 0, 0, 0]
    tied = list(itertools.permutations(correct[1:5]))
    expected = np.mean(
        [np.reshape([correct[0], *order, correct[5]], (3, 2)).mean(1) for order in tied], 0
    )
    found = reliability(confidence, torch.tensor(correct), bins=3, equal_mass=True)
    assert found.count == (2, 2, 2)
    assert found.accuracy == pytest.approx(expected, rel=1e-12)
    assert found.accuracy == pytest.approx((0.625, 0.25, 0.125), rel=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 40), st.integers(1, 10), st.integers(0, 10**6), st.booleans())
def test_the_order_of_answers_does_not_matter(count, bins, seed, equal_mass):
    confidence, correct = answers(count, seed, levels=3)
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    found = reliability(confidence, correct, bins, equal_mass)
    other = reliability(confidence[shuffled], correct[shuffled], bins, equal_mass)
    assert found.count == other.count
    assert found.confidence == pytest.approx(other.confidence, rel=1e-12)
    assert found.accuracy == pytest.approx(other.accuracy, rel=1e-12)


@pytest.mark.parametrize("bins", [1, 2, 3, 7])
def test_one_confidence_for_all(bins):
    confidence, correct = torch.full((7,), 0.1, dtype=torch.double), torch.arange(7) < 3
    found = reliability(confidence, correct, bins, equal_mass=True)
    assert found.error == pytest.approx(3 / 7 - 0.1, rel=1e-12)
    assert found.confidence == (0.1,) * bins  # not 0.1 + rounding, which would not be rising


def test_mean_over_ties():
    found = mean_over_ties(double([2, 1, 2, 3, 2]), double([1, 5, 2, 7, 6]))
    assert found.tolist() == [3, 5, 3, 7, 3]


# Numbers of other kinds


def test_correct_may_be_of_any_type():
    confidence, correct = answers(50, 0)
    expected = reliability(confidence, correct)
    for kind in (torch.long, torch.float, torch.double, torch.uint8):
        assert reliability(confidence, correct.to(kind)) == expected


def test_float32_is_read_as_it_is_and_summed_in_double():
    confidence, correct = answers(10_001, 1)
    narrow = confidence.float().requires_grad_()
    found = reliability(narrow, correct, bins=1)
    exact = math.fsum(narrow.tolist()) / 10_001
    assert found.confidence[0] == pytest.approx(exact, rel=1e-14)


def test_rounding_above_one_is_one():
    found = reliability(torch.tensor([1 + 2e-7, 1.0]), torch.tensor([True, True]))
    assert found == Reliability((1.0,), (1.0,), (2,))


def test_calibration_error_of_a_diverged_network_is_nan():
    probabilities = torch.tensor([[0.5, 0.5], [math.nan, math.nan]])
    assert math.isnan(calibration_error(probabilities, torch.tensor([0, 1])))


# What cannot be


@pytest.mark.parametrize("shapes", [((3,), (2,)), ((2, 2), (2, 2)), ((), ())])
def test_shapes_that_do_not_fit(shapes):
    with pytest.raises(ConfigError, match=r"the shape .* and correct .*; each has to be"):
        reliability(torch.full(shapes[0], 0.5), torch.ones(shapes[1]))


@pytest.mark.parametrize("value", [-0.01, 1.01, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("equal_mass", [False, True])
def test_confidence_that_is_no_probability(value, equal_mass):
    with pytest.raises(ConfigError, match=r"confidence (goes from .* between 0 and 1|is NaN or)"):
        reliability(double([0.5, value, 0.7]), torch.ones(3), equal_mass=equal_mass)


def test_nothing_to_sort():
    with pytest.raises(CorpusError, match="no examples"):
        reliability(torch.zeros(0), torch.zeros(0))


def test_no_bins():
    for bins in (0, -1):
        with pytest.raises(ConfigError, match=f"bins is {bins}; it has to be 1 or more"):
            reliability(*FIVE, bins)
