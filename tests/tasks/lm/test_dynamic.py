"""Dynamic evaluation, against a slow and literal one, and for what no score may depend on."""

import math
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bayesrnn.data.batches import TrainingBatches
from bayesrnn.errors import BayesRNNError, ConfigError, TrainingDivergedError
from bayesrnn.tasks.lm.dynamic import (
    GradientDescent,
    RootMeanSquare,
    dynamic_log_probs,
    gradient_statistics,
)
from bayesrnn.tasks.lm.likelihood import target_log_probs
from bayesrnn.tasks.lm.model import LanguageModel

from .literal_dynamic import (
    SEGMENT,
    frozen,
    literal,
    literal_descent,
    literal_rms,
    trainable,
    word_by_word,
)

VOCABULARY = 6
KINDS = [("lstm", False), ("gru", False), ("rnn", False), ("lstm", True)]


def make_model(cell="lstm", tied=False):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LanguageModel(VOCABULARY, 5, 2, cell, tied).double()
    model.initialise(0.8, torch.Generator().manual_seed(0))
    return model.eval()


def text(length, seed=0):
    return torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed))


def training_batches():
    return TrainingBatches(text(90, seed=1), 3, SEGMENT)


def make_rule(name, model):
    if name == "sgd":
        return GradientDescent(lr=0.3, clip=1.0)
    return RootMeanSquare(0.02, 0.1, gradient_statistics(model, training_batches()))


# What a score may depend on.


@pytest.mark.parametrize("rule_name", ["sgd", "rms"])
def test_no_score_depends_on_later_tokens(rule_name):
    for place in (1, 3, 4, 5, 6, 8, 9, 12, 17, 18):
        model, stream = make_model(), text(19)
        rule = make_rule(rule_name, model)
        before = dynamic_log_probs(model, stream, rule, SEGMENT)
        for shift in range(1, VOCABULARY):
            changed = stream.clone()
            changed[place:] = (changed[place:] + shift) % VOCABULARY
            after = dynamic_log_probs(model, changed, rule, SEGMENT)
            # Score i is that of token i + 1.
            assert torch.equal(after[: place - 1], before[: place - 1])
            assert not torch.equal(after[place - 1 :], before[place - 1 :])


@pytest.mark.parametrize("rule_name", ["sgd", "rms"])
def test_the_probabilities_of_all_words_at_a_place_add_up_to_one(rule_name):
    for place in (1, 4, 5, 6, 8, 9, 12, 18):
        # If a score saw its own token, each word would be scored by weights that have learnt it.
        model, stream = make_model(), text(19)
        rule = make_rule(rule_name, model)
        total = 0.0
        for word in range(VOCABULARY):
            stream[place] = word
            total += dynamic_log_probs(model, stream, rule, SEGMENT)[place - 1].exp().item()
        assert total == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("rule_name", ["sgd", "rms"])
def test_a_token_is_learnt_from_once_its_segment_is_over(rule_name):
    # A table of transitions has no state: what its scores gain, they gain from learning.
    class Stateless(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.zeros(VOCABULARY, VOCABULARY, dtype=torch.double))

        def forward(self, words, state):
            return self.table[words], state

    model, stream = Stateless(), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2])
    rule = make_rule(rule_name, model)
    found = dynamic_log_probs(model, stream, rule, SEGMENT)
    uniform = torch.full((SEGMENT,), -math.log(VOCABULARY), dtype=torch.double)
    torch.testing.assert_close(found[:SEGMENT], uniform)
    assert (found[SEGMENT:] > -math.log(VOCABULARY) + 1e-3).all()


# Against the literal computation.


@pytest.mark.parametrize(("cell", "tied"), KINDS)
def test_gradient_descent_is_literally_so(cell, tied):
    for lr, clip in ((0.3, 0.5), (0.3, 100.0), (0.05, 0), (0.05, None)):
        model, stream, norms = make_model(cell, tied), text(23), []
        expected = literal(model, stream, literal_descent(lr, clip or math.inf, norms))
        found = dynamic_log_probs(model, stream, GradientDescent(lr, clip), SEGMENT)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
        assert all(norm > 0.5 for norm in norms)  # the first case always clips,
        assert all(norm < 100 for norm in norms)  # the second never


