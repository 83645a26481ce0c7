import itertools
import math

import pytest
import torch
from torch.distributions import (
    Categorical,
    Independent,
    InverseGamma,
    MixtureSameFamily,
    Normal,
    kl_divergence,
)

from bayesrnn.core.priors import FittedGaussian, Gaussian, Prior, ScaleMixture
from bayesrnn.errors import ConfigError

#: Shapes and the axis along which the weights that leave one unit lie.
SHAPES = [((1,), 0), ((5,), 0), ((4, 3), 0), ((4, 3), 1), ((3, 2, 2, 3), 0), ((3, 2, 2, 3), 1)]
WIDTHS = [(0.25, 0.5, 0.3), (0.7, 0.4, 0.02), (0.25, math.exp(-1), math.exp(-7))]


def groups(weight, axis, per):
    """The vectors of weights that choose together, gathered one number at a time."""
    if per == "tensor":
        yield weight.reshape(-1)
        return
    sizes = list(weight.shape)
    others = [range(n) for place, n in enumerate(sizes) if place != axis or per == "weight"]
    for index in itertools.product(*others):
        if per == "weight":
            yield weight[index].reshape(1)
            continue
        members = [weight[(*index[:axis], i, *index[axis:])] for i in range(sizes[axis])]
        yield torch.stack(members)


def mixture_log_prob(weight, axis, pi, sigma1, sigma2, per):
    """The log-density of each group under torch's own mixture, summed."""
    shares = Categorical(torch.tensor([pi, 1 - pi], dtype=torch.float64))
    total = torch.zeros((), dtype=torch.float64)
    for group in groups(weight, axis, per):
        scales = torch.tensor([[sigma1], [sigma2]], dtype=torch.float64).expand(2, len(group))
        parts = Independent(Normal(torch.zeros_like(scales), scales), 1)
        total = total + MixtureSameFamily(shares, parts).log_prob(group)
    return total


def some_weights(shape, scale=0.4):
    generator = torch.Generator().manual_seed(sum(shape))
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("per", ["weight", "row", "tensor"])
def test_mixture_against_torch_distributions(per):
    for (shape, axis), widths in itertools.product(SHAPES, WIDTHS):
        prior = ScaleMixture(*widths, per=per)
        weight = some_weights(shape).requires_grad_()
        expected = mixture_log_prob(weight, axis, *widths, per)
        (expected_score,) = torch.autograd.grad(expected, weight)
        plain = weight.detach()
        torch.testing.assert_close(prior.log_prob(plain, axis), expected.detach())
        torch.testing.assert_close(prior.score(plain, axis), expected_score)


def test_the_groupings_differ():
    weight = some_weights((4, 3))
    values = {
        ScaleMixture(0.25, 0.5, 0.3, per).log_prob(weight, axis).item()
        for per, axis in [("weight", 0), ("row", 0), ("row", 1), ("tensor", 0)]
    }
    assert len(values) == 4


def test_mixture_density_of_one_weight_integrates_to_one():
    grid = torch.linspace(-6, 6, 2001, dtype=torch.float64)
    prior = ScaleMixture(0.3, 0.8, 0.05)
    density = torch.stack([prior.log_prob(x.reshape(1), 0) for x in grid]).exp()
    # The trapezium rule is exact to many digits for a density that is zero at both ends.
    assert torch.trapezoid(density, grid).item() == pytest.approx(1.0, abs=1e-9)
    variance = torch.trapezoid(density * grid**2, grid).item()
    assert math.sqrt(variance) == pytest.approx(prior.std, rel=1e-9)


def test_standard_deviations_against_torch_distributions():
    parts = Normal(torch.zeros(2), torch.tensor([0.7, 0.1]))
    mixture = MixtureSameFamily(Categorical(torch.tensor([0.2, 0.8])), parts)
    assert ScaleMixture(0.2, 0.7, 0.1).std == pytest.approx(mixture.stddev.item(), rel=1e-6)
    assert Gaussian(0.3).std == 0.3
    assert ScaleMixture().std == pytest.approx(0.184, abs=5e-4)  # that of the recipe


@pytest.mark.parametrize("per", ["weight", "row", "tensor"])
def test_score_in_single_precision_keeps_its_digits(per):
    # 1 / sigma2^2 is about 10^6: a share of the narrow component that is off by one rounding
    # of single precision would shift the score by one percent.
    prior = ScaleMixture(per=per)
    weight = torch.linspace(0.003, 0.02, 500, dtype=torch.float64).reshape(500, 1)
    weight = weight.to(torch.float32).double().requires_grad_()
    axis = 1
    expected = mixture_log_prob(weight, axis, prior.pi, prior.sigma1, prior.sigma2, per)
    (expected_score,) = torch.autograd.grad(expected, weight)
    score = prior.score(weight.detach().float(), axis).double()
    torch.testing.assert_close(score, expected_score, rtol=3e-4, atol=0)


