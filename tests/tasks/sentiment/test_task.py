import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.data.vocabulary import Vocabulary
from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import KLScale
from bayesrnn.options import from_toml
from bayesrnn.random import RandomStreams
from bayesrnn.runs.config import resolve
from bayesrnn.runs.load import make_method
from bayesrnn.tasks.sentiment.config import RECIPES, SentimentConfig
from bayesrnn.tasks.sentiment.data import Labels, Numbers, Reviews, three_classes
from bayesrnn.tasks.sentiment.evaluate import (
    RatingRow,
    SegmentBoundRow,
    SentimentEvaluation,
    constant_error,
    evaluation_notes,
    row_text,
    text_metrics,
)
from bayesrnn.tasks.sentiment.segments import Segments
from bayesrnn.tasks.sentiment.task import SentimentProblem, SentimentTask, described_reviews
from bayesrnn.uncertainty.draws import Draws

TARGET = Numbers(mean=3.0, sd=0.5)
resolve_sentiment = partial(resolve, SentimentConfig, RECIPES)


@pytest.mark.parametrize("method", METHODS)
def test_a_configuration_survives_its_file(method):
    config = resolve_sentiment({"method": method, "seed": 5, "data": 'a "b".csv', "cell": "gru"})
    assert resolve_sentiment({}, from_toml(config.to_toml(), "test")) == config


def test_the_setting_of_gal_and_ghahramani_is_the_default():
    config = resolve_sentiment({"method": "plain"})
    assert (config.data, config.cell, config.segment) == ("scale", "lstm", 200)
    assert (config.vocabulary_limit, config.hidden, config.layers) == (20_000, 128, 1)
    assert (config.optimizer, config.lr, config.batch_size) == ("adam", 1e-3, 128)


def test_words_are_replaced_in_new_runs_alone():
    """A configuration of an earlier version does not say, and its run replaced none."""
    task = SentimentTask()
    assert task.resolve({}).unknown_words == 1
    assert task.resolve({"unknown_words": 0.25}).unknown_words == 0.25
    new = from_toml(task.resolve({}).to_toml(), "new")
    assert task.resolve({}, new).unknown_words == 1
    del new["unknown_words"]
    assert task.resolve({}, new, saved=True).unknown_words is None


def test_other_words_are_replaced_in_every_epoch():
    words = torch.arange(1, 41)
    segments = Segments.cut(torch.split(words, 10), torch.zeros(4), longest=5)
    common = {"target": TARGET, "data": "made up", "batch_size": 8, "seed": 3}
    problem = SentimentProblem(
        train=segments, valid=segments, method=None, net=None, **common, unknown_words=1.0
    )

    def read(problem, epoch):
        batch = problem.minibatches(epoch)[0]
        return batch.words.flatten().sort().values.tolist()

    first, again, second = (read(problem, epoch) for epoch in (0, 0, 1))
    assert first == again != second
    assert 0 in first
    assert read(replace(problem, unknown_words=0.0), 0) == words.tolist()


def test_the_recipe_of_a_posterior_gives_way_to_what_is_given():
    config = resolve_sentiment({"method": "bbb"})
    assert (config.options["prior"], config.options["kl_weight"]) == ("fitted", 0.006)
    full = resolve_sentiment({"method": "bbb", "kl_weight": 1.0, "prior": "mixture"})
    assert (full.options["prior"], full.options["kl_weight"]) == ("mixture", 1.0)
    assert resolve_sentiment({"method": "sharpened"}).options["kl_weight"] == 0.006


def test_mistakes_in_options():
    with pytest.raises(ConfigError, match="--target is 'rank'; there are: auto, number, label"):
        resolve_sentiment({"method": "plain", "target": "rank"})
    with pytest.raises(ConfigError, match="--segment is 0"):
        resolve_sentiment({"method": "plain", "segment": 0})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"text_column": "a"}, "--text-column"),
        ({"target_column": "a", "target": "label"}, "--target-column and --target label"),
        ({"target": "label"}, "--target label"),
    ],
)
def test_options_of_own_tables_are_refused_for_pang_and_lees_reviews(given, named):
    with pytest.raises(ConfigError, match=f"^{named} cannot go with --data scale"):
        SentimentTask().load(resolve_sentiment({"method": "plain", **given}))


