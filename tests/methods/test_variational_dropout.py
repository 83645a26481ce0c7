import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bayesrnn.data.vocabulary import Vocabulary, vocabulary_text
from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, KLScale, Outcome
from bayesrnn.methods.variational_dropout import (
    VariationalDropout,
    VariationalDropoutOptions,
    divergence,
)
from bayesrnn.nn.masked import draw_mask
from bayesrnn.random import RandomStreams
from bayesrnn.tasks import TASKS
from bayesrnn.tasks.sentiment.data import Labels, target_text

HINTS = Hints(before_recurrent=("input_dropout",), after_dropout=("output",))
RATES = {"dropout": 0.4, "recurrent_dropout": 0.3, "embedding_dropout": 0.2}


def make_method(seed=0, **options):
    return VariationalDropout(VariationalDropoutOptions(**options), RandomStreams(seed))


def test_it_is_registered():
    assert METHODS["variational-dropout"] is VariationalDropout


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_kl_is_that_of_the_formula_with_its_gradient(make_model, objective, cell, tied):
    method = make_method(length_scale=0.7, **RATES)
    net = method.build(make_model(cell=cell, tied=tied).double(), HINTS)
    loss = method.loss(net, objective, KLScale(0.03, 1.0))
    # (l^2 / 2) ||M||^2 / (1 - p) with p of what each matrix is multiplied by.
    recurrent = net.recurrent
    expected = net.embedding.weight.square().sum() / 0.8
    for layer in range(2):
        expected = expected + getattr(recurrent, f"weight_ih_l{layer}").square().sum() / 0.6
        expected = expected + getattr(recurrent, f"weight_hh_l{layer}").square().sum() / 0.7
        expected = expected + getattr(recurrent, f"bias_ih_l{layer}").square().sum()
        if cell == "gru":  # frozen elsewhere
            expected = expected + getattr(recurrent, f"bias_hh_l{layer}").square().sum()
    if not tied:
        expected = expected + net.output.weight.square().sum() / 0.6
    expected = (expected + net.output.bias.square().sum()) * 0.7**2 / 2
    found = divergence(net, 0.7, HINTS.after_dropout)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0.0)
    weights = [parameter for parameter in net.parameters() if parameter.requires_grad]
    mine, theirs = (torch.autograd.grad(3 * total, weights) for total in (found, expected))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)
    assert loss.terms.keys() == {"nll", "kl"}
    assert loss.terms["kl"] == pytest.approx(0.03 * expected.item(), rel=1e-12)
    assert loss.total.item() == pytest.approx(sum(loss.terms.values()), rel=1e-12)
    frozen = [parameter for parameter in net.parameters() if not parameter.requires_grad]
    loss.total.backward()
    assert all(parameter.grad is None for parameter in frozen)


def test_the_formula_is_the_divergence_of_spikes_up_to_a_constant():
    # KL[q || p] by Monte Carlo for one row of K weights with the masks that are in use, so that
    # q = p N(0, s^2) + (1 - p) N(m / (1 - p), s^2).
    rate, spread, scale, count = 0.3, 0.01, 1.5, 200_000
    generator = torch.Generator().manual_seed(0)

    def divergence_of(mean):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            masks = draw_mask((count, 1), rate, "bernoulli", mean)
        noise = torch.randn(count, len(mean), generator=generator, dtype=torch.double)
        w = masks * mean + spread * noise

        def log_normal(x, sigma):
            return (-0.5 * (x / sigma) ** 2 - math.log(sigma * math.sqrt(2 * math.pi))).sum(-1)

        parts = [
            log_normal(w, spread) + math.log(rate),
            log_normal(w - mean / (1 - rate), spread) + math.log(1 - rate),
        ]
        return (torch.logaddexp(*parts) - log_normal(w, 1 / scale)).mean().item()

    one, other = torch.tensor([0.5, -1.0]).double(), torch.tensor([1.5, 2.0]).double()
    formula = [scale**2 / 2 * mean.square().sum().item() / (1 - rate) for mean in (one, other)]
    difference = divergence_of(other) - divergence_of(one)
    # That of a kept row is l^2 / 2 ||M||^2 / (1 - p)^2; it is kept with probability 1 - p.
    of_kept = scale**2 / 2 * other.square().sum().item() / (1 - rate) ** 2
    error = of_kept * math.sqrt(rate * (1 - rate) / count)
    assert abs(difference - (formula[1] - formula[0])) < 8 * error


