import importlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.uncertainty.bootstrap import Interval
from bayesrnn.uncertainty.detection import (
    auroc_error,
    detection,
    require_window,
    window_means,
)

# The package exports the function of this name, which hides the module.
module = importlib.import_module("bayesrnn.uncertainty.detection")
METRICS = ("auroc", "aupr", "fpr95")


def double(values):
    return torch.tensor(values, dtype=torch.double)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def scores(regular, shifted, seed, distance=1.0, rounded=False):
    """Normal scores, those of the shifted windows higher by `distance`; rounded, many are tied."""
    generator = seeded(seed)
    drawn = [torch.randn(n, generator=generator, dtype=torch.double) for n in (regular, shifted)]
    drawn[1] += distance
    return [(2 * s).round() / 2 for s in drawn] if rounded else drawn


def values(regular, shifted):
    found = detection(regular, shifted, seeded(), bootstrap=0)
    return tuple(getattr(found, name).value for name in METRICS)


def by_sklearn(regular, shifted):
    """The three metrics from scores, or from scores that are repeated."""
    labels = np.repeat([0, 1], [len(regular), len(shifted)])
    both = np.concatenate([regular, shifted])
    false, true, _ = roc_curve(labels, both, drop_intermediate=False)
    enough = true * len(shifted) >= 0.95 * len(shifted) - 1e-9
    return (
        roc_auc_score(labels, both),
        average_precision_score(labels, both),
        false[enough].min(),
    )


# The metrics


def test_by_hand():
    # From the top: s4 r3 s2 r1 s0; a shifted one is above a regular one in 3 of 6 pairs.
    auroc, aupr, fpr95 = values(double([3, 1]), double([4, 2, 0]))
    assert auroc == pytest.approx(3 / 6, rel=1e-12)
    assert aupr == pytest.approx((1 + 2 / 3 + 3 / 5) / 3, rel=1e-12)
    assert fpr95 == 1


def test_ties_by_hand():
    # One of two regular ones is tied with both shifted ones, the other is below.
    auroc, aupr, fpr95 = values(double([1, 0]), double([1, 1]))
    assert auroc == pytest.approx(0.75, rel=1e-12)
    assert aupr == pytest.approx(2 / 3, rel=1e-12)
    assert fpr95 == 0.5


@pytest.mark.parametrize(
    ("shifted", "missed", "found"), [(20, 1, 0), (20, 2, 1), (19, 1, 1), (40, 2, 0), (40, 3, 1)]
)
def test_exactly_95_percent_is_enough(shifted, missed, found):
    # So many shifted ones are below all regular ones.
    positives = torch.where(torch.arange(shifted) < missed, -1.0, 1.0)
    assert values(torch.zeros(3), positives)[2] == found


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 10**6), st.booleans())
def test_against_sklearn(regular, shifted, seed, rounded):
    pair = scores(regular, shifted, seed, rounded=rounded)
    assert values(*pair) == pytest.approx(by_sklearn(*(s.numpy() for s in pair)), rel=1e-9)


def test_many_windows_against_sklearn():
    pair = scores(3000, 5000, 0)
    assert values(*pair) == pytest.approx(by_sklearn(*(s.numpy() for s in pair)), rel=1e-9)


def test_texts_that_are_wholly_apart():
    found = detection(torch.arange(30), torch.arange(100, 140), seeded(), bootstrap=50)
    assert (found.auroc, found.aupr) == (Interval(1, 1, 1), Interval(1, 1, 1))
    assert found.fpr95 == Interval(0, 0, 0)
    assert found.windows == 70
    backwards = detection(torch.arange(100, 140), torch.arange(30), seeded(), bootstrap=50)
    assert (backwards.auroc, backwards.fpr95) == (Interval(0, 0, 0), Interval(1, 1, 1))


def test_scores_that_say_nothing():
    assert values(torch.ones(30), torch.ones(10)) == (0.5, 0.25, 1)


def test_infinite_scores_are_scores():
    assert values(double([-math.inf, 0]), double([0, math.inf])) == pytest.approx(
        values(double([-5, 0]), double([0, 5])), rel=1e-12
    )


# The intervals


