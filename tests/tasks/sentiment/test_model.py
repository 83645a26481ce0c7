import math

import pytest
import torch
from torch.nn import functional as F

from bayesrnn.errors import ConfigError
from bayesrnn.nn.recurrent import CELLS
from bayesrnn.tasks.sentiment.model import TextPredictor

VOCABULARY, HIDDEN = 11, 6


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def by_hand(model, words):
    """The outputs for one text [time], the LSTM step by step."""
    recurrent = model.recurrent
    h = c = torch.zeros(HIDDEN).double()
    for word in words:
        x = model.embedding.weight[word]
        gates = F.linear(x, recurrent.weight_ih_l0, recurrent.bias_ih_l0)
        i, f, g, o = (gates + F.linear(h, recurrent.weight_hh_l0)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return h @ model.output.weight.T + model.output.bias


@pytest.mark.parametrize("classes", [None, 3])
def test_the_last_word_of_each_column_counts(classes):
    model = TextPredictor(VOCABULARY, HIDDEN, classes=classes).double()
    words, lengths = torch.randint(VOCABULARY, (7, 4)), torch.tensor([7, 1, 4, 6])
    outputs = model(words, lengths)
    assert outputs.shape == (4, classes or 2)
    for column, length in enumerate(lengths.tolist()):
        expected = by_hand(model, words[:length, column])
        torch.testing.assert_close(outputs[column, : classes or 1], expected)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
def test_what_fills_a_column_up_is_not_read(cell, layers):
    model = TextPredictor(VOCABULARY, HIDDEN, layers, cell)
    words, lengths = torch.randint(VOCABULARY, (7, 3)), torch.tensor([7, 2, 4])
    other = words.clone()
    other[2:, 1] = (other[2:, 1] + 1) % VOCABULARY
    other[4:, 2] = (other[4:, 2] + 1) % VOCABULARY
    assert torch.equal(model(words, lengths), model(other, lengths))
    other[1, 1] = (other[1, 1] + 1) % VOCABULARY
    assert not torch.equal(model(words, lengths)[1], model(other, lengths)[1])


def test_the_noise_is_one_learnt_number():
    model = TextPredictor(VOCABULARY, HIDDEN)
    model.initialise(0.1, torch.Generator().manual_seed(0))
    words, lengths = torch.randint(VOCABULARY, (7, 3)), torch.tensor([7, 2, 4])
    assert (model(words, lengths)[:, 1] == 0).all(), "a variance of 1 at the start"
    with torch.no_grad():
        model.log_noise.fill_(math.log(0.3))
    torch.testing.assert_close(model(words, lengths)[:, 1].exp(), torch.full((3,), 0.09))
    model(words, lengths)[:, 1].sum().backward()
    assert model.log_noise.grad == 6
    assert "log_noise" not in dict(TextPredictor(VOCABULARY, classes=2).named_parameters())


def test_the_noise_grows_with_the_share_of_unknown_words():
    model = TextPredictor(VOCABULARY, HIDDEN, unknown=4)
    with torch.no_grad():
        model.log_noise.fill_(math.log(0.3))
        model.unknown_noise.fill_(math.log(5.0))
    model.temperature = 2.0
    words, lengths = torch.ones(4, 3, dtype=torch.long), torch.tensor([4, 4, 2])
    words[1:, 1] = 4
    words[1:, 2] = 4  # of which the last two are padding
    mean, log_variance = model(words, lengths).unbind(-1)
    shares = torch.tensor([0.0, 0.75, 0.5])
    torch.testing.assert_close((log_variance / 2).exp(), 2 * 0.3 * 5**shares)
    log_variance.sum().backward()
    assert model.unknown_noise.grad == pytest.approx(2 * 1.25)
    with torch.no_grad():
        model.unknown_noise.neg_()
    mirrored = model(words, lengths)[:, 1]
    torch.testing.assert_close(mirrored, log_variance, msg="unknown words never make it surer")
    model.unknown = None
    torch.testing.assert_close(model(words, lengths)[:, 0], mean)


def test_the_noise_of_unknown_words_can_leave_its_start():
    model = TextPredictor(VOCABULARY, HIDDEN, unknown=4)
    assert model.unknown_noise == 0
    model(torch.full((2, 1), 4), torch.tensor([2]))[:, 1].sum().backward()
    assert model.unknown_noise.grad == 2


@pytest.mark.parametrize("uniform", [None, 0.1])
@pytest.mark.parametrize("cell", CELLS)
def test_initialisation(cell, uniform):
    model = TextPredictor(500, 40, 2, cell)
    with torch.no_grad():
        model.log_noise.fill_(3.0)
    model.initialise(uniform, torch.Generator().manual_seed(0))
    assert model.log_noise == 0
    assert (model.recurrent.bias_hh_l0.requires_grad) == (cell == "gru")
    spread = 1.0 if uniform is None else uniform / math.sqrt(3)
    assert model.embedding.weight.std().item() == pytest.approx(spread, rel=0.02)
    assert (model.output.bias == 0).all() == (uniform is None)


def test_outputs_are_dropped_by_text_and_feature():
    """What is dropped has axes of time, texts and features, as in every recurrent network."""
    model = TextPredictor(VOCABULARY, HIDDEN)
    seen = []
    model.output_dropout.register_forward_hook(lambda layer, given, out: seen.append(out.shape))
    model(torch.randint(VOCABULARY, (7, 3)), torch.tensor([7, 2, 4]))
    assert seen == [(1, 3, HIDDEN)]


def test_an_unknown_cell_is_refused():
    with pytest.raises(ConfigError, match="cell is 'elman'; there are: lstm, gru, rnn"):
        TextPredictor(VOCABULARY, cell="elman")