def test_pang_and_lees_ratings_may_be_called_numbers(monkeypatch):
    monkeypatch.delenv("BAYESRNN_DATA", raising=False)
    with pytest.raises(CorpusError, match="needs a data folder"):
        SentimentTask().load(resolve_sentiment({"method": "plain", "target": "number"}))


@pytest.fixture
def reviews():
    words = tuple(f"w{n}" for n in range(20))
    generator = torch.Generator().manual_seed(0)

    def part(count):
        lengths = torch.randint(1, 12, (count,), generator=generator).tolist()
        texts = [torch.randint(20, (length,), generator=generator) for length in lengths]
        targets = 3 + 0.5 * torch.randn(count, generator=generator, dtype=torch.double)
        return Segments.cut(texts, targets, 5)

    return Reviews("own", Vocabulary(words), TARGET, part(40), part(8), part(10))


def problem(reviews, method="plain"):
    """The problem of a small network, with the method and the network."""
    task, streams = SentimentTask(), RandomStreams(1)
    config = resolve_sentiment({"method": method, "hidden": 8, "batch_size": 16})
    made = make_method(config, streams)
    net = task.build(config, task.files(reviews), made, streams)
    return task.problem(config, reviews, made, net, torch.device("cpu")), made, net


def with_targets(reviews, target, values):
    """The same texts, with these training targets again and again."""
    parts = [
        replace(
            part, targets=torch.tensor([values[n % len(values)] for n in range(len(part.targets))])
        )
        for part in (reviews.train, reviews.valid, reviews.test)
    ]
    return Reviews(reviews.name, reviews.vocabulary, target, *parts)


def test_what_is_to_be_learnt_is_said_before_training(reviews, capsys):
    problem(reviews)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("own: 40 texts to train on, 8 to validate with, 10 to test with; ")
    cut = len(reviews.train) + len(reviews.valid) + len(reviews.test)
    assert f"; {cut} segments of up to 200 words; a vocabulary of 20 words; " in said
    low, high = reviews.train.targets.min().item(), reviews.train.targets.max().item()
    assert said.endswith(f"to predict: numbers from {low:g} to {high:g}, mean 3\n")


@pytest.mark.parametrize(
    ("target", "values", "expected"),
    [
        (Numbers(2.0, 0.5), [1.0, 2.0, 3.0], "numbers from 1 to 3, mean 2; if these 3 whole"),
        (Numbers(2.0, 0.5), [1.0, 2.5, 3.0], "numbers from 1 to 3, mean 2"),
        (Numbers(5.5, 1.0), [float(n) for n in range(11)], "numbers from 0 to 10, mean 5.5"),
        (Numbers(0.58, 0.1), [0.0, 1.0, 0.5], "numbers from 0 to 1, mean 0.58"),
        (Labels(("a", "b", "c")), [0, 1, 2], "3 labels: a, b, c"),
        (Labels(tuple("abcdefg")), [0, 1, 2], "7 labels: a, b, c, d, e and 2 more"),
    ],
)
def test_how_what_is_predicted_reads(reviews, target, values, expected):
    found = with_targets(reviews, target, values)
    said = described_reviews(found, 5, may_be_labels=True).split("to predict: ")[1]
    if "whole" in expected:
        assert said.startswith(expected)
        assert said.endswith("give --target label")
        asked = described_reviews(found, 5, may_be_labels=False)
        assert "--target" not in asked, "the user has said what they are"
    else:
        assert said == expected


def test_what_is_predicted_without_reading_is_learnt_from_the_training_texts():
    labels, of_training = Labels(("a", "b", "c")), torch.tensor([0, 1, 1, 2])
    truths = torch.tensor([0, 0, 0, 1, 2])
    assert constant_error(labels, of_training, truths) == 0.8
    tie = torch.tensor([2, 2, 1, 1])
    assert constant_error(labels, tie, truths) == 0.8, "b, the first"
    numbers = constant_error(TARGET, torch.tensor([9.0]), torch.tensor([3.0, 7.0]).double())
    assert numbers == pytest.approx(math.sqrt(8))