def test_gradients_divided_by_how_often_a_word_is_read():
    """An option of torch's embedding that has no sparse gradients; once is as without it."""
    model, stream, rule = make_model(), text(23), GradientDescent(0.3, 0.5)
    expected = dynamic_log_probs(model, stream, rule, segment=1)
    model.embedding.scale_grad_by_freq = True
    found = dynamic_log_probs(model, stream, rule, segment=1)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("cell", "tied"), KINDS)
@pytest.mark.parametrize(
    ("decay", "epsilon", "capped"), [(0.0, 1e-4, False), (0.02, 0.5, False), (0.6, 1e-2, True)]
)
def test_root_mean_square_is_literally_so(cell, tied, decay, epsilon, capped):
    model, stream, shares = make_model(cell, tied), text(23), []
    statistics = gradient_statistics(model, training_batches())
    step = literal_rms(0.02, decay, epsilon, statistics, shares)
    found = dynamic_log_probs(
        model, stream, RootMeanSquare(0.02, decay, statistics, epsilon), SEGMENT
    )
    torch.testing.assert_close(found, literal(model, stream, step), rtol=1e-10, atol=1e-10)
    assert (max(shares) > 1) == capped


@pytest.mark.parametrize("rule_name", ["sgd", "rms"])
def test_every_length_of_segment(rule_name):
    for segment in (1, 2, 5, 21, 22, 23, 50):
        model, stream = make_model(), text(23)
        rule = make_rule(rule_name, model)
        step = (
            literal_descent(rule.lr, rule.clip)
            if isinstance(rule, GradientDescent)
            else literal_rms(rule.lr, rule.decay, rule.epsilon, rule.statistics)
        )
        counted = []
        found = dynamic_log_probs(model, stream, rule, segment, counted.append)
        expected = literal(model, stream, step, segment)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
        assert sum(counted) == len(found) == 22
        assert len(counted) == math.ceil(22 / segment)
        if segment >= 22:
            static = target_log_probs(model, stream)
            torch.testing.assert_close(found, static, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rule_name", ["sgd", "rms"])
def test_single_precision(rule_name):
    stream, found = text(40), {}
    for dtype in (torch.float, torch.double):
        model = make_model().to(dtype)
        found[dtype] = dynamic_log_probs(model, stream, make_rule(rule_name, model), SEGMENT)
        assert found[dtype].dtype is dtype
    torch.testing.assert_close(
        found[torch.float].double(), found[torch.double], rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize(("cell", "tied"), KINDS)
def test_without_a_step_it_is_the_static_score(cell, tied):
    model, stream = make_model(cell, tied), text(30)
    static = target_log_probs(model, stream)
    statistics = gradient_statistics(model, training_batches())
    rules = [GradientDescent(1e-30)] + [
        RootMeanSquare(1e-30, decay, statistics) for decay in (0, 1)
    ]
    for rule in rules:
        found = dynamic_log_probs(model, stream, rule, SEGMENT)
        torch.testing.assert_close(found, static, rtol=1e-12, atol=1e-12)


def test_a_full_pull_keeps_the_latest_step_only():
    # With equal statistics and decay 1, each update starts from the trained weights.
    model, stream = make_model(), text(30)
    equal = {name: torch.full_like(weight, 0.04) for name, weight in trainable(model).items()}
    found = dynamic_log_probs(model, stream, RootMeanSquare(0.03, 1.0, equal, 0.1), SEGMENT)

    def step(trained, weights, gradients):
        return {name: trained[name] - 0.1 * gradients[name] for name in weights}

    torch.testing.assert_close(found, literal(model, stream, step), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("cell", "tied"), KINDS)
def test_statistics_against_a_direct_computation(cell, tied):
    model, batches, state, squares = make_model(cell, tied), list(training_batches()), None, []
    for inputs, targets in batches:
        weights = {
            name: weight.detach().requires_grad_() for name, weight in trainable(model).items()
        }
        found, state = word_by_word(model, weights, inputs, targets, state)
        state = frozen(state)
        loss = -sum(sum(score[row] for score in found) for row in range(3)) / 3
        squares.append([gradient**2 for gradient in torch.autograd.grad(loss, weights.values())])
    counted = []
    statistics = gradient_statistics(model, iter(batches), counted.append)
    assert counted == [3 * SEGMENT] * len(batches)
    assert list(statistics) == list(trainable(model))
    for found, *each in zip(statistics.values(), *squares, strict=True):
        assert not found.requires_grad
        torch.testing.assert_close(found, sum(each) / len(batches), rtol=1e-10, atol=1e-14)


# What it is for.


@pytest.mark.parametrize("rule_name", ["sgd", "rms"])
def test_a_repeated_pattern_is_learnt(rule_name):
    model, known = make_model().float(), torch.arange(VOCABULARY).repeat(150)
    optimiser = torch.optim.Adam(trainable(model).values(), lr=0.02)
    for inputs, targets in TrainingBatches(known, 1, SEGMENT):
        logits, _ = model(inputs)
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        optimiser.step()
        optimiser.zero_grad()
    stream = torch.tensor([3, 0, 4, 1, 1, 5, 2]).repeat(30)
    rule = GradientDescent(0.1)
    if rule_name == "rms":
        statistics = gradient_statistics(model, TrainingBatches(known, 4, SEGMENT))
        rule = RootMeanSquare(0.003, 0.001, statistics)
    trained = -target_log_probs(model, known).mean().item()
    static = -target_log_probs(model, stream).mean().item()
    dynamic = -dynamic_log_probs(model, stream, rule).mean().item()
    assert trained < 0.1
    assert static > math.log(VOCABULARY)  # to guess would be better
    assert dynamic < static - math.log(2)  # half the perplexity, or better


# What it leaves alone.


@pytest.mark.parametrize("rule_name", ["sgd", "rms"])
@pytest.mark.parametrize("training", [True, False])
def test_the_module_is_left_as_it_was(rule_name, training):
    model = make_model(tied=True).train(training)
    model.input_dropout.p, model.recurrent.dropout = 0.3, 0.4
    model.embedding.eval()
    model.output.bias.grad = torch.ones(VOCABULARY, dtype=torch.double)

    def look():
        return (
            {name: value.clone() for name, value in model.state_dict().items()},
            {name: weight.requires_grad for name, weight in model.named_parameters()},
            {name: layer.training for name, layer in model.named_modules()},
            {name: weight.grad is None for name, weight in model.named_parameters()},
            (model.input_dropout.p, model.output_dropout.p, model.recurrent.dropout),
        )

    before = look()
    dynamic_log_probs(model, text(20), make_rule(rule_name, model), SEGMENT)
    after = look()
    assert all(torch.equal(value, after[0][name]) for name, value in before[0].items())
    assert before[1:] == after[1:]
    assert torch.equal(model.output.bias.grad, torch.ones(VOCABULARY, dtype=torch.double))


@pytest.mark.parametrize("rule_name", ["sgd", "rms"])
def test_the_callers_gradient_mode_does_not_matter(rule_name):
    model, stream = make_model(), text(20)
    expected = dynamic_log_probs(model, stream, make_rule(rule_name, model), SEGMENT)
    assert not expected.requires_grad
    assert torch.is_grad_enabled()
    with torch.no_grad():
        found = dynamic_log_probs(model, stream, make_rule(rule_name, model), SEGMENT)
        assert not torch.is_grad_enabled()
    assert torch.equal(found, expected)


class Noisy(LanguageModel):
    """With a dropout that is not a layer."""

    def forward(self, words, state=None):
        logits, state = super().forward(words, state)
        return F.dropout(logits, 0.5, self.training), state


@pytest.mark.parametrize("rule_name", ["sgd", "rms"])
@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_dropped(rule_name, training):
    clean, stream = make_model(), text(20)
    noisy = Noisy(VOCABULARY, 5, 2).double().train(training)
    noisy.load_state_dict(clean.state_dict())
    noisy.input_dropout.p = noisy.output_dropout.p = noisy.recurrent.dropout = 0.5
    before = torch.get_rng_state()
    found = dynamic_log_probs(noisy, stream, make_rule(rule_name, noisy), SEGMENT)
    assert torch.equal(torch.get_rng_state(), before)
    expected = dynamic_log_probs(clean, stream, make_rule(rule_name, clean), SEGMENT)
    assert torch.equal(found, expected)


def test_the_copy_is_in_a_mode_that_cudnn_can_differentiate():
    seen = []

    class Watched(LanguageModel):
        def forward(self, words, state=None):
            seen.append((self.recurrent.training, self.recurrent.dropout, self.training))
            return super().forward(words, state)

    model = Watched(VOCABULARY, 5, 2).eval()
    dynamic_log_probs(model, text(20), GradientDescent(), SEGMENT)
    gradient_statistics(model, training_batches())
    assert set(seen) == {(True, 0.0, False)}


def test_weights_that_are_fixed_or_unused():
    model, stream = make_model(), text(20)
    model.embedding.weight.requires_grad_(False)
    assert not {"embedding.weight", "recurrent.bias_hh_l0"} & set(trainable(model))
    statistics = gradient_statistics(model, training_batches())
    rules = [GradientDescent(0.3), RootMeanSquare(0.02, 0, statistics)]
    steps = [literal_descent(0.3, 5.0), literal_rms(0.02, 0, 1e-4, statistics)]
    for rule, step in zip(rules, steps, strict=True):
        found = dynamic_log_probs(model, stream, rule, SEGMENT)
        torch.testing.assert_close(found, literal(model, stream, step), rtol=1e-10, atol=1e-10)
    model.unused = nn.Parameter(torch.ones(3, dtype=torch.double))
    statistics = gradient_statistics(model, training_batches())
    assert not statistics["unused"].any()
    rules[1] = RootMeanSquare(0.02, 0, statistics)
    for rule, step in zip(rules, steps, strict=True):
        found = dynamic_log_probs(model, stream, rule, SEGMENT)
        del model.unused
        torch.testing.assert_close(found, literal(model, stream, step), rtol=1e-10, atol=1e-10)
        model.unused = nn.Parameter(torch.ones(3, dtype=torch.double))


# Mistakes.


def test_a_text_too_short():
    for length in (0, 1):
        with pytest.raises(BayesRNNError, match="token"):
            dynamic_log_probs(make_model(), text(length), GradientDescent())


def test_statistics_that_cannot_work():
    model = make_model()
    good = gradient_statistics(model, training_batches())
    for number in (0.0, math.nan, math.inf):
        bad = {name: torch.full_like(value, number) for name, value in good.items()}
        with pytest.raises(ConfigError, match="a mean of"):
            dynamic_log_probs(model, text(9), RootMeanSquare(0.1, 0.1, bad))


def test_divergence_is_reported():
    model = make_model()
    with pytest.raises(
        TrainingDivergedError, match=r"at word \d+ with lr 1e\+09: .* became .*; .*lr"
    ) as seen:
        dynamic_log_probs(model, text(40), GradientDescent(1e9, clip=None), SEGMENT)
    word = int(re.search(r"word (\d+)", str(seen.value))[1])
    assert word > 1
    assert word % SEGMENT == 1  # the first of a segment
    # Not the fault of the learning rate.
    nn.init.constant_(model.output.bias, math.nan)
    with pytest.raises(TrainingDivergedError, match="its loss is nan from the start"):
        dynamic_log_probs(model, text(20), GradientDescent(), SEGMENT)


def test_rules_can_be_compared_and_shown():
    statistics = {"weight": torch.ones(3)}
    assert RootMeanSquare(0.1, 0.2, statistics) == RootMeanSquare(0.1, 0.2, {})
    assert "tensor" not in repr(RootMeanSquare(0.1, 0.2, statistics))
    assert len({RootMeanSquare(0.1, 0.2, statistics), GradientDescent(), GradientDescent(0.1)}) == 2
