"""br.metrics, against scikit-learn, torchmetrics and closed forms."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal

import bayesrnn as br
from bayesrnn.errors import BayesRNNError, ConfigError

NAN = float("nan")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def classes():
    generator = seeded()
    probabilities = (2 * torch.randn(200, 4, generator=generator)).softmax(-1)
    return probabilities, torch.multinomial(probabilities, 1, generator=generator)[:, 0]


@pytest.fixture
def answers():
    generator = seeded(1)
    probabilities = torch.rand(300, generator=generator)
    return probabilities, (torch.rand(300, generator=generator) < probabilities**2).long()


def test_classes_as_scikit_learn_scores_them(classes):
    of = pytest.importorskip("sklearn.metrics", reason="the extra `digits` brings scikit-learn")
    probabilities, labels = classes
    exact = probabilities.double() / probabilities.double().sum(-1, keepdim=True)
    assert br.metrics.nll(exact, labels) == pytest.approx(of.log_loss(labels, exact))
    found = br.metrics.accuracy(probabilities, labels)
    assert found == pytest.approx(of.accuracy_score(labels, probabilities.argmax(-1)))
    corners = nn.functional.one_hot(labels)
    expected = (probabilities.double() - corners).square().sum(-1).mean().item()
    assert br.metrics.brier(probabilities, labels) == pytest.approx(expected)


def test_calibration_error_is_that_of_torchmetrics(classes, answers):
    of = pytest.importorskip("torchmetrics.functional.classification", reason="an extra of `dev`")
    for bins in (5, 15):
        expected = of.multiclass_calibration_error(*classes, num_classes=4, n_bins=bins).item()
        assert br.metrics.calibration_error(*classes, bins=bins) == pytest.approx(expected)
    # Of yes or no, the confidence is that of the answer, as with two classes.
    two = torch.stack([1 - answers[0], answers[0]], -1)
    expected = of.multiclass_calibration_error(two, answers[1], num_classes=2, n_bins=15).item()
    assert br.metrics.calibration_error(*answers) == pytest.approx(expected, rel=1e-5)
    assert br.metrics.calibration_error(*answers, bins=7, equal_mass=True) < 0.5


def test_answers_of_yes_or_no_as_scikit_learn_scores_them(answers):
    of = pytest.importorskip("sklearn.metrics", reason="the extra `digits` brings scikit-learn")
    probabilities, labels = answers
    assert br.metrics.brier(*answers) == pytest.approx(of.brier_score_loss(labels, probabilities))
    assert br.metrics.nll(*answers) == pytest.approx(of.log_loss(labels, probabilities.double()))
    assert br.metrics.auroc(*answers) == pytest.approx(of.roc_auc_score(labels, probabilities))
    expected = of.average_precision_score(labels, probabilities)
    assert br.metrics.average_precision(*answers) == pytest.approx(expected)
    false, true, _ = of.roc_curve(labels, probabilities, drop_intermediate=False)
    assert br.metrics.fpr95(*answers) == pytest.approx(false[true >= 0.95].min())


def test_aurc_by_counting():
    # From the surest on: risks 0, 1/2, 1/3, 2/4.
    found = br.metrics.aurc([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1])
    assert found == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)


def test_crps_of_a_normal_distribution_is_the_integral_of_its_definition():
    x = torch.linspace(-30, 30, 60001, dtype=torch.double)
    mean, sd, truth = torch.tensor([0.0, 1.0, -2.0]), torch.tensor([1.0, 2.0, 0.5]), [0.5, 3.0, -2]
    expected = [
        torch.trapezoid((Normal(m, s).cdf(x) - (x >= y).double()).square(), x).item()
        for m, s, y in zip(mean.double(), sd.double(), truth, strict=True)
    ]
    found = br.metrics.crps_normal(mean, sd, truth)
    assert found == pytest.approx(np.mean(expected), abs=1e-3)
    assert br.metrics.crps_normal(mean, 0, truth) == pytest.approx((0.5 + 2 + 0) / 3)
    # However far, without a doubt it is the absolute error.
    assert br.metrics.crps_normal([0.0, 0.0], [0.0, 1e-310], [3e8, -1e300]) == pytest.approx(5e299)


def test_crps_of_samples_is_the_mean_over_pairs_and_tends_to_that_of_the_distribution():
    samples = torch.randn(6, 3, generator=seeded())
    truths = torch.tensor([0.1, -1.0, 2.0])
    pairs = (samples[:, None] - samples[None]).abs().sum((0, 1)) / (6 * 5)
    expected = ((samples - truths).abs().mean(0) - pairs / 2).mean().item()
    assert br.metrics.crps(samples, truths) == pytest.approx(expected, rel=1e-5)
    many = torch.randn(20000, 3, generator=seeded())
    exact = br.metrics.crps_normal(torch.zeros(3), 1.0, truths)
    assert br.metrics.crps(many, truths) == pytest.approx(exact, rel=0.02)
    assert br.metrics.crps(samples[:1], samples[0] + 2) == pytest.approx(2)


def test_what_predict_returns_is_taken_as_it_is(classes):
    torch.manual_seed(0)
    x = torch.randn(50, 4)
    found = br.predict(br.Bayesian(nn.Linear(4, 3)), x, generator=seeded())
    labels = torch.arange(50) % 3
    assert br.metrics.nll(found, labels) == br.metrics.nll(found.mean, labels)
    assert 0 < br.metrics.calibration_error(found, labels) < 1
    by_axes = br.metrics.brier(found.mean.view(5, 10, 3), labels.view(5, 10))
    assert by_axes == br.metrics.brier(found, labels)
    net = br.Bayesian(nn.Linear(4, 1))
    numbers = br.predict(net, x, samples=4, generator=seeded(), head=br.Regression(noise=0.3))
    y = net.eval()(x).detach()
    expected = -numbers.log_density(y).mean().item()
    assert br.metrics.nll(numbers, y) == pytest.approx(expected, rel=1e-5)
    low, high = numbers.interval(0.5)
    inside = ((low <= y) & (y <= high)).float().mean().item()
    assert br.metrics.coverage(low, high, y) == pytest.approx(inside)


@pytest.mark.parametrize(
    ("name", "given", "match"),
    [
        ("nll", ([[0.5, 0.5]], [0, 1]), r"shape \[1, 2\] and labels \[2\]"),
        ("nll", ([[0.5, 0.5]], [2]), "labels go from 2 to 2"),
        ("nll", ("text", [2]), "a str is given, not numbers"),
        ("accuracy", ([], []), "at least one"),
        ("auroc", ([0.1, 0.2], [1, 1]), "some of each"),
        ("auroc", ([0.1, 0.2], [[0, 1]]), r"labels has the shape \[1, 2\]"),
        ("aurc", ([0.1, 0.2], [1]), "loss has the shape"),
        ("crps", ([[0.1, 0.2]], [0.1]), r"\[draws, \.\.\.\]"),
        ("crps", (3.0, 1.0), r"\[draws, \.\.\.\]"),
        ("crps_normal", ([0.1], -1.0, [0.2]), "below 0"),
        ("crps_normal", ([1.0, 2.0], [1.0] * 3, [0.0, 0.0]), r"sd has the shape \[3\]"),
        ("brier", ([0, 1], [0.2, 0.9]), "labels come second and are whole numbers"),
        ("accuracy", ([[0.2, 0.8]], [0.5]), "labels come second"),
        ("calibration_error", ([[NAN, 0.8]], [1]), "1 of 2 numbers are NaN"),
        ("auroc", ([NAN, 1.0], [0, 1]), "1 of 2 numbers are NaN"),
        ("crps", ([[NAN], [1.0]], [0.0]), "numbers are NaN"),
        ("coverage", ([NAN], [1.0], [0.0]), "numbers are NaN"),
        ("coverage", ([0.1], [0.2], [[0.1]]), "truths has the shape"),
    ],
)
def test_mistakes(name, given, match):
    with pytest.raises(BayesRNNError, match=match):
        getattr(br.metrics, name)(*given)


def test_a_regression_is_not_compared_with_numbers_of_another_shape():
    net = br.Bayesian(nn.Linear(4, 1))
    found = br.predict(net, torch.zeros(5, 4), samples=2, head=br.Regression(noise=0.3))
    with pytest.raises(ConfigError, match=r"\[5\] where \[5, 1\] is needed"):
        br.metrics.nll(found, torch.zeros(5))
