import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.tasks.captions.selective import average_ranks, rank_correlation, selective_captions
from bayesrnn.uncertainty.detection import Interval

LISTS = st.lists(st.integers(-5, 5), min_size=1, max_size=40)


def double(values):
    return torch.tensor(values, dtype=torch.double)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def scored(count, seed=0):
    """Confidences, some of them equal, and scores that follow them a little."""
    confidence = torch.randn(count, generator=generator(seed), dtype=torch.double).mul(4).round()
    noise = torch.rand(count, generator=generator(seed + 1), dtype=torch.double)
    return confidence / 4, noise + 0.1 * confidence


# Ranks


def test_ranks_by_hand():
    assert average_ranks(double([7, 2, 9, 2])).tolist() == [3, 1.5, 4, 1.5]
    assert average_ranks(double([1, 1, 1])).tolist() == [2, 2, 2]


@settings(deadline=None)
@given(LISTS)
def test_ranks_one_by_one(values):
    """A rank is 1 + how many are smaller + half of how many others are equal."""
    expected = [
        1 + sum(v < value for v in values) + (sum(v == value for v in values) - 1) / 2
        for value in values
    ]
    assert average_ranks(double(values)).tolist() == expected


@settings(deadline=None)
@given(LISTS, st.integers(0, 10**6))
def test_correlation_of_ranks(values, seed):
    first = double(values)
    second = torch.randint(-3, 3, first.shape, generator=generator(seed)).double()
    ranks = [average_ranks(one).numpy() for one in (first, second)]
    found = rank_correlation(first, second)
    if min(np.std(own) for own in ranks) == 0:
        assert found == 0
    else:
        assert found == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-12)


def test_correlation_without_ties_by_spearmans_formula():
    first = torch.randperm(50, generator=generator(1))
    second = torch.randperm(50, generator=generator(2))
    squares = sum((a - b) ** 2 for a, b in zip(first.tolist(), second.tolist(), strict=True))
    assert rank_correlation(first, second) == pytest.approx(1 - 6 * squares / (50 * (50**2 - 1)))


def test_correlation_as_scipy_has_it():
    stats = pytest.importorskip("scipy.stats")
    first, second = scored(300)
    expected = stats.spearmanr(first.numpy(), second.numpy()).statistic
    assert rank_correlation(first, second) == pytest.approx(expected, abs=1e-12)


def test_correlation_knows_the_order_only():
    first, second = scored(100)
    assert rank_correlation(first, first.exp()) == 1
    assert rank_correlation(first, -first) == -1
    assert rank_correlation(first.exp(), second**3) == rank_correlation(first, second)


# Withholding


def test_withholding_by_hand():
    # Kept in this order: 0.9, 0.5, 0.2, 0.1.
    confidence, scores = double([0.5, 0.1, 0.9, 0.2]), double([40, 0, 80, 120])
    found = selective_captions(confidence, scores, generator(), bootstrap=0)
    assert found.coverage == (0.25, 0.5, 0.75, 1)
    assert found.score == pytest.approx((80, 60, 80, 60))
    area, oracle = (80 + 60 + 80 + 60) / 4, (120 + 100 + 80 + 60) / 4
    assert found.area == Interval(area, area, area)
    assert (found.random, found.oracle) == pytest.approx((60, oracle))
    assert found.gain.value == pytest.approx((area - 60) / (oracle - 60))
    # Ranks 3 1 4 2 of confidence and 2 1 3 4 of the score; squares of differences 1 0 1 4.
    assert found.correlation.value == pytest.approx(1 - 6 * 6 / (4 * 15))


def test_ten_shares_of_many():
    confidence, scores = torch.randn(230, generator=generator()), torch.arange(230)
    found = selective_captions(confidence, scores, generator(), bootstrap=0)
    assert found.coverage == pytest.approx([n / 10 for n in range(1, 11)])
    order = confidence.argsort(descending=True)
    for share, score in zip(range(1, 11), found.score, strict=True):
        assert score == pytest.approx(scores[order[: 23 * share]].double().mean().item())
    every = [scores[order[:size]].double().mean().item() for size in range(1, 231)]
    assert found.area.value == pytest.approx(np.mean(every))


def test_the_best_the_worst_and_a_random_order():
    _, scores = scored(200)
    best = selective_captions(scores, scores, generator(), bootstrap=0)
    assert best.area.value == pytest.approx(best.oracle)
    assert best.gain.value == pytest.approx(1)
    worst = selective_captions(-scores, scores, generator(), bootstrap=0)
    assert worst.gain.value < 0
    assert worst.correlation.value == -1
    gains = [
        selective_captions(torch.randn(200, generator=generator(seed)), scores, generator(), 0).gain
        for seed in range(200)
    ]
    values = [gain.value for gain in gains]
    assert np.mean(values) == pytest.approx(0, abs=4 * np.std(values) / math.sqrt(200))


def test_nothing_to_tell_apart():
    same = selective_captions(torch.zeros(6), torch.arange(6), generator(), bootstrap=20)
    assert same.area.value == same.random == 2.5
    assert same.gain.value == same.correlation.value == 0
    good = selective_captions(torch.arange(6), torch.full((6,), 0.3), generator(), bootstrap=20)
    assert good.gain == good.correlation == Interval(0, 0, 0)
    one = selective_captions(torch.zeros(1), torch.ones(1), generator(), bootstrap=5)
    assert (one.coverage, one.score, one.area) == ((1,), (1,), Interval(1, 1, 1))


# Intervals


def test_intervals_are_percentiles_over_resampled_images():
    confidence, scores = scored(60)
    found = selective_captions(confidence, scores, generator(5), bootstrap=80, level=0.9)
    chosen = torch.randint(60, (80, 60), generator=generator(5))
    again = [selective_captions(confidence[c], scores[c], generator(), 0) for c in chosen]
    for name in ("area", "gain", "correlation"):
        values = [getattr(one, name).value for one in again]
        low, high = np.quantile(values, [0.05, 0.95])
        interval = getattr(found, name)
        assert (interval.low, interval.high) == pytest.approx((low, high))
        assert low < interval.value < high


def test_the_interval_of_a_correlation_is_as_wide_as_theory_says():
    """Without correlation, its standard error is 1 / sqrt(n - 1)."""
    scores = torch.randn(400, generator=generator(3))
    found = selective_captions(torch.randn(400, generator=generator(4)), scores, generator(), 400)
    width = found.correlation.high - found.correlation.low
    assert width == pytest.approx(2 * 1.96 / math.sqrt(399), rel=0.15)
    assert found.correlation.low < 0 < found.correlation.high


def test_the_same_seed_gives_the_same():
    pair = scored(50)
    first, again, other = (selective_captions(*pair, generator(s), 50) for s in (1, 1, 2))
    assert first == again != other
    assert first.score == other.score


# What cannot be


def test_what_cannot_be():
    fine = torch.arange(3.0)
    with pytest.raises(ConfigError, match="NaN or infinite for 1 of 3"):
        selective_captions(double([0, math.nan, 1]), fine, generator())
    with pytest.raises(ConfigError, match=r"each has to be \[examples\]"):
        selective_captions(fine, fine[:2], generator())
    with pytest.raises(CorpusError, match="no examples"):
        selective_captions(fine[:0], fine[:0], generator())
