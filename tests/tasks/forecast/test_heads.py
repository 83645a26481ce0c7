"""The distributions of a forecaster against those of torch, and its samples against their means."""

import pytest
import torch
from torch import distributions

from bayesrnn.random import seeded
from bayesrnn.tasks.forecast.heads import HEADS, LEAST_NU

BASE, UNIT = torch.tensor(50.0).double(), torch.tensor(4.0).double()


def parameters(name, count=1):
    raw = torch.tensor([0.3, -0.4, 0.8])[: HEADS[name].outputs]
    return HEADS[name].parameters(raw.expand(count, -1))


def reference(name):
    """The same distribution of (y - base) / unit, or of the count itself, by torch."""
    of = parameters(name)[0].double()
    if name == "gaussian":
        return distributions.Normal(of[0], of[1])
    if name == "student-t":
        return distributions.StudentT(of[2], of[0], of[1])
    mean, r = UNIT * of[0], 1 / of[1]
    return distributions.NegativeBinomial(r, probs=mean / (mean + r))


@pytest.mark.parametrize("name", HEADS)
def test_log_probabilities_are_those_of_torch(name):
    counts = name == "negative-binomial"
    y = torch.arange(12.0).double() if counts else torch.linspace(30, 70, 9).double()
    found = HEADS[name].log_prob(parameters(name), y, BASE, UNIT)
    expected = reference(name).log_prob(y if counts else (y - BASE) / UNIT)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", HEADS)
def test_samples_have_the_moments_of_the_distribution(name):
    many, head, truth = 200_000, HEADS[name], reference(name)
    found = head.sample(parameters(name, many), BASE, UNIT, seeded(1))
    mean, sd = truth.mean, truth.stddev
    if name != "negative-binomial":
        mean, sd = BASE + UNIT * mean, UNIT * sd
    error = 4 * sd / many**0.5
    assert abs(found.mean() - mean) < error
    assert abs(head.mean(parameters(name), BASE, UNIT)[0] - mean) < 1e-5
    assert found.std() == pytest.approx(float(sd), rel=0.03)


@pytest.mark.parametrize("name", HEADS)
def test_a_temperature_multiplies_the_width(name):
    head, of = HEADS[name], parameters(name)
    warmer = head.tempered(of, 2.0)
    assert warmer[0, 1] / of[0, 1] == pytest.approx(4.0 if name == "negative-binomial" else 2.0)
    assert torch.equal(warmer[0, [0, *range(2, of.shape[1])]], of[0, [0, *range(2, of.shape[1])]])


def test_a_student_t_always_has_a_variance():
    of = HEADS["student-t"].parameters(torch.tensor([0.0, -40.0, -40.0]))
    assert of[1] > 0
    assert of[2] >= LEAST_NU > 2


@pytest.mark.parametrize("nu", [2.6, 4.0, 30.0, 1000.0])
def test_tails_of_a_student_t_are_the_integral_of_its_density(nu):
    of = torch.tensor([0.3, 0.8, nu]).double()
    y = torch.tensor([-6.0, 0.0, 0.3, 0.9, 8.0]).double()
    low, high = HEADS["student-t"].tails(of.expand(5, -1), y, torch.tensor(0.0), torch.tensor(1.0))
    torch.testing.assert_close(low + high, torch.ones(5).double())
    # By the trapezoidal rule from y on, on a grid that is fine near the middle.
    for value, found in zip(y, high, strict=True):
        x = value + torch.expm1(torch.linspace(0, 12, 400_001).double())
        density = distributions.StudentT(of[2], of[0], of[1]).log_prob(x).exp()
        assert float(found) == pytest.approx(float(torch.trapezoid(density, x)), rel=1e-4, abs=1e-8)


def test_tails_of_a_normal_and_of_counts_are_those_of_torch():
    y = torch.tensor([20.0, 53.0, 70.0]).double()
    low, high = HEADS["gaussian"].tails(parameters("gaussian"), y, BASE, UNIT)
    torch.testing.assert_close(low, reference("gaussian").cdf((y - BASE) / UNIT))
    torch.testing.assert_close(low + high, torch.ones(3).double())
    counts = torch.tensor([0.0, 3.0, 9.0]).double()
    low, high = HEADS["negative-binomial"].tails(
        parameters("negative-binomial"), counts, BASE, UNIT
    )
    probabilities = reference("negative-binomial").log_prob(torch.arange(10.0).double()).exp()
    up_to = probabilities.cumsum(0)[counts.long()]
    torch.testing.assert_close(low, up_to, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(high, 1 - up_to + probabilities[counts.long()], rtol=1e-5, atol=1e-7)
