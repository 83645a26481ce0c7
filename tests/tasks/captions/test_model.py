import math

import pytest
import torch
from torch.nn import functional as F

from bayesrnn.errors import ConfigError
from bayesrnn.nn.recurrent import CELLS
from bayesrnn.tasks.captions.model import Captioner

WIDTH, VOCABULARY, HIDDEN = 9, 11, 6


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def by_hand(model, words, features):
    """The logits for one caption [time] of one image, the LSTM of one layer step by step."""
    recurrent = model.recurrent
    direction = features / features.square().sum().sqrt() * model.feature_norm
    c = model.image.weight @ direction + model.image.bias
    h = c.tanh()
    found = []
    for word in words:
        gates = F.linear(model.embedding.weight[word], recurrent.weight_ih_l0, recurrent.bias_ih_l0)
        gates = gates + F.linear(h, recurrent.weight_hh_l0, recurrent.bias_hh_l0)
        i, f, g, o = gates.chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        found.append(model.output.weight @ h + model.output.bias)
    return torch.stack(found)


@pytest.mark.parametrize("norm", [1.0, 4.0])
def test_a_caption_starts_from_what_the_image_shows(norm):
    model = Captioner(WIDTH, VOCABULARY, HIDDEN, feature_norm=norm).double()
    words, features = torch.randint(VOCABULARY, (5, 3)), 3 * torch.randn(3, WIDTH).double()
    logits, _ = model(words, features)
    assert logits.shape == (5, 3, VOCABULARY)
    for column in range(3):
        expected = by_hand(model, words[:, column], features[column])
        torch.testing.assert_close(logits[:, column], expected)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
def test_each_layer_has_a_start_of_its_own(cell, layers):
    model = Captioner(WIDTH, VOCABULARY, HIDDEN, layers, cell, feature_norm=2.0).double()
    features = torch.randn(3, WIDTH).double()
    words = torch.randint(VOCABULARY, (4, 3))
    seen = F.normalize(features) * 2 @ model.image.weight.T + model.image.bias
    assert seen.shape == (3, layers * HIDDEN)
    cells = torch.stack([seen[:, HIDDEN * n : HIDDEN * (n + 1)] for n in range(layers)])
    state = (cells.tanh(), cells) if cell == "lstm" else cells.tanh()
    outputs, after = model.recurrent(model.embedding(words), state)
    logits, found = model(words, features)
    torch.testing.assert_close(logits, model.output(outputs))
    torch.testing.assert_close(found, after)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
def test_word_by_word_is_as_in_one_go(cell, layers):
    model = Captioner(WIDTH, VOCABULARY, HIDDEN, layers, cell).double()
    words, features = torch.randint(VOCABULARY, (6, 4)), torch.randn(4, WIDTH).double()
    whole, last = model(words, features)
    logits, state = model(words[:1], features)
    steps = [logits]
    for row in words[1:]:
        logits, state = model(row[None], state=state)
        steps.append(logits)
    torch.testing.assert_close(torch.cat(steps), whole)
    torch.testing.assert_close(state, last)


def test_the_length_of_features_does_not_count():
    model = Captioner(WIDTH, VOCABULARY, HIDDEN).double()
    words, features = torch.randint(VOCABULARY, (3, 2)), torch.randn(2, WIDTH).double()
    torch.testing.assert_close(model(words, features)[0], model(words, 7 * features)[0])


@pytest.mark.parametrize("uniform", [None, 0.1])
def test_initialisation(uniform):
    model = Captioner(60, 500, 40)
    model.initialise(uniform, torch.Generator().manual_seed(0))
    spread = 1.0 if uniform is None else uniform / math.sqrt(3)
    assert model.embedding.weight.std().item() == pytest.approx(spread, rel=0.02)
    image = 1 / math.sqrt(60) if uniform is None else uniform / math.sqrt(3)
    assert model.image.weight.std().item() == pytest.approx(image, rel=0.15)


def test_dropout_stands_after_the_embedding_and_before_the_output():
    model = Captioner(WIDTH, VOCABULARY, HIDDEN)
    words, features = torch.randint(VOCABULARY, (4, 2)), torch.randn(2, WIDTH)
    expected, _ = model.eval()(words, features)
    assert torch.equal(model.train()(words, features)[0], expected), "nothing without a rate"
    model.input_dropout.p = 1.0
    silent = model.recurrent(torch.zeros(4, 2, HIDDEN), model._seen(features))[0]
    torch.testing.assert_close(model(words, features)[0], model.output(silent))
    model.output_dropout.p = 1.0
    everywhere = model.output.bias.expand(4, 2, VOCABULARY)
    torch.testing.assert_close(model(words, features)[0], everywhere)


def test_mistakes():
    with pytest.raises(ConfigError, match="cell is 'elman'; there are: lstm, gru, rnn"):
        Captioner(WIDTH, VOCABULARY, cell="elman")


def test_a_caption_starts_from_an_image_or_goes_on():
    model = Captioner(WIDTH, VOCABULARY, HIDDEN)
    words, features = torch.randint(VOCABULARY, (1, 2)), torch.randn(2, WIDTH)
    state = model(words, features)[1]
    with pytest.raises(ConfigError, match="both features and a state were given"):
        model(words, features, state)
    with pytest.raises(ConfigError, match="neither features nor a state were given"):
        model(words)
