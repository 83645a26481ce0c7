"""Segments to texts, with networks whose answers are known."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.distributions import Normal

from bayesrnn.methods.base import Method
from bayesrnn.tasks.sentiment.data import Labels, Numbers
from bayesrnn.tasks.sentiment.predictions import (
    predict_labels,
    predict_numbers,
    segment_minibatches,
    segment_nll,
    segment_outputs,
)
from bayesrnn.tasks.sentiment.segments import Segments
from bayesrnn.uncertainty.draws import Draws

TARGET = Numbers(mean=3.0, sd=0.5)


class Shifted(Method):
    """Draws that add another number each to what the segment's first word says."""

    name, summary, options_type = "shifted", "for tests", type(None)

    def build(self, module, hints):
        return module

    def loss(self, net, objective, shares):
        raise NotImplementedError

    def draw(self, net, seed):
        shift = seed % 97 / 97
        return lambda words, lengths: net(words, lengths) + torch.tensor([shift, 0.0])


class FirstWord(nn.Module):
    """Says a hundredth of the first word, and a noise that is known."""

    def forward(self, words, lengths):
        first = words[0].float() / 100
        assert (lengths <= len(words)).all()
        return torch.stack([first, torch.full_like(first, 2 * math.log(0.8))], -1)


@pytest.fixture
def segments():
    """Three texts of 1, 3 and 2 segments; more segments than are read at once."""
    lengths = [3, 11, 7] * 150
    words = torch.split(torch.randint(90, (sum(lengths),), generator=_generator()), lengths)
    return Segments.cut(words, torch.arange(450).double() / 100, 4)


def _generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def draws():
    return Draws(Shifted(None, None), FirstWord(), 4, _generator())


def first_words(segments):
    return segments.words[segments.starts].double() / 100


def test_outputs_come_back_in_the_order_of_the_segments(segments):
    read = []
    found = segment_outputs(FirstWord(), segments, read.append)
    torch.testing.assert_close(found[:, 0], first_words(segments), rtol=1e-6, atol=1e-6)
    assert found.dtype == torch.double
    assert sum(read) == len(segments) == 900


def test_numbers_are_means_over_segments_in_the_users_unit(segments, draws):
    found = predict_numbers(draws, segments, TARGET)
    shifts = torch.tensor([draws[n](torch.zeros(1, 1), torch.ones(1))[0, 0] for n in range(4)])
    assert shifts.unique().numel() == 4
    for text in range(6):
        own = first_words(segments)[segments.texts == text].mean()
        means = 3 + 0.5 * (own + shifts.double())
        assert found.texts.mean[text].item() == pytest.approx(means.mean().item(), rel=1e-6)
        epistemic = means.var(correction=0).item()
        assert found.texts.epistemic[text].item() == pytest.approx(epistemic, rel=1e-4)
        assert found.texts.aleatoric[text].item() == pytest.approx((0.5 * 0.8) ** 2, rel=1e-6)
    single = 3 + 0.5 * (first_words(segments) + shifts.double().mean())
    torch.testing.assert_close(found.segments.mean, single, rtol=1e-6, atol=1e-6)


def test_the_mean_network_alone_has_no_epistemic_uncertainty(segments):
    draws = Draws(Shifted(None, None), FirstWord(), 0, _generator())
    found = predict_numbers(draws, segments, TARGET)
    assert (found.texts.epistemic == 0).all()


def test_labels_average_probabilities_over_segments_and_draws(segments, draws):
    found = predict_labels(draws, segments)
    per_draw = []
    for number in range(4):
        outputs = segment_outputs(draws[number], segments)
        per_draw.append(outputs.softmax(-1))
    for text in range(6):
        own = segments.texts == text
        of_draws = torch.stack([p[own].mean(0) for p in per_draw])
        mean = of_draws.mean(0)
        torch.testing.assert_close(found.texts[text], mean)
        total = -(mean * mean.log()).sum()
        aleatoric = -(of_draws * of_draws.log()).sum(-1).mean()
        torch.testing.assert_close(found.total[text], total)
        torch.testing.assert_close(found.information[text], total - aleatoric)
    torch.testing.assert_close(found.segments, torch.stack(per_draw).mean(0))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_loss_is_that_of_a_normal_distribution(reduction):
    outputs = torch.randn(6, 2, generator=_generator())
    targets = torch.linspace(1, 5, 6).double()
    found = segment_nll(outputs, targets, TARGET, reduction)
    normal = Normal(outputs[:, 0].double(), (outputs[:, 1] / 2).exp().double())
    exact = -normal.log_prob((targets - 3) / 0.5)
    torch.testing.assert_close(found.double(), getattr(exact, reduction)(), rtol=1e-5, atol=1e-5)
    # In the user's unit the density is 1 / sd as high.
    own = Normal(3 + 0.5 * normal.mean, 0.5 * normal.stddev).log_prob(targets)
    torch.testing.assert_close(-own, exact + math.log(0.5))


def test_minibatches_of_the_bound_sum_to_the_whole(segments):
    target = Labels(("a", "b"))
    labelled = replace(segments, targets=torch.arange(450) % 2)
    outputs = segment_outputs(FirstWord(), labelled)
    whole = segment_nll(outputs, labelled.targets[labelled.texts], target, "sum")
    parts = list(segment_minibatches(labelled, target, 128))
    losses = [make(None)(FirstWord()).nll for make, _ in parts]
    torch.testing.assert_close(sum(losses).double(), whole, rtol=1e-5, atol=1e-5)
    assert [count for _, count in parts] == [128] * 7 + [4]
