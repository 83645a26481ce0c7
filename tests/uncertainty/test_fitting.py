"""Noise and temperatures that are fitted, where the right answer is known."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Normal

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.errors import RunError
from bayesrnn.methods import METHODS
from bayesrnn.nn.temperature import Tempered
from bayesrnn.random import RandomStreams
from bayesrnn.uncertainty.fitting import (
    LEAST,
    MOST,
    TRIES,
    fit_noise,
    fit_scaling,
    fit_temperature,
    fitted_nll,
    lowest_of_parabola,
    nearest_to_one,
)
from bayesrnn.uncertainty.scaling import tempered_log_probs


def method_of(name):
    kind = METHODS[name]
    return kind(kind.options_type(), RandomStreams(0))


def test_log_probs_at_several_temperatures():
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(40, 7, generator=generator, dtype=torch.double) + 800
    targets = torch.randint(7, (40,), generator=generator)
    temperatures = (0.3, 1.0, 4.0)
    found = tempered_log_probs(logits, targets, temperatures)
    expected = [Categorical(logits=logits / t).log_prob(targets) for t in temperatures]
    torch.testing.assert_close(found, torch.stack(expected))


@pytest.mark.parametrize("best", [0.15, 0.4, 0.97, 1.0, 2.3, 7.5])
def test_the_temperature_of_a_function_with_a_known_lowest_point(best):
    # The negative log-likelihood of errors with a standard deviation of `best`.
    temperature, nll = fit_temperature(lambda ts: [math.log(t) + best**2 / (2 * t**2) for t in ts])
    assert temperature == pytest.approx(best, rel=0.005)
    assert nll == pytest.approx(math.log(best) + 1 / 2, abs=1e-4)


def test_the_likelihood_at_the_best_temperature():
    """Three times too sure: the same as that of the right logits, but for chance."""
    generator = torch.Generator().manual_seed(0)
    right = torch.randn(20_000, 5, generator=generator, dtype=torch.double)
    labels = Categorical(logits=right).sample()
    found = fitted_nll(lambda ts: tempered_log_probs(3 * right, labels, ts))
    grid = torch.linspace(2.5, 3.5, 1001)
    lowest = min(-Categorical(logits=3 * right / t).log_prob(labels).mean() for t in grid)
    assert found == pytest.approx(lowest.item(), abs=1e-5)


@pytest.mark.parametrize(("falling", "end"), [(True, 8), (False, 1 / 8)])
def test_no_temperature_beyond_the_limits(falling, end):
    sign = -1 if falling else 1
    assert fit_temperature(lambda ts: [sign * t for t in ts])[0] == pytest.approx(end)


@pytest.mark.parametrize("best", [0.2, 0.55, 0.7, 1.0, 1.2, 1.45])
def test_the_factor_of_a_function_with_a_known_lowest_point(best):
    found = fit_noise(lambda f: (f - best) ** 2 + 0.1 * (f - best) ** 3)
    assert found == pytest.approx(best, abs=0.05)


def test_no_factor_beyond_the_limits():
    assert fit_noise(lambda f: f) == LEAST
    assert fit_noise(lambda f: -f) == MOST


def test_a_parabola_through_three_points():
    def parabola(x):
        return 3 * (x - 0.7) ** 2 + 5

    places = [0.1, 0.6, 1.5]
    assert lowest_of_parabola(places, list(map(parabola, places))) == pytest.approx((0.7, 5))
    assert lowest_of_parabola(places, [1.0, 1.0, 1.0]) == (0.6, 1.0)


class Logits(Tempered):
    """The same logits, whatever is asked."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self):
        return self.tempered(self.logits)


@pytest.mark.parametrize("truth", [0.6, 1.0, 2.5])
def test_a_classifier_that_is_too_sure_gets_the_temperature_of_its_data(truth):
    generator = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(20_000, 5, generator=generator)
    targets = (logits / truth).softmax(-1).multinomial(1, generator=generator)[:, 0]
    method, net = method_of("plain"), Logits(logits)
    found = fit_scaling(method, net, lambda network, ts: tempered_log_probs(network(), targets, ts))
    assert found.scaling.mean_temperature == pytest.approx(truth, rel=0.03)
    assert found.scaling.temperature == found.scaling.mean_temperature
    expected = Categorical(logits=logits / found.scaling.mean_temperature).log_prob(targets)
    assert found.mean_nll_fitted == pytest.approx(-expected.mean().item(), abs=1e-4)
    assert found.mean_nll == pytest.approx(nn.functional.cross_entropy(logits, targets).item())
    assert (found.draws, found.draws_nll, found.predictions) == (0, None, 20_000)


