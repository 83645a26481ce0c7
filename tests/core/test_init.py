import math

import pytest
import torch

from bayesrnn.core.init import absolute, relative
from bayesrnn.core.priors import Gaussian, Prior, ScaleMixture
from bayesrnn.errors import ConfigError


class Unknown(Prior):
    def log_prob(self, weight, axis):
        return weight.sum()


def drawn(scale, prior, like=None):
    like = torch.empty(100_000) if like is None else like
    return scale.draw(like, prior, torch.Generator().manual_seed(0))


def test_absolute_is_uniform_between_low_and_high():
    sigma = drawn(absolute(0.1, 0.3), Gaussian(5.0))
    assert 0.1 <= sigma.min() < 0.101
    assert 0.299 < sigma.max() <= 0.3
    # A uniform density of width 0.2: mean 0.2, standard deviation 0.2 / sqrt(12).
    assert sigma.mean().item() == pytest.approx(0.2, abs=5 * 0.2 / math.sqrt(12 * 1e5))
    assert sigma.std().item() == pytest.approx(0.2 / math.sqrt(12), rel=0.01)


def test_one_number_is_a_constant():
    assert torch.equal(drawn(absolute(0.25), Unknown()), torch.full((100_000,), 0.25))


@pytest.mark.parametrize(
    ("prior", "std"),
    [(Gaussian(3.0), 3.0), (ScaleMixture(), 0.184)],  # the prior of the recipe
)
def test_relative_counts_in_standard_deviations_of_the_prior(prior, std):
    sigma = drawn(relative(0.25, 0.5), prior)
    assert sigma.min().item() == pytest.approx(std / 4, rel=2e-3)
    assert sigma.max().item() == pytest.approx(std / 2, rel=2e-3)
    assert drawn(relative(2.0), prior)[0].item() == pytest.approx(2 * std, rel=2e-3)


def test_shape_and_type_follow_the_weights():
    weights = torch.nn.Parameter(torch.empty(2, 3, dtype=torch.float64))
    sigma = drawn(absolute(0.1, 0.2), Gaussian(), weights)
    assert (sigma.shape, sigma.dtype, sigma.requires_grad) == ((2, 3), torch.float64, False)


def test_the_generator_decides_and_the_global_one_is_left_alone():
    before = torch.get_rng_state()
    first = drawn(absolute(0.1, 0.2), Gaussian())
    assert torch.equal(first, drawn(absolute(0.1, 0.2), Gaussian()))
    assert torch.equal(before, torch.get_rng_state())


def test_relative_to_a_prior_of_unknown_width():
    with pytest.raises(ConfigError, match="absolute"):
        drawn(relative(0.5), Unknown())
    assert drawn(absolute(0.5), Unknown())[0] == 0.5


@pytest.mark.parametrize("make", [absolute, relative])
@pytest.mark.parametrize(
    "bounds", [(0.0,), (-1.0, 1.0), (0.3, 0.2), (math.nan,), (0.1, math.nan), (-0.1,)]
)
def test_impossible_bounds(make, bounds):
    with pytest.raises(ConfigError, match="0 < low <= high"):
        make(*bounds)