def test_large_groups_do_not_overflow():
    weight = 0.1 * torch.randn(2000, 300, generator=torch.Generator().manual_seed(0))
    for per in ("row", "tensor"):
        prior = ScaleMixture(per=per)
        assert math.isfinite(prior.log_prob(weight, 0).item())
        # Far from the spike every group is certain of the slab: a Gaussian of width sigma1.
        torch.testing.assert_close(prior.score(weight, 0), -weight / prior.sigma1**2)


@pytest.mark.parametrize("sigma", [0.05, 1.0, 3.0])
def test_gaussian_against_torch_distributions(sigma):
    weight = some_weights((4, 3)).requires_grad_()
    prior = Gaussian(sigma)
    reference = Normal(*torch.tensor([0.0, sigma], dtype=torch.float64))
    expected = reference.log_prob(weight).sum()
    torch.testing.assert_close(prior.log_prob(weight, 0), expected)

    scale = some_weights((4, 3), 0.2).abs().add(0.01).requires_grad_()
    q = Normal(weight, scale)
    # E_q[log p] = -KL[q || p] - H[q]
    expected = -kl_divergence(q, reference).sum() - q.entropy().sum()
    torch.testing.assert_close(prior.expected_log_prob(weight, scale, 0), expected)


@pytest.mark.parametrize(("a", "b"), [(1.0, 1e-4), (2.5, 0.3)])
@pytest.mark.parametrize("per", ["weight", "row", "tensor"])
def test_a_fitted_prior_is_a_gaussian_whose_variance_is_integrated_out(a, b, per):
    weight = some_weights((4, 3), scale=0.1 + math.sqrt(b))
    # p(w) = integral of N(w; 0, v) InvGamma(v; a, b) dv, by the trapezium rule over log v.
    logs = torch.linspace(-25, 25, 20_001, dtype=torch.float64)
    of_variance = InverseGamma(*torch.tensor([a, b], dtype=torch.float64)).log_prob(logs.exp())
    total = 0.0
    for group in groups(weight, 0, per):
        normal = Normal(torch.zeros((), dtype=torch.float64), (logs / 2).exp()[:, None])
        density = (normal.log_prob(group).sum(-1) + of_variance + logs).exp()
        total += torch.trapezoid(density, logs).log().item()
    assert FittedGaussian(per, a, b).log_prob(weight, 0).item() == pytest.approx(total, rel=1e-6)


def test_a_fitted_prior_charges_no_less_than_the_kl():
    prior = FittedGaussian("weight", a=1.0, b=0.01)
    for loc, sigma in [(0.0, 0.05), (0.3, 0.02), (0.1, 0.5)]:
        m, s = torch.tensor([loc], dtype=torch.float64), torch.tensor([sigma], dtype=torch.float64)
        grid = torch.linspace(-12, 12, 8001, dtype=torch.float64)
        q = Normal(0.0, 1.0).log_prob(grid).exp()
        logs = torch.stack([prior.log_prob(m + s * z, 0) for z in grid])
        expectation = torch.trapezoid(q * logs, grid).item()
        bound = prior.expected_log_prob(m, s, 0).item()
        assert bound <= expectation
        # The bound is tight where the posterior is narrow.
        assert sigma > 0.1 * loc or bound == pytest.approx(expectation, abs=0.02)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_the_hyper_prior_has_to_be_positive(value):
    for name in ("a", "b"):
        with pytest.raises(ConfigError, match=f"^{name} of the inverse gamma"):
            FittedGaussian(**{name: value})
    with pytest.raises(ConfigError, match="std is"):
        FittedGaussian(std=value)


def test_a_prior_without_log_prob_cannot_be_made():
    class Nothing(Prior):
        pass

    with pytest.raises(TypeError, match="log_prob"):
        Nothing()


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_widths_have_to_be_positive(value):
    with pytest.raises(ConfigError, match="sigma is"):
        Gaussian(value)
    with pytest.raises(ConfigError, match="sigma1 is"):
        ScaleMixture(sigma1=value)
    with pytest.raises(ConfigError, match="sigma2 is"):
        ScaleMixture(sigma2=value)


@pytest.mark.parametrize("pi", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_pi_has_to_be_a_share(pi):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        ScaleMixture(pi=pi)


def test_unknown_grouping():
    for make in (ScaleMixture, FittedGaussian):
        with pytest.raises(ConfigError, match=r"'net'.*row"):
            make(per="net")


def test_priors_say_what_they_are():
    assert repr(Gaussian(0.5)) == "Gaussian(sigma=0.5)"
    assert "pi=0.25" in repr(ScaleMixture())
    assert "per='row'" in repr(ScaleMixture())
    assert repr(FittedGaussian("row")) == "FittedGaussian(per='row', a=1, b=0.0001)"