class Vector(nn.Module):
    def __init__(self, values):
        super().__init__()
        self.values = nn.Parameter(values)

    def forward(self):
        return self.values


@pytest.mark.parametrize(("widened", "factor"), [(1.0, 1.0), (2.0, 0.5)])
def test_the_widths_of_an_exact_posterior_are_right_and_wider_ones_are_brought_back(
    widened, factor
):
    # Each number w was measured once with an error of deviation s, so its posterior under a flat
    # prior is N(measured, s^2); it is predicted with noise of deviation 1 on top. Some are known
    # better than others, so that noise and posterior can be told apart.
    generator = torch.Generator().manual_seed(2)
    size = 4000
    deviations = torch.where(torch.arange(size) % 2 == 0, 2.0, 0.2)
    truths = 3 * torch.randn(size, generator=generator)
    measured = truths + deviations * torch.randn(size, generator=generator)
    seen = truths + torch.randn(size, generator=generator)
    net = Bayesian(Vector(measured), sigma_init=1.0, min_sigma=0.0)
    with torch.no_grad():
        net.rho.values.copy_((widened * deviations).expm1().log())

    def score(network, temperatures):
        return torch.stack([Normal(network(), t).log_prob(seen) for t in temperatures])

    found = fit_scaling(method_of("bbb"), net, score, samples=40)
    assert found.scaling.noise == pytest.approx(factor, abs=0.08)
    assert found.scaling.temperature == pytest.approx(1, abs=0.08)
    # The predictive distribution is known: N(measured, s^2 + 1). 40 draws come close to it.
    exact = -Normal(measured, (deviations.square() + 1).sqrt()).log_prob(seen).mean().item()
    assert found.draws_nll_fitted == pytest.approx(exact, abs=0.03)
    assert found.draws_nll_fitted <= found.draws_nll
    assert found.draws_nll_fitted < found.mean_nll_fitted  # one temperature cannot serve both
    assert found.draws == 40


def test_temperatures_are_those_of_the_longer_data():
    """The noise is fitted to data with errors of deviation 1, the temperatures to those of 2."""
    generator = torch.Generator().manual_seed(3)
    errors = torch.randn(2, 5000, generator=generator) * torch.tensor([[1.0], [2.0]])
    net = Bayesian(Vector(torch.zeros(5000)), sigma_init=0.1)

    def score_of(seen):
        def score(network, temperatures):
            return torch.stack([Normal(network(), t).log_prob(seen) for t in temperatures])

        return score

    method, tries = method_of("bbb"), []
    short = fit_scaling(method, net, score_of(errors[0]))
    found = fit_scaling(
        method, net, score_of(errors[0]), advance=tries.append, longer=score_of(errors[1])
    )
    assert found.scaling.noise == short.scaling.noise
    assert short.scaling.mean_temperature == pytest.approx(1, rel=0.03)
    for temperature in (found.scaling.mean_temperature, found.scaling.temperature):
        assert temperature == pytest.approx(2, rel=0.03)
    expected = -Normal(0, 2).log_prob(errors[1]).mean().item()
    assert found.mean_nll_fitted == pytest.approx(expected, abs=0.01)
    assert found.draws_nll_fitted == pytest.approx(expected, abs=0.01)
    assert found.draws_nll > found.draws_nll_fitted + 0.1
    assert sum(tries) <= TRIES


def test_noise_that_makes_no_difference_is_left_as_it_is():
    net = Bayesian(Vector(torch.zeros(50)), sigma_init=1.0)
    found = fit_scaling(
        method_of("bbb"), net, lambda network, ts: torch.ones(len(ts), 50), samples=2
    )
    assert found.scaling.noise == 1


def test_the_factor_nearest_to_1_within_a_standard_error():
    better = torch.tensor([1.0, -1.0]).repeat(50) + 0.2  # 0.2 in the mean, standard error 0.1
    log_probs = {1.0: torch.zeros(100), 0.7: torch.full((100,), 0.15), 0.4: better}
    assert nearest_to_one(log_probs, best=0.4) == 0.7
    assert nearest_to_one({**log_probs, 1.0: better}, best=0.4) == 1.0


def test_a_network_without_a_likelihood_is_refused():
    net = Logits(torch.full((3, 2), math.nan))
    with pytest.raises(RunError, match="no likelihood"):
        fit_scaling(
            method_of("plain"),
            net,
            lambda network, ts: tempered_log_probs(network(), torch.tensor([0, 1, 0]), ts),
        )