def test_what_is_charged_in_a_network_of_the_users():
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Dropout(0.0), nn.Linear(4, 2)).double()
    net = make_method(dropout=0.25).build(net, Hints())
    first, norm, _, last = net
    with torch.no_grad():
        norm.weight.fill_(5.0)
    # Nothing is dropped before the first layer.
    expected = first.weight.square().sum() + last.weight.square().sum() / 0.75
    expected = expected + first.bias.square().sum() + last.bias.square().sum()
    torch.testing.assert_close(divergence(net, 2.0), 2 * expected)
    # Nothing is dropped before these.
    net = make_method(embedding_dropout=0.0).build(
        nn.ModuleList([nn.Embedding(3, 2), nn.GRU(2, 2), nn.Linear(2, 2)]).double(), Hints()
    )
    embedding, recurrent, linear = net
    expected = embedding.weight.square().sum() + linear.weight.square().sum()
    expected = expected + linear.bias.square().sum()
    for name, parameter in recurrent.named_parameters():
        expected = expected + (2.0 if "weight" in name else 1.0) * parameter.square().sum()
    torch.testing.assert_close(divergence(net, 2.0), 2 * expected)


def test_only_weights_behind_a_mask_are_charged_for_it():
    """Of each task's network; what an image is turned into a state by has no mask before it."""
    sizes = {"hidden": 6, "layers": 2, "cell": "lstm", "init": None, "tied": False}
    config = SimpleNamespace(**sizes, images="mnist", feature_norm=1.0, noise=None)
    files = {
        "vocabulary.txt": vocabulary_text(Vocabulary(("<eos>", "<unk>", "a"))),
        "target.json": target_text(Labels(("bad", "good"))),
    }
    masked = {
        TASKS["captions"]: {"output.weight": True, "image.weight": False},
        TASKS["lm"]: {"output.weight": True},
        TASKS["sentiment"]: {"output.weight": True},
        TASKS["mnist"]: {"output.weight": True, "hidden.0.weight": False, "hidden.3.weight": True},
    }
    for task, expected in masked.items():
        method = make_method(dropout=0.2, length_scale=1.0)
        net = task.build(config, files, method, RandomStreams(0))
        loss = method.loss(net, lambda _: Outcome(torch.zeros(()), None), KLScale(1.0, 1.0))
        loss.total.backward()
        linear = {
            f"{name}.weight": layer.weight
            for name, layer in net.named_modules()
            if isinstance(layer, nn.Linear)
        }
        assert linear.keys() == expected.keys()
        for name, weight in linear.items():
            factor = 1 / 0.8 if expected[name] else 1.0
            torch.testing.assert_close(weight.grad, factor * weight.detach())


def test_length_scale_zero_charges_nothing(make_model, objective):
    method = make_method(length_scale=0.0)
    loss = method.loss(method.build(make_model(), HINTS), objective, KLScale(1.0, 1.0))
    assert loss.terms["kl"] == 0.0
    assert loss.total.item() == loss.terms["nll"]


@pytest.mark.parametrize("scale", [-1.0, math.inf, math.nan])
def test_impossible_length_scales(scale):
    with pytest.raises(ConfigError, match="--length-scale"):
        make_method(length_scale=scale)


@pytest.mark.parametrize("gates", ["tied", "untied"])
def test_gates_go_to_the_layer(make_model, gates):
    net = make_method(gates=gates).build(make_model(), HINTS)
    assert net.recurrent.style.gates == gates
    assert not net.recurrent.style.every_step


def test_a_step_by_hand(make_model, words):
    """The loss with all four kinds of masks, drawn in the order in which the data flows."""
    method = make_method(length_scale=0.0, **RATES)
    model = make_model(layers=1).double()
    net = method.build(model, HINTS)

    def objective(network):
        logits, state = network(words[:-1], None)
        return F.cross_entropy(logits.flatten(0, 1), words[1:].flatten()), state

    found = method.loss(net, objective, KLScale(1.0, 1.0)).total.item()
    plain = make_model(layers=1).double()
    batch, vocabulary, hidden = words.shape[1], 9, 5

    def mask(rate, *shape):
        return torch.empty(shape).double().bernoulli_(1 - rate) / (1 - rate)

    with RandomStreams(0).as_default("dropout"):
        of_words, of_inputs = mask(0.2, batch, vocabulary), mask(0.4, batch, hidden)
        of_states, of_outputs = mask(0.3, batch, hidden), mask(0.4, batch, hidden)
    losses = []
    for column in range(batch):
        h = c = torch.zeros(hidden).double()
        for time in range(len(words) - 1):
            word = words[time, column]
            x = plain.embedding.weight[word] * of_words[column, word] * of_inputs[column]
            gates = plain.recurrent.weight_ih_l0 @ x + plain.recurrent.bias_ih_l0
            gates = gates + plain.recurrent.weight_hh_l0 @ (h * of_states[column])
            i, f, g, o = gates.chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            logits = plain.output.weight @ (h * of_outputs[column]) + plain.output.bias
            losses.append(-logits.log_softmax(-1)[words[time + 1, column]].item())
    assert found == pytest.approx(sum(losses) / len(losses), rel=1e-12)
