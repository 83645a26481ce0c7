import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesrnn.core.init import absolute
from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, Method
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.mnist.model import MLP
from bayesrnn.uncertainty.metrics import (
    calibration_error,
    class_log_probabilities,
    classification,
    score_probabilities,
)

NAMES = ("plain", "dropout", "bbb")
INPUTS, CLASSES = 4, 3
# By hand. Answers 0, 1, 0, 2 with confidence 0.7, 0.5, 0.65, 0.9; the third is wrong.
FOUR = torch.tensor(
    [[0.7, 0.2, 0.1], [0.25, 0.5, 0.25], [0.65, 0.3, 0.05], [0.1, 0.0, 0.9]], dtype=torch.double
)
FOUR_LABELS = torch.tensor([0, 1, 1, 2])


def make_model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MLP(INPUTS, CLASSES, hidden=6).double()
    model.initialise(torch.Generator().manual_seed(0))
    return model.eval()


def make_method(name):
    kind = METHODS[name]
    method = kind(kind.options_type(), RandomStreams(0))
    return method, method.build(make_model(), Hints(sigma_init={"*": absolute(0.3)}))


def data(count):
    generator = torch.Generator().manual_seed(count)
    images = torch.randn(count, INPUTS, generator=generator, dtype=torch.double)
    return images, torch.randint(CLASSES, (count,), generator=generator)


class Drawn(Method[None]):
    """A method whose draws are given networks, one after the other."""

    def __init__(self, *networks):
        self.networks = iter(networks)

    def build(self, module, hints):
        return module

    def loss(self, net, objective, shares):
        raise NotImplementedError

    def draw(self, net, seed):
        return next(self.networks)


# The metrics


def test_metrics_by_hand():
    found = score_probabilities(FOUR, FOUR_LABELS)
    assert found.examples == 4
    assert found.error == 0.25
    logs = math.log(0.7) + math.log(0.5) + math.log(0.3) + math.log(0.9)
    assert found.nll == pytest.approx(-logs / 4, rel=1e-12)
    brier = (0.09 + 0.04 + 0.01) + (0.0625 + 0.25 + 0.0625) + (0.4225 + 0.49 + 0.0025)
    assert found.brier == pytest.approx((brier + 0.01 + 0.01) / 4, rel=1e-12)
    # Bins of 1/15: 0.65 is in (0.6, 0.667], the others each in one of their own.
    assert found.ece == pytest.approx((0.3 + 0.5 + 0.65 + 0.1) / 4, rel=1e-12)


def test_answers_in_one_bin_make_up_for_each_other():
    # With 2 bins, 0.5 is in the lower one; above are 0.7 and 0.9 right and 0.65 wrong.
    assert calibration_error(FOUR, FOUR_LABELS, 2) == pytest.approx((0.5 + 0.25) / 4, rel=1e-12)
    # With 1 bin: 3 of 4 are right, and the confidences sum to 2.75.
    assert calibration_error(FOUR, FOUR_LABELS, 1) == pytest.approx(0.25 / 4, rel=1e-12)


@pytest.mark.parametrize("edge", range(8, 15))
def test_an_edge_belongs_to_the_lower_bin(edge):
    # Right at confidence edge / 15, wrong a hair above it: in one bin they would make up.
    confidence = torch.tensor([edge / 15, math.nextafter(edge / 15, 1)], dtype=torch.double)
    probabilities = torch.stack([confidence, 1 - confidence], 1)
    labels = torch.tensor([0, 1])
    found = calibration_error(probabilities, labels)
    assert found == pytest.approx((1 - edge / 15 + edge / 15) / 2, rel=1e-12)
    # A hair below, it is in the same bin as the edge.
    confidence[1] = math.nextafter(edge / 15, 0)
    probabilities = torch.stack([confidence, 1 - confidence], 1)
    found = calibration_error(probabilities, labels)
    assert found == pytest.approx(abs(1 - 2 * edge / 15) / 2, rel=1e-9)


def test_certain_answers():
    sure = torch.eye(3)
    right = score_probabilities(sure, torch.tensor([0, 1, 2]))
    assert (right.error, right.nll, right.ece, right.brier) == (0, 0, 0, 0)
    wrong = score_probabilities(sure, torch.tensor([1, 2, 0]))
    assert (wrong.error, wrong.nll, wrong.ece, wrong.brier) == (1, math.inf, 1, 2)


