import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.uncertainty.selective import risk_coverage


def double(values):
    return torch.tensor(values, dtype=torch.double)


def answers(count, seed):
    generator = torch.Generator().manual_seed(seed)
    uncertainty = torch.randn(count, generator=generator, dtype=torch.double)
    return uncertainty, torch.randn(count, generator=generator, dtype=torch.double)


def test_by_hand():
    # Kept in this order: 0.1, 0.2, 0.5, 0.9.
    found = risk_coverage(double([0.5, 0.1, 0.9, 0.2]), double([1, 0, 1, 1]))
    assert found.coverage == (0.25, 0.5, 0.75, 1)
    assert found.risk == pytest.approx((0, 1 / 2, 2 / 3, 3 / 4), rel=1e-12)
    assert found.area == pytest.approx((0 + 1 / 2 + 2 / 3 + 3 / 4) / 4, rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 60), st.integers(0, 10**6))
def test_against_every_prefix(count, seed):
    uncertainty, loss = answers(count, seed)
    found = risk_coverage(uncertainty, loss)
    kept = [value for _, value in sorted(zip(uncertainty.tolist(), loss.tolist(), strict=True))]
    risk = [sum(kept[:size]) / size for size in range(1, count + 1)]
    assert found.coverage == tuple(size / count for size in range(1, count + 1))
    assert found.risk == pytest.approx(risk, abs=1e-12)
    assert found.area == pytest.approx(sum(risk) / count, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 300), st.integers(1, 120), st.integers(0, 10**6))
def test_a_thinned_curve(count, points, seed):
    uncertainty, loss = answers(count, seed)
    whole = risk_coverage(uncertainty, loss, points=count)
    found = risk_coverage(uncertainty, loss, points)
    assert len(found.coverage) == len(found.risk) == min(points, count)
    assert found.coverage[-1] == 1
    assert found.risk[-1] == pytest.approx(loss.mean().item(), abs=1e-12)
    assert found.area == whole.area  # of the whole curve, however many points are shown
    known = dict(zip(whole.coverage, whole.risk, strict=True))
    assert all(known[c] == r for c, r in zip(found.coverage, found.risk, strict=True))
    # Evenly spaced: as close to i / points as a whole number of answers can be.
    for place, coverage in enumerate(found.coverage, 1):
        assert 0 <= coverage - place / len(found.coverage) < 1 / count + 1e-12


def test_ties_count_as_the_mean_over_all_orders():
    groups = [[3.0], [1.0, 0.0, 5.0], [2.0, 4.0]]
    orders = itertools.product(*(itertools.permutations(group) for group in groups))
    risks = np.array([np.cumsum(sum(order, ())) / np.arange(1, 7) for order in orders])
    assert len(risks) == 12
    uncertainty, loss = double([2, 1, 0, 1, 2, 1]), double([2, 1, 3, 0, 4, 5])
    found = risk_coverage(uncertainty, loss)
    assert found.risk == pytest.approx(risks.mean(0), rel=1e-12)
    assert found.area == pytest.approx(risks.mean(), rel=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 40), st.integers(0, 10**6))
def test_the_order_of_answers_does_not_matter(count, seed):
    uncertainty, loss = answers(count, seed)
    uncertainty = uncertainty.round()
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    found, other = (
        risk_coverage(uncertainty, loss),
        risk_coverage(uncertainty[shuffled], loss[shuffled]),
    )
    assert found.risk == pytest.approx(other.risk, abs=1e-12)
    assert found.area == pytest.approx(other.area, abs=1e-12)


def test_the_same_uncertainty_for_all_gives_the_mean_loss():
    _, loss = answers(50, 0)
    found = risk_coverage(torch.ones(50), loss)
    assert found.risk == pytest.approx([loss.mean().item()] * 50, abs=1e-12)
    assert found.area == pytest.approx(loss.mean().item(), abs=1e-12)


def test_a_random_score_gives_the_mean_loss_on_average():
    loss = (torch.arange(200) < 60).double()
    areas = [risk_coverage(answers(200, seed)[0], loss).area for seed in range(400)]
    assert np.mean(areas) == pytest.approx(0.3, abs=4 * np.std(areas) / 20)
    assert np.std(areas) < 0.1


def test_the_best_and_the_worst_order():
    wrong = (torch.arange(10) >= 7).double()  # 3 of 10
    best = risk_coverage(torch.arange(10), wrong)
    assert best.risk == pytest.approx((0,) * 7 + (1 / 8, 2 / 9, 3 / 10), rel=1e-12)
    assert best.area == pytest.approx((1 / 8 + 2 / 9 + 3 / 10) / 10, rel=1e-12)
    worst = risk_coverage(-torch.arange(10), wrong)
    harmonic = sum(3 / size for size in range(3, 11))
    assert worst.area == pytest.approx((2 + harmonic) / 10, rel=1e-12)


def test_only_the_order_of_the_uncertainty_counts():
    uncertainty, loss = answers(80, 3)
    expected = risk_coverage(uncertainty, loss)
    assert risk_coverage(uncertainty.exp(), loss) == expected
    assert risk_coverage(1000 * uncertainty - 7, loss) == expected


def test_losses_of_other_types():
    uncertainty, _ = answers(30, 1)
    wrong = torch.arange(30) % 3 == 0
    expected = risk_coverage(uncertainty, wrong.double())
    for kind in (torch.bool, torch.long, torch.float):
        assert risk_coverage(uncertainty, wrong.to(kind)) == expected
    narrow = torch.full((9_999,), 0.1).requires_grad_()
    found = risk_coverage(torch.arange(9_999), narrow)
    assert found.area == pytest.approx(narrow[0].item(), rel=1e-12)  # float32 would lose digits


# What cannot be


@pytest.mark.parametrize("shapes", [((3,), (2,)), ((2, 2), (2, 2)), ((), ())])
def test_shapes_that_do_not_fit(shapes):
    with pytest.raises(
        ConfigError, match=r"uncertainty has the shape .* and loss .*; each has to be"
    ):
        risk_coverage(torch.zeros(shapes[0]), torch.zeros(shapes[1]))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite(value):
    fine, bad = torch.zeros(3), torch.tensor([0, value, 1])
    with pytest.raises(
        ConfigError, match="uncertainty is NaN or infinite for 1 of 3 examples; give"
    ):
        risk_coverage(bad, fine)
    with pytest.raises(ConfigError, match="loss is NaN or infinite for 1 of 3 examples; give"):
        risk_coverage(fine, bad)


def test_nothing_to_choose_from():
    with pytest.raises(CorpusError, match="no examples"):
        risk_coverage(torch.zeros(0), torch.zeros(0))