def test_what_is_deterministic_in_a_posterior(reviews):
    _, _, net = problem(reviews, "bbb")
    assert isinstance(net, Bayesian)
    assert "log_noise" not in net.names
    assert "output.bias" not in net.names
    assert set(net.names) >= {"embedding.weight", "output.weight", "recurrent.weight_hh_l0"}


def test_labels_have_no_noise(reviews):
    parts = {
        name: replace(part, targets=torch.arange(len(part.targets)) % 3)
        for name, part in vars(reviews).items()
        if isinstance(part, Segments)
    }
    labels = replace(reviews, target=Labels(("a", "b", "c")), **parts)
    found, _, net = problem(labels, "bbb")
    assert found.loss_metrics(0.7) == {"nll": 0.7}
    assert net(*labels.train.batch(torch.arange(4))[:2]).shape == (4, 3)
    assert set(found.validate()) >= {"error", "nll", "ece", "segment_error", "train_error"}


def test_the_loss_of_a_minibatch_and_how_it_is_shown(reviews):
    found, method, net = problem(reviews)
    batch = found.minibatches(0)[0]
    loss = method.loss(net, found.objective(batch, None), KLScale(1.0, 1.0)).total
    with torch.no_grad():
        mean, log_variance = net(batch.words, batch.lengths).T
    normal = torch.distributions.Normal(mean, (log_variance / 2).exp())
    expected = -normal.log_prob(((batch.targets - 3) / 0.5).float()).mean()
    torch.testing.assert_close(loss.detach(), expected)
    # The density of a rating in its own unit is twice that of the standardised one.
    assert found.loss_metrics(1.0)["nll"] == pytest.approx(1 - math.log(2))


def test_validation_is_with_the_mean_weights_on_both_parts(reviews):
    found, method, net = problem(reviews, "bbb")
    shown = found.validate()
    assert shown == found.validate(), "nothing is drawn"
    draws = Draws(method, net, 0, torch.Generator())
    seen = text_metrics(draws, reviews.train.first_texts(8), TARGET, "own")
    valid = text_metrics(draws, reviews.valid, TARGET, "own")
    assert shown["train_rmse"] == seen.rmse
    assert (shown["rmse"], shown["nll"]) == (valid.rmse, valid.nll)
    assert valid.class_error is None


def test_the_error_in_three_classes_is_for_pang_and_lees_ratings(reviews):
    _, method, net = problem(reviews)
    found = text_metrics(Draws(method, net, 0, torch.Generator()), reviews.test, TARGET, "scale")
    truths = three_classes(reviews.test.targets)
    assert found.class_error == (truths != 2).double().mean().item(), "all near 3: class 2"


def test_how_metrics_read():
    numbers = {
        "inference": "mean",
        "label": "mean weights",
        "samples": 0,
        "rmse": 0.13579,
        "segment_rmse": 0.15,
        "mae": 0.11,
        "nll": -0.5,
        "coverage": [0.5, 0.75, 0.875, 1.0],
        "width": 0.41,
        "examples": 1001,
        "segments": 2626,
    }
    text = row_text(RatingRow(**numbers))
    assert text.startswith("rmse 0.1358 (by segment 0.1500), mean absolute error 0.1100, nll -0.5")
    assert "50%: 50.0%, 80%: 75.0%, 90%: 87.5%, 95%: 100.0%; mean width of the 90%" in text
    assert "(1,001 texts, 2,626 segments)" in text
    assert "error in 3 classes 35.00%" in row_text(RatingRow(**numbers, class_error=0.35))
    bound = SegmentBoundRow(
        inference="bound", label="bound", samples=0, nll=1.5, kl=0.25, segments=7
    )
    assert row_text(bound) == "nll <= 1.5000 a segment, 0.2500 of it KL (7 segments)"
    common = {"task": "sentiment", "method": "plain", "split": "test", "step": 1, "seed": 1}
    common |= {"data": "own", "rows": (bound,), "asked": bound}
    rated = SentimentEvaluation(**common, constant_rmse=0.18171, constant_error=None)
    assert "rmse 0.1817" in evaluation_notes(rated)[1]
    labelled = SentimentEvaluation(**common, constant_rmse=None, constant_error=0.25)
    constant = evaluation_notes(labelled)[1]
    assert "most frequent label of the training texts for every text: error 25.00%" in constant
