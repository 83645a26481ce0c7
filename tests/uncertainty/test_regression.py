"""Predicted numbers, against closed forms and torch.distributions."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributions import Categorical, MixtureSameFamily, Normal

import bayesrnn as br
from bayesrnn.errors import ConfigError
from bayesrnn.uncertainty.regression import AverageNumbers, Regression

LEVELS = (1e-6, 0.01, 0.2, 0.5, 0.77, 0.99, 1 - 1e-6)


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.double)


def averaged(outputs, head):
    average = AverageNumbers(head)
    for output in outputs:
        average.add(output)
    return average.prediction()


def mixture(means, deviations):
    """The equal mixture of normal distributions [draws, ...], as torch has it."""
    parts = Normal(means.double().movedim(0, -1), deviations.double().movedim(0, -1))
    return MixtureSameFamily(Categorical(torch.ones_like(parts.loc)), parts)


def assert_inverse(cdf, found, level, within):
    """`found` is where `cdf` reaches `level`, to `within`; `cdf` itself is rounded."""
    assert (cdf(found.double() - within) <= level + 1e-14).all()
    assert (cdf(found.double() + within) >= level - 1e-14).all()


@pytest.fixture
def linear():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return br.Bayesian(nn.Linear(3, 2).double(), sigma_init=br.absolute(0.1, 0.9))


@pytest.fixture
def closed(linear):
    """Mean and standard deviation that a Bayesian linear map predicts for x, without noise."""

    def moments(x):
        sigmas = linear.sigmas()
        variance = x.square() @ sigmas["weight"].square().T + sigmas["bias"].square()
        return linear.module(x).detach(), variance.sqrt()

    return moments


def test_a_bayesian_linear_regression(linear, closed):
    # y = W x + b + noise with independent normal weights is normal.
    x, samples, noise = normal(5, 3), 3000, 0.4
    generator = torch.Generator().manual_seed(1)
    found = br.predict(
        linear, x, samples=samples, generator=generator, head=Regression(noise=noise)
    )
    mean, deviation = closed(x)
    # Pairs of mirrored draws cancel in a linear network.
    torch.testing.assert_close(found.mean, mean, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found.aleatoric, torch.full_like(mean, noise**2))
    # samples / 2 independent squares of normal numbers: their mean errs by sqrt(2 / number).
    error = 5 * math.sqrt(2 / (samples / 2))
    torch.testing.assert_close(found.epistemic, deviation.square(), rtol=error, atol=0)
    torch.testing.assert_close(found.total, found.aleatoric + found.epistemic)
    expected = Normal(mean, (deviation.square() + noise**2).sqrt())
    for level in (0.025, 0.1, 0.5, 0.9, 0.975):
        share = expected.cdf(found.quantile(level))
        # Half of the draws are independent; 0.01 is what merging may add.
        allowed = 5 * math.sqrt(level * (1 - level) / (samples / 2)) + 0.01
        assert (share - level).abs().max() < allowed
    low, high = found.interval(0.9)
    truths = expected.sample((4000,))
    covered = ((low <= truths) & (truths <= high)).double().mean(0)
    assert (covered - 0.9).abs().max() < 5 * math.sqrt(0.09 / 4000) + 0.05


def test_noise_within_and_differences_between_draws():
    draws = normal(9, 4, 3)
    found = averaged(draws, Regression(noise=0.5))
    torch.testing.assert_close(found.mean, draws.mean(0))
    torch.testing.assert_close(found.aleatoric, torch.full_like(draws[0], 0.25))
    torch.testing.assert_close(found.epistemic, draws.var(0, correction=0))
    torch.testing.assert_close(found.total, mixture(draws, torch.full_like(draws, 0.5)).variance)


@pytest.mark.parametrize("shape", [(2,), (5, 6), (3, 1, 4)])
def test_noise_that_the_network_gives(shape):
    draws = normal(9, *shape)
    found = averaged(draws, Regression(log_variance=True))
    half = shape[-1] // 2
    means, deviations = draws[..., :half], (draws[..., half:] / 2).exp()
    expected = mixture(means, deviations)
    assert found.mean.shape == (*shape[:-1], half)
    torch.testing.assert_close(found.mean, expected.mean)
    torch.testing.assert_close(found.total, expected.variance)
    torch.testing.assert_close(found.aleatoric, deviations.square().mean(0))
    torch.testing.assert_close(found.epistemic, means.var(0, correction=0))
    for level in LEVELS:
        assert_inverse(expected.cdf, found.quantile(level), level, 1e-8)


def test_one_draw_is_one_normal_distribution():
    output = normal(4, 3)
    found = averaged([output], Regression(noise=0.7))
    assert not found.epistemic.any()
    expected = Normal(output, 0.7)
    for level in LEVELS:
        theirs = expected.icdf(torch.tensor(level, dtype=torch.double))
        torch.testing.assert_close(found.quantile(level), theirs, rtol=1e-9, atol=1e-10)
    low, high = found.interval()
    torch.testing.assert_close(high - low, torch.full_like(output, 2 * 1.959963984540054 * 0.7))


@pytest.mark.parametrize("samples", [2, 3, 127, 128])
@pytest.mark.parametrize("noise", [0.05, 1.0])
def test_quantiles_of_few_draws_are_exact(samples, noise):
    draws = normal(samples, 3, 2)
    found = averaged(draws, Regression(noise=noise))
    cdf = mixture(draws, torch.full_like(draws, noise)).cdf
    for level in LEVELS:
        assert_inverse(cdf, found.quantile(level), level, 1e-8)


@pytest.mark.parametrize("dtype", [torch.float, torch.half, torch.bfloat16])
def test_tails_keep_their_digits_in_short_numbers(dtype):
    draws = normal(50, 6).to(dtype)
    found = averaged(draws, Regression(noise=0.5))
    assert found.mean.dtype == found.total.dtype == found.quantile(0.5).dtype == torch.float
    cdf = mixture(draws, torch.full_like(draws, 0.5)).cdf
    for level in LEVELS:
        assert_inverse(cdf, found.quantile(level), level, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_the_upper_tail_is_the_lower_one_mirrored(dtype):
    draws = normal(20, 6).to(dtype)
    head = Regression(noise=0.5)
    found, mirrored = averaged(draws, head), averaged(-draws, head)
    for level in (1e-9, 1e-6, 0.25):
        upper, lower = found.quantile(1 - level), mirrored.quantile(level)
        assert upper.isfinite().all()
        torch.testing.assert_close(upper, -lower, rtol=1e-6, atol=0)


def test_two_modes_far_apart():
    # The median of most of the draws is in their mode, and no quantile but one is in between.
    draws = torch.tensor([-10.0, -10.0, 10.0, 10.0, 10.0], dtype=torch.double)[:, None]
    found = averaged(draws, Regression(noise=0.1))
    levels = torch.tensor([0.1, 0.2, 0.3], dtype=torch.double)
    lower = torch.stack([found.quantile(float(level)) for level in levels])
    torch.testing.assert_close(lower[:, 0], Normal(-10.0, 0.1).icdf(levels / 0.4))
    upper = found.quantile(0.7)
    torch.testing.assert_close(upper, torch.full_like(upper, 10.0), rtol=1e-9, atol=0)


@pytest.mark.parametrize("kind", ["normal", "two modes", "in order"])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_quantiles_of_many_draws(kind, noise):
    # Merging draws moves a quantile by a few hundredths in probability; the moments stay exact.
    draws = normal(1000, 20)
    if kind == "two modes":
        draws = 0.2 * draws + (normal(1000, 20, seed=1) > 0.3).double() * 2
    elif kind == "in order":
        draws = draws.sort(0).values
    within = {"normal": 0.012, "two modes": 0.03, "in order": 0.06}[kind]
    found = averaged(draws, Regression(noise=noise))
    torch.testing.assert_close(found.mean, draws.mean(0))
    torch.testing.assert_close(found.epistemic, draws.var(0, correction=0))
    for level in (0.001, 0.025, 0.25, 0.5, 0.75, 0.975, 0.999):
        quantile = found.quantile(level)
        if noise:
            share = mixture(draws, torch.full_like(draws, noise)).cdf(quantile)
        else:
            share = (draws <= quantile).double().mean(0)
        assert (share - level).abs().max() < within


@pytest.mark.parametrize("samples", [129, 1000])
def test_merged_draws_keep_weight_mean_and_variance(samples):
    draws = normal(samples, 7)
    found = averaged(torch.cat([draws, draws / 3], -1), Regression(log_variance=True))
    weights, means, variances = found._mixture._stacked()
    assert len(weights) <= 128
    torch.testing.assert_close(weights.sum(0), torch.full((7,), float(samples)).double())
    shares = weights / samples
    mean = (shares * means).sum(0)
    torch.testing.assert_close(mean, draws.mean(0))
    variance = (shares * (variances + means.square())).sum(0) - mean.square()
    torch.testing.assert_close(variance, found.total)


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_without_noise_quantiles_are_draws(dtype):
    draws = normal(10, 4, 3).to(dtype)
    found = averaged(draws, Regression())
    assert not found.aleatoric.any()
    in_order = draws.sort(0).values
    # The first draw below or at which lies the share `level`; not at the steps themselves.
    for level in (1e-6, 0.05, 0.15, 0.45, 0.55, 0.95, 1 - 1e-6):
        expected = in_order[math.ceil(level * 10) - 1]
        torch.testing.assert_close(found.quantile(level), expected, rtol=1e-6, atol=1e-9)


def test_without_noise_a_draw_in_the_very_middle_does_no_harm():
    # The search for a quantile starts at 1, where the distribution function has a step.
    found = averaged(torch.tensor([[2.0], [0.0], [1.0]]), Regression())
    for level, expected in ((0.2, 0.0), (0.5, 1.0), (0.9, 2.0)):
        torch.testing.assert_close(found.quantile(level), torch.tensor([expected]))


def test_without_noise_draws_that_agree_are_the_only_number():
    found = averaged(torch.full((6, 2), 3.5), Regression())
    assert not found.total.any()
    for level in LEVELS:
        assert torch.equal(found.quantile(level), torch.full((2,), 3.5))


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(-100, 100), min_size=1, max_size=8),
    st.sampled_from([0.0, 1e-3, 1.0, 50.0]),
    st.lists(st.floats(1e-6, 1 - 1e-6), min_size=2, max_size=5),
)
def test_quantiles_rise_with_the_level(numbers, noise, levels):
    draws = torch.tensor(numbers, dtype=torch.double)[:, None]
    found = averaged(draws, Regression(noise=noise))
    quantiles = torch.cat([found.quantile(level) for level in sorted(levels)])
    assert (quantiles.diff() >= -1e-9).all()


def test_intervals_leave_equal_tails():
    draws = normal(30, 5)
    found = averaged(draws, Regression(noise=0.3))
    cdf = mixture(draws, torch.full_like(draws, 0.3)).cdf
    before = None
    for share in (0.1, 0.5, 0.95, 0.999):
        low, high = found.interval(share)
        assert_inverse(cdf, low, (1 - share) / 2, 1e-8)
        assert_inverse(cdf, high, (1 + share) / 2, 1e-8)
        if before is not None:
            assert (low < before[0]).all()
            assert (before[1] < high).all()
        before = low, high
    default = found.interval()
    torch.testing.assert_close(default, found.interval(0.95))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 3), (3, 5, 7), (1, 1)])
@pytest.mark.parametrize("samples", [1, 4, 150])
def test_any_shape(shape, samples):
    draws = normal(samples, *shape)
    found = averaged(draws, Regression(noise=0.2))
    for tensor in (found.mean, found.aleatoric, found.epistemic, found.total):
        assert tensor.shape == shape
    low, high = found.interval()
    assert low.shape == high.shape == shape
    assert (low < found.quantile(0.5)).all()
    assert (found.quantile(0.5) < high).all()
    torch.testing.assert_close(found.mean, draws.mean(0))


def test_a_network_may_use_its_output_again():
    class Reusing(nn.Module):
        def __init__(self):
            super().__init__()
            self.dropout = nn.Dropout(0.5)
            self.buffer = torch.empty(6)
            self.seen = []

        def forward(self, x):
            self.buffer.copy_(self.dropout(x))
            self.seen.append(self.buffer.clone())
            return self.buffer

    net = Reusing()
    found = br.predict(net, normal(6).float(), samples=7, head=Regression(noise=0.1))
    seen = torch.stack(net.seen)
    assert (seen.var(0) > 0).any()
    cdf = mixture(seen, torch.full_like(seen, 0.1)).cdf
    assert_inverse(cdf, found.quantile(0.3), 0.3, 1e-5)
    torch.testing.assert_close(found.mean, seen.mean(0))


@pytest.mark.parametrize("noise", [-0.1, math.nan, math.inf])
def test_impossible_noise(noise):
    with pytest.raises(ConfigError, match=f"noise is {noise:g}"):
        Regression(noise=noise)


def test_noise_from_one_place():
    with pytest.raises(ConfigError, match="not both"):
        Regression(noise=0.1, log_variance=True)


@pytest.mark.parametrize(("shape", "shown"), [((4, 3), r"\[4, 3\]"), ((), r"\[\]")])
def test_means_without_variances(shape, shown):
    with pytest.raises(ConfigError, match=f"shape {shown}"):
        averaged(normal(1, *shape), Regression(log_variance=True))


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 1.5, math.nan])
def test_impossible_levels(level):
    found = averaged(normal(2, 3), Regression(noise=1.0))
    with pytest.raises(ConfigError, match=f"level is {level:g}"):
        found.quantile(level)
    with pytest.raises(ConfigError, match=f"share is {level:g}"):
        found.interval(level)


def test_a_density_without_noise_is_a_point():
    inf = math.inf
    sure = averaged([torch.tensor([1.0, 2.0, 3.0])], Regression(noise=0.0))
    assert sure.log_density(torch.tensor([1.0, 2.5, 3.0])).tolist() == [inf, -inf, inf]
    # Of two draws, one is right about the second number.
    draws = [torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0])]
    found = averaged(draws, Regression(noise=0.0)).log_density(torch.tensor([7.0, 4.0]))
    assert found.tolist() == [-inf, inf]
