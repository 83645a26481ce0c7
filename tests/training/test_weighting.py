from itertools import product

import pytest

from bayesrnn.training.optimisation import WEIGHTINGS, kl_weight, minibatch_kl_scale


def test_an_epoch_charges_the_kl_once():
    for weighting, count in product(WEIGHTINGS, (1, 2, 7, 1327)):
        shares = [kl_weight(weighting, number, count) for number in range(count)]
        assert sum(shares) == pytest.approx(1)
        assert all(share >= 0 for share in shares)


def test_the_formulas():
    assert kl_weight("uniform", 3, 8) == 1 / 8
    for count in (1, 3, 10):
        for i in range(1, count + 1):
            expected = 2 ** (count - i) / (2**count - 1)
            assert kl_weight("geometric", i - 1, count) == pytest.approx(expected)


def test_the_shares_are_on_the_scale_of_a_mean_over_sequences():
    epoch = [minibatch_kl_scale("uniform", number, 5, sequences=20) for number in range(5)]
    assert sum(share.epoch for share in epoch) == pytest.approx(1 / 20)
    assert {share.minibatch for share in epoch} == {1 / 20}
    first = minibatch_kl_scale("geometric", 0, 2, sequences=10)
    assert first.epoch == pytest.approx(2 / 3 / 10)