def test_knowing_nothing():
    flat = torch.full((10, 10), 0.1, dtype=torch.double)
    found = score_probabilities(flat, torch.arange(10))
    assert found.nll == pytest.approx(math.log(10), rel=1e-12)
    assert found.brier == pytest.approx(0.81 + 9 * 0.01, rel=1e-12)
    assert found.error == 0.9
    assert found.ece == pytest.approx(0, abs=1e-12)  # says one in ten, and one in ten is right


def test_labels_drawn_from_the_probabilities_are_calibrated():
    generator = torch.Generator().manual_seed(0)
    count = 200_000
    logits = 2 * torch.randn(count, CLASSES, generator=generator, dtype=torch.double)
    probabilities = logits.softmax(-1)
    labels = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
    found = score_probabilities(probabilities, labels)
    # A bin of n answers is off by at most 5 sqrt(n / 4); over 15 bins, 2.5 sqrt(15 N).
    assert found.ece < 2.5 * math.sqrt(15 / count)
    assert found.error == pytest.approx(1 - probabilities.amax(-1).mean().item(), abs=0.006)
    entropy = -(probabilities * probabilities.log()).sum(-1).mean().item()
    assert found.nll == pytest.approx(entropy, abs=0.01)
    assert found.brier == pytest.approx(1 - probabilities.square().sum(-1).mean().item(), abs=0.01)
    # Sharper than the truth: as accurate, but no longer calibrated.
    sharp = score_probabilities((2 * logits).softmax(-1), labels)
    assert sharp.error == found.error
    assert sharp.ece > 0.05
    assert sharp.nll > found.nll
    assert sharp.brier > found.brier


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 50), st.integers(2, 6), st.integers(1, 20), st.integers(0, 10**6))
def test_metrics_against_loops(count, classes, bins, seed):
    generator = torch.Generator().manual_seed(seed)
    probabilities = torch.randn(count, classes, generator=generator).mul(2).double().softmax(-1)
    labels = torch.randint(classes, (count,), generator=generator)
    rows = [
        (row, max(row), row.index(max(row)), label)
        for row, label in zip(probabilities.tolist(), labels.tolist(), strict=True)
    ]
    ece = 0.0
    for place in range(bins):
        inside = [row for row in rows if place / bins < row[1] <= (place + 1) / bins]
        if inside:
            accuracy = sum(answer == label for _, _, answer, label in inside) / len(inside)
            confidence = sum(row[1] for row in inside) / len(inside)
            ece += len(inside) / count * abs(accuracy - confidence)
    assert calibration_error(probabilities, labels, bins) == pytest.approx(ece, abs=1e-12)
    found = score_probabilities(probabilities, labels)
    brier = sum(
        (p - (place == label)) ** 2 for row, _, _, label in rows for place, p in enumerate(row)
    )
    assert found.brier == pytest.approx(brier / count, rel=1e-9)
    assert found.nll == pytest.approx(-sum(math.log(row[y]) for row, _, _, y in rows) / count)
    assert found.error == pytest.approx(sum(a != y for _, _, a, y in rows) / count)


# From networks


@pytest.mark.parametrize("batch", [1, 4, 10, 1000])
def test_probabilities_whatever_the_batch(batch):
    images, _ = data(10)
    model, counted = make_model(), []
    found = class_log_probabilities(model, images, batch, counted.append).exp()
    weights = model(images).exp()
    torch.testing.assert_close(found, (weights / weights.sum(-1, keepdim=True)).detach())
    assert found.dtype == torch.double
    assert not found.requires_grad
    assert sum(counted) == 10


def test_softmax_is_taken_in_double():
    model = make_model().float()
    found = class_log_probabilities(model, data(50)[0].float()).exp()
    assert found.dtype == torch.double
    assert (found.sum(-1) - 1).abs().max() < 1e-15 * 4


def test_the_mean_network_scores_like_the_model():
    images, labels = data(30)
    expected = score_probabilities(make_model()(images).softmax(-1), labels)
    for name in NAMES:
        found = classification(*make_method(name), images, labels)
        assert found.examples == 30
        for metric in ("error", "nll", "ece", "brier"):
            value = getattr(expected, metric)
            assert getattr(found, metric) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_draws_are_averaged_as_probabilities(samples):
    method, net = make_method("bbb")
    images, labels = data(40)
    found = classification(method, net, images, labels, samples, torch.Generator().manual_seed(4))
    generator = torch.Generator().manual_seed(4)
    drawn = []
    for _ in range(samples):
        plain = make_model()
        with torch.no_grad():
            for name, weight in net.sample(generator).items():
                plain.get_parameter(name).copy_(weight)
            drawn.append(plain(images).softmax(-1))
    expected = score_probabilities(torch.stack(drawn).mean(0), labels)
    for metric in ("error", "nll", "ece", "brier"):
        assert getattr(found, metric) == pytest.approx(getattr(expected, metric), rel=1e-10)
    if samples > 1:  # not the mean of the logs, which is always worse
        assert found.nll < sum(score_probabilities(p, labels).nll for p in drawn) / samples


