import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bayesrnn.nn.recurrent import CELLS
from bayesrnn.tasks.lm.model import LanguageModel

VOCABULARY, HIDDEN = 11, 6


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("cell", CELLS)
def test_shapes(cell, layers, tied):
    model = LanguageModel(VOCABULARY, HIDDEN, layers, cell, tied)
    logits, state = model(torch.randint(VOCABULARY, (5, 2)))
    assert logits.shape == (5, 2, VOCABULARY)
    for part in state if cell == "lstm" else [state]:
        assert part.shape == (layers, 2, HIDDEN)


@pytest.mark.parametrize("cell", CELLS)
def test_the_cells_are_torchs_own(cell):
    kinds = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
    assert type(LanguageModel(VOCABULARY, HIDDEN, cell=cell).recurrent) is kinds[cell]


@pytest.mark.parametrize("tied", [False, True])
def test_one_layer_lstm_by_hand(tied):
    model = LanguageModel(VOCABULARY, HIDDEN, 1, "lstm", tied).double()
    words = torch.randint(VOCABULARY, (5, 2))
    logits, state = model(words)
    recurrent, matrix = model.recurrent, model.output.weight
    h = c = torch.zeros(2, HIDDEN).double()
    for time in range(5):
        x = model.embedding.weight[words[time]]
        gates = F.linear(x, recurrent.weight_ih_l0, recurrent.bias_ih_l0)
        gates = gates + F.linear(h, recurrent.weight_hh_l0)
        i, f, g, o = gates.chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        torch.testing.assert_close(logits[time], h @ matrix.T + model.output.bias)
    torch.testing.assert_close(state, (h[None], c[None]))


@pytest.mark.parametrize("cell", CELLS)
def test_two_cuts_with_carried_state_are_one_sequence(cell):
    model = LanguageModel(VOCABULARY, HIDDEN, 2, cell).double()
    words = torch.randint(VOCABULARY, (9, 3))
    whole, last = model(words)
    first, state = model(words[:4])
    second, final = model(words[4:], state)
    torch.testing.assert_close(torch.cat([first, second]), whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(final, last, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(model(words[4:])[0], second)


def test_a_word_does_not_see_those_after_it():
    model = LanguageModel(VOCABULARY, HIDDEN)
    words = torch.randint(VOCABULARY, (6, 1))
    other = words.clone()
    other[4:] = (other[4:] + 1) % VOCABULARY
    one, two = model(words)[0], model(other)[0]
    assert torch.equal(one[:4], two[:4])
    assert not torch.equal(one[4:], two[4:])


def test_tied_is_one_matrix():
    model = LanguageModel(VOCABULARY, HIDDEN, tied=True)
    assert model.output.weight is model.embedding.weight
    untied = LanguageModel(VOCABULARY, HIDDEN)
    count = [sum(p.numel() for p in m.parameters()) for m in (untied, model)]
    assert count[0] - count[1] == VOCABULARY * HIDDEN


@pytest.mark.parametrize("uniform", [None, 0.1])
@pytest.mark.parametrize("cell", CELLS)
def test_the_second_bias_is_zero_and_frozen_except_in_a_gru(cell, uniform):
    model = LanguageModel(VOCABULARY, HIDDEN, 2, cell)
    model.initialise(uniform, torch.Generator().manual_seed(0))
    second = [getattr(model.recurrent, f"bias_hh_l{layer}") for layer in range(2)]
    if cell == "gru":
        assert all(bias.requires_grad for bias in second)
        assert all((bias != 0).any() for bias in second) == (uniform is not None)
    else:
        assert all(not bias.requires_grad for bias in second)
        assert all((bias == 0).all() for bias in second)
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    assert all(name.startswith("recurrent.bias_hh") for name in frozen)


@pytest.mark.parametrize("tied", [False, True])
def test_uniform_initialisation(tied):
    model = LanguageModel(500, 40, 2, tied=tied)
    model.initialise(0.2, torch.Generator().manual_seed(0))
    for parameter in model.parameters():
        if parameter.requires_grad:
            n = parameter.numel()
            assert parameter.abs().max() <= 0.2
            assert parameter.abs().max() > 0.2 * (1 - 20 / n)
            std = 0.2 / math.sqrt(3)
            assert abs(parameter.mean()) < 5 * std / math.sqrt(n)
            # variance of x^2 under a uniform density is 4/45 of its half width to the fourth
            error = 5 * 0.2**2 * math.sqrt(4 / 45 / n)
            assert abs(parameter.square().mean() - std**2) < error


@pytest.mark.parametrize("tied", [False, True])
def test_truncated_normal_initialisation(tied):
    model = LanguageModel(500, 40, 2, tied=tied)
    model.initialise(None, torch.Generator().manual_seed(0))
    # A normal cut at two standard deviations keeps 0.7737 of its variance:
    # 1 - 2 a phi(a) / (2 Phi(a) - 1) with a = 2.
    density = math.exp(-2) / math.sqrt(2 * math.pi)
    kept = 1 - 4 * density / math.erf(math.sqrt(2))
    assert kept == pytest.approx(0.7737, abs=1e-4)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert (parameter == 0).all()
            continue
        n = parameter.numel()
        if name == "embedding.weight" and not tied:
            assert abs(parameter.mean()) < 5 / math.sqrt(n)
            assert parameter.square().mean().item() == pytest.approx(1, abs=5 * math.sqrt(2 / n))
            continue
        std = 1 / math.sqrt(40)
        assert parameter.abs().max() <= 2 * std
        assert parameter.abs().max() > 1.9 * std
        assert abs(parameter.mean()) < 5 * std / math.sqrt(n)
        # The fourth moment is below that of the whole normal, so this bound is generous.
        assert parameter.square().mean().item() == pytest.approx(
            kept * std**2, abs=5 * std**2 * math.sqrt(2 / n)
        )
    assert "output.weight" in dict(model.named_parameters(remove_duplicate=False))


def test_initialisation_comes_from_the_generator():
    def made():
        model = LanguageModel(VOCABULARY, HIDDEN)
        model.initialise(None, torch.Generator().manual_seed(3))
        return model.state_dict()

    one, other = made(), made()
    assert all(torch.equal(one[name], other[name]) for name in one)
    model = LanguageModel(VOCABULARY, HIDDEN)
    before = torch.get_rng_state()
    model.initialise(0.1, torch.Generator().manual_seed(3))
    model.initialise(None, torch.Generator().manual_seed(3))
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_does_nothing_until_a_rate_is_set():
    model = LanguageModel(VOCABULARY, HIDDEN)
    words = torch.randint(VOCABULARY, (5, 2))
    assert torch.equal(model.train()(words)[0], model.eval()(words)[0])
    model.input_dropout.p = 0.5
    assert not torch.equal(model.train()(words)[0], model(words)[0])
    assert torch.equal(model.eval()(words)[0], model(words)[0])
    model.input_dropout.p = 0.0
    model.output_dropout.p = 0.5
    assert not torch.equal(model.train()(words)[0], model(words)[0])
