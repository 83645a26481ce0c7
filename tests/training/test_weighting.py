import pytest

from bayesrnn.training import WEIGHTINGS, kl_weight


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("count", [1, 2, 7, 1327])
def test_an_epoch_charges_the_kl_once(weighting, count):
    shares = [kl_weight(weighting, number, count) for number in range(count)]
    assert sum(shares) == pytest.approx(1)
    assert all(share >= 0 for share in shares)


def test_the_formulas():
    assert kl_weight("uniform", 3, 8) == 1 / 8
    for count in (1, 3, 10):
        for i in range(1, count + 1):
            expected = 2 ** (count - i) / (2**count - 1)
            assert kl_weight("geometric", i - 1, count) == pytest.approx(expected)