def test_the_nll_stays_finite_where_probabilities_do_not_fit_a_float():
    # p = exp(-2000) in one draw and exp(-3000) in the other.
    near, far = (torch.tensor([[0.0, -size]]).double() for size in (2000, 3000))
    method = Drawn(lambda x: near, lambda x: far)
    images, labels = torch.zeros(1, 1), torch.tensor([1])
    found = classification(method, make_model(), images, labels, samples=2)
    assert found.nll == pytest.approx(2000 + math.log(2), rel=1e-12)
    assert (found.error, found.ece, found.brier) == (1, 1, 2)


def test_two_draws_that_disagree():
    sure = [torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])]
    method = Drawn(*(lambda x, p=p: p.log() for p in sure))
    found = classification(method, make_model(), torch.zeros(2, 1), torch.tensor([0, 0]), 2)
    assert found.nll == pytest.approx(math.log(2) / 2, rel=1e-12)
    assert found.brier == pytest.approx(0.25, rel=1e-12)


def test_progress_counts_every_image_of_every_draw():
    images, labels = data(12)
    for samples, expected in ((0, 12), (1, 12), (3, 36)):
        counted = []
        classification(*make_method("bbb"), images, labels, samples, advance=counted.append)
        assert sum(counted) == expected


def test_the_generator_decides_and_the_global_one_is_left_alone():
    images, labels = data(15)
    before = torch.get_rng_state()
    for name in NAMES:
        method, net = make_method(name)
        runs = [
            classification(method, net, images, labels, 2, torch.Generator().manual_seed(seed))
            for seed in (0, 0, 1)
        ]
        assert runs[0] == runs[1]
        assert (runs[0] == runs[2]) == (name == "plain")
        # Without a generator the result is still reproducible.
        default = [classification(method, net, images, labels, 2) for _ in range(2)]
        assert default[0] == default[1]
    assert torch.equal(torch.get_rng_state(), before)


def test_evaluation_does_not_train():
    images, labels = data(15)
    for name in NAMES:
        method, net = make_method(name)
        before = {key: value.clone() for key, value in net.state_dict().items()}
        for samples in (0, 2):
            classification(method, net, images, labels, samples)
        assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
        assert all(parameter.grad is None for parameter in net.parameters())


# What cannot be


@pytest.mark.parametrize(
    ("probabilities", "labels", "complaint"),
    [
        ((4, 3), [0, 1], r"\[4, 3\] and labels \[2\]"),
        ((4,), [0, 1, 0, 1], r"shape \[4\]"),
        ((2, 3), [[0, 1], [0, 1]], r"labels \[2, 2\]"),
    ],
    ids=["count", "one axis", "labels with two axes"],
)
def test_shapes_that_do_not_fit(probabilities, labels, complaint):
    given_labels = torch.tensor(labels)
    for score in (score_probabilities, calibration_error):
        with pytest.raises(ConfigError, match=complaint):
            score(torch.full(probabilities, 0.5), given_labels)


@pytest.mark.parametrize(("labels", "said"), [([0, 3], "0 to 3"), ([-1, 2], "-1 to 2")])
def test_labels_outside_the_classes(labels, said):
    with pytest.raises(CorpusError, match=f"go from {said}, but .* classes 0 to 2; give"):
        score_probabilities(FOUR[:2], torch.tensor(labels))


def test_nothing_to_evaluate():
    images, labels = data(5)
    for samples in (0, 2):
        with pytest.raises(CorpusError, match="no examples"):
            classification(*make_method("bbb"), images[:0], labels[:0], samples)
    assert class_log_probabilities(make_model(), images[:0]).shape == (0, CLASSES)


def test_numbers_that_cannot_be():
    images, labels = data(5)
    with pytest.raises(ConfigError, match="samples is -1"):
        classification(*make_method("plain"), images, labels, -1)
    with pytest.raises(ConfigError, match="bins is 0"):
        calibration_error(FOUR, FOUR_LABELS, 0)