@pytest.mark.parametrize("cells", [1, 500, 2**20])
@pytest.mark.parametrize("rounded", [False, True])
def test_intervals_against_slow_resampling(monkeypatch, cells, rounded):
    # The counts that were drawn, written out as scores and given to scikit-learn.
    regular, shifted = scores(25, 40, 5, rounded=rounded)
    seen, metrics = [], module._metrics

    def noting(*counts):
        seen.append(counts)
        return metrics(*counts)

    monkeypatch.setattr(module, "SLICE", cells)
    monkeypatch.setattr(module, "_metrics", noting)
    found = detection(regular, shifted, seeded(1), bootstrap=60, level=0.8)
    thresholds = np.unique(np.concatenate([regular, shifted]))[::-1]
    given_counts, *slices = seen
    sorted_scores = [np.repeat(thresholds, counts[0]) for counts in given_counts]
    for ours, theirs in zip(sorted_scores, (regular, shifted), strict=True):
        assert ours.tolist() == sorted(theirs.tolist(), reverse=True)
    assert len(slices) == math.ceil(60 / max(1, cells // len(thresholds)))
    slow = []
    for counts in slices:
        for row in zip(*counts, strict=True):
            drawn = [np.repeat(thresholds, count) for count in row]
            assert [len(part) for part in drawn] == [25, 40]
            for part, source in zip(drawn, (regular, shifted), strict=True):
                assert set(part) <= set(source.tolist())  # each from their own
            slow.append(by_sklearn(*drawn))
    assert len(slow) == 60
    low, high = np.percentile(slow, [10, 90], axis=0)
    for name, expected in zip(METRICS, zip(low, high, strict=True), strict=True):
        assert getattr(found, name)[1:] == pytest.approx(expected, rel=1e-9)


def test_the_width_of_the_interval_is_that_of_delong():
    regular, shifted = scores(300, 200, 2)
    above = (shifted[None] > regular[:, None]).double()
    error = math.sqrt(above.mean(1).var().item() / 300 + above.mean(0).var().item() / 200)
    found = detection(regular, shifted, seeded(), bootstrap=4000, level=0.9)
    width = found.auroc.high - found.auroc.low
    assert width == pytest.approx(2 * 1.645 * error, rel=0.08)


def test_intervals_hold_the_truth_as_often_as_they_say():
    truth = 0.5 * (1 + math.erf(1 / 2))  # Phi(1 / sqrt 2), two normals a standard deviation apart
    repeats, held = 300, 0
    for seed in range(repeats):
        found = detection(*scores(60, 80, seed), seeded(seed), bootstrap=200, level=0.9)
        held += found.auroc.low <= truth <= found.auroc.high
    assert 0.83 < held / repeats < 0.95  # 4 standard errors; percentiles are a little too narrow


def test_a_higher_level_is_wider():
    pair = scores(50, 50, 3)
    narrow, wide = (detection(*pair, seeded(), level=level) for level in (0.5, 0.99))
    for name in METRICS:
        low, high = getattr(narrow, name)[1:]
        assert getattr(wide, name).low < low <= high < getattr(wide, name).high


def test_no_interval_without_resamples():
    generator = seeded()
    before = generator.get_state()
    found = detection(*scores(20, 30, 4), generator, bootstrap=0)
    for name in METRICS:
        value, low, high = getattr(found, name)
        assert low == high == value
    assert torch.equal(generator.get_state(), before)


def test_the_generator_decides_and_the_global_one_is_left_alone():
    pair = scores(40, 40, 6)
    before = torch.get_rng_state()
    first, again, other = (detection(*pair, seeded(seed), bootstrap=50) for seed in (0, 0, 1))
    assert first == again
    assert first.auroc.value == other.auroc.value
    assert first.auroc.low != other.auroc.low
    assert torch.equal(torch.get_rng_state(), before)


# Windows


def test_windows_side_by_side():
    found = window_means(torch.tensor([1, 2, 3, 4, 5, 9, 100]), 2)
    assert found.tolist() == [1.5, 3.5, 7]
    assert found.dtype == torch.double
    assert window_means(torch.arange(6.0), 6).tolist() == [2.5]
    assert window_means(torch.arange(3.0), 1).tolist() == [0, 1, 2]


def test_windows_are_averaged_in_double():
    text = torch.full((100_000,), 0.1).requires_grad_()
    found = window_means(text, 50_000)
    assert found.tolist() == pytest.approx([text[0].item()] * 2, rel=1e-12)
    assert not found.requires_grad


def test_windows_of_a_text_that_is_not_contiguous():
    table = torch.arange(12.0).view(6, 2)
    assert window_means(table[:, 1], 3).tolist() == [3, 9]


# What cannot be


def test_windows_that_do_not_fit():
    require_window(50, 50)
    with pytest.raises(ConfigError, match="is 50, but the text has only 30 words to foresee"):
        require_window(30, 50)


def test_scores_that_cannot_be():
    fine = torch.arange(4.0)
    for name in ("regular", "shifted"):
        pair = {"regular": fine, "shifted": fine}
        with pytest.raises(CorpusError, match=f"{name} has no examples; give at least one"):
            detection(**pair | {name: fine[:0]}, generator=seeded())
        with pytest.raises(ConfigError, match=f"{name} is NaN for 1 of 2 examples"):
            detection(**pair | {name: double([0, math.nan])}, generator=seeded())
        with pytest.raises(ConfigError, match=rf"{name} has the shape \[2, 2\]; each has to be"):
            detection(**pair | {name: fine.view(2, 2)}, generator=seeded())


@pytest.mark.parametrize(("auroc", "regular", "shifted"), [(0.6, 40, 60), (0.8, 100, 20)])
def test_the_error_of_an_auroc_is_that_of_exponential_scores(auroc, regular, shifted):
    """Of scores with rates r and 1, a shifted one is higher with the chance r / (1 + r)."""
    times, generator = 3000, seeded()
    rate = auroc / (1 - auroc)
    ours = torch.empty(times, regular).exponential_(rate, generator=generator).sort(1).values
    theirs = torch.empty(times, shifted).exponential_(generator=generator)
    found = torch.searchsorted(ours, theirs).double().mean(1) / regular
    assert found.mean().item() == pytest.approx(auroc, abs=0.005)
    assert auroc_error(auroc, regular, shifted) == pytest.approx(found.std().item(), rel=0.05)


def test_the_error_of_an_auroc_without_errors_is_zero():
    assert auroc_error(1.0, 10, 20) == 0
    assert auroc_error(0.0, 10, 20) == 0
