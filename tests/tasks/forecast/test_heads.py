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
