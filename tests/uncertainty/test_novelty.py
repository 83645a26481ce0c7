"""Novelty of windows: features by hand, ranks that are uniform for windows like the past's."""

import numpy as np
import pytest

from bayesrnn.errors import ConfigError
from bayesrnn.uncertainty.novelty import FEATURES, Novelty, window_features


def test_features_of_a_window_by_hand():
    values = np.array([[1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 5.0]])
    # The window is 4, 6, 8, 5, and a season of 3 before it 1, 2, 3, 4.
    expected = [23 / 4, (2 + 2 + 3) / 3, 13 / 2 - 10 / 2, 23 / 4 - 10 / 4]
    assert window_features(values, 4, 3)[0].tolist() == pytest.approx(expected)
    assert len(FEATURES) == len(expected)


def test_missing_values_are_left_out_and_what_cannot_be_is_nan():
    values = np.array([[np.nan, 2.0, 3.0, 4.0, np.nan, 8.0, 5.0]])
    level, scale, trend, seasonal = window_features(values, 4, 3)[0]
    assert (level, scale, trend) == pytest.approx((17 / 3, 3.0, 13 / 2 - 4))
    assert seasonal == pytest.approx(((8 - 3) + (5 - 4)) / 2)
    assert np.isnan(window_features(np.ones((1, 4)), 4, 7)[0, 3])
    assert window_features(np.ones((1, 4)), 2, 3)[0, 3] == 0  # one value of two has a season before
    with pytest.raises(ConfigError, match="a window of 5"):
        window_features(np.ones((1, 4)), 5, 1)


def test_ranks_are_two_sided():
    past = Novelty(np.arange(1.0, 102.0)[:, None])  # 1 to 101, with the median 51
    ranks = past.ranks(np.array([[51.0], [0.0], [102.0], [1.0], [np.nan]]))[:, 0]
    assert ranks.tolist() == pytest.approx([0, 1.01, 1.01, 1 - 2 / 101, 0], abs=1e-12)


def test_windows_like_the_past_have_uniform_novelty():
    rng = np.random.default_rng(0)
    novelty = Novelty(rng.normal(size=(4000, 4))).novelty(rng.normal(size=(4000, 4)))
    for share in (0.1, 0.5, 0.9, 0.95):
        assert (novelty > share).mean() == pytest.approx(1 - share, abs=0.025)


@pytest.mark.parametrize("feature", range(4))
def test_one_shifted_feature_is_enough(feature):
    rng = np.random.default_rng(1)
    past = Novelty(rng.normal(size=(300, 4)))
    window = np.zeros((1, 4))
    window[0, feature] = -6.0
    assert past.novelty(window)[0] == 1
    assert past.novelty(np.zeros((1, 4)))[0] < 0.05
    assert past.words(window, "weeks") == [
        f"the {FEATURES[feature]} is beyond that of 300 of 300 weeks"
    ]


def test_too_few_windows_are_refused():
    with pytest.raises(ConfigError, match="at least two windows"):
        Novelty(np.ones((1, 4)))
