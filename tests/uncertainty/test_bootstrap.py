"""The bootstrap against resamples that are written out, and against the binomial distribution."""

import math

import numpy as np
import pytest
import torch

from bayesrnn.uncertainty.bootstrap import Interval, counts, intervals, resampled


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_examples_are_drawn_with_replacement_and_evenly():
    # Of n examples, each is drawn Binomial(n, 1/n) times; two of them go against each other.
    size, n = 20_000, 8
    found = resampled(lambda places: counts(places, n).double(), [n], seeded(), size, 3_000)
    assert found.shape == (size, n)
    assert (found.sum(1) == n).all()
    assert found.mean(0).tolist() == pytest.approx([1] * n, abs=5 / math.sqrt(size))
    expected = torch.eye(n, dtype=torch.double) - 1 / n
    torch.testing.assert_close(found.T.cov(), expected, atol=0.06, rtol=0)


def test_each_set_is_drawn_from_itself_and_slices_are_as_large_as_asked():
    seen = []

    def metrics(first, second):
        seen.append(len(first))
        assert first.shape == (len(second), 5)
        assert second.shape == (len(second), 9)
        assert first.max() < 5
        assert second.max() < 9
        return torch.stack([first.double().mean(1), second.double().mean(1)], 1)

    assert resampled(metrics, [5, 9], seeded(), 10, 4).shape == (10, 2)
    assert seen == [4, 4, 2]


def test_counts_by_hand():
    places = torch.tensor([[0, 2, 2], [1, 1, 1]])
    assert counts(places, 4).tolist() == [[1, 0, 2, 0], [0, 3, 0, 0]]


def test_intervals_are_percentiles():
    drawn = torch.randn(500, 2, generator=seeded(), dtype=torch.double)
    found = intervals(torch.tensor([7.0, 8.0], dtype=torch.double), drawn, 0.9)
    low, high = np.percentile(drawn.numpy(), [5, 95], axis=0)
    assert [one.value for one in found] == [7, 8]
    assert [one.low for one in found] == pytest.approx(low, rel=1e-12)
    assert [one.high for one in found] == pytest.approx(high, rel=1e-12)


def test_without_resamples_the_interval_is_the_value():
    generator = seeded()
    before = generator.get_state()
    drawn = resampled(lambda places: places.double(), [3], generator, 0, 10)
    assert intervals(torch.tensor([0.5]), drawn, 0.95) == [Interval(0.5, 0.5, 0.5)]
    assert torch.equal(generator.get_state(), before)
