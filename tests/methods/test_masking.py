"""Where masks are put in a network, and networks that are drawn with them."""

import pytest
import torch
from torch import nn

import bayesrnn
from bayesrnn.core.noise import draw_seed
from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, KLScale
from bayesrnn.nn.masked import MaskedDropout, MaskedEmbedding
from bayesrnn.nn.masked_recurrent import MaskedRecurrent
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.lm.dynamic import GradientDescent, dynamic_log_probs
from bayesrnn.tasks.mnist.model import MLP

HINTS = Hints(before_recurrent=("input_dropout",))
KL_SCALE = KLScale(epoch=0.01, minibatch=1.0)
MASKING = ("variational-dropout", "naive-dropout", "gaussian-dropout")
#: Those whose drawn networks keep their masks.
HOLDING = ("variational-dropout", "gaussian-dropout", "dropconnect")


def make_method(name, seed=0, **options):
    kind = METHODS[name]
    return kind(kind.options_type(**options), RandomStreams(seed))


@pytest.mark.parametrize("name", MASKING)
def test_layers_are_replaced_under_their_names(name, make_model):
    model = make_model(layers=2)
    parameters = dict(model.named_parameters())
    method = make_method(name, dropout=0.4, recurrent_dropout=0.2)
    net = method.build(model, HINTS)
    assert net is model
    assert isinstance(net.recurrent, MaskedRecurrent)
    assert (net.recurrent.input_rate, net.recurrent.recurrent_rate) == (0.4, 0.2)
    assert net.recurrent.dropout == 0.0  # torch's own, between layers, would drop twice
    assert isinstance(net.embedding, MaskedEmbedding) == (name != "naive-dropout")
    assert isinstance(net.output_dropout, MaskedDropout)
    assert net.output_dropout.p == 0.4
    # What goes straight into a recurrent layer is masked there, and not twice.
    assert net.input_dropout.p == 0.0
    assert dict(net.named_parameters()).keys() == parameters.keys()
    assert all(parameters[key] is value for key, value in net.named_parameters())
    other = method.build(make_model(layers=2), Hints())
    assert other.input_dropout.p == 0.4


@pytest.mark.parametrize("name", MASKING)
def test_rates_that_are_left_out(name, make_model):
    net = make_method(name, dropout=0.4).build(make_model(), HINTS)
    if name == "naive-dropout":
        assert net.recurrent.recurrent_rate == 0.0
        assert type(net.embedding) is nn.Embedding
    else:
        assert net.recurrent.recurrent_rate == net.embedding.rate == 0.4
        net = make_method(name, dropout=0.4, embedding_dropout=0.0).build(make_model(), HINTS)
        assert type(net.embedding) is nn.Embedding


@pytest.mark.parametrize("name", MASKING)
def test_nothing_is_dropped_at_rates_of_zero(name, make_model, objective):
    method = make_method(name, dropout=0.0)
    net = method.build(make_model(), HINTS)
    assert not method.draws_differ
    expected = objective(make_model()).nll.item()
    assert method.loss(net, objective, KL_SCALE).terms["nll"] == expected
    assert make_method(name, dropout=0.0, recurrent_dropout=0.1).draws_differ


@pytest.mark.parametrize("option", ["dropout", "recurrent_dropout", "embedding_dropout"])
@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_impossible_rates(option, rate):
    with pytest.raises(ConfigError, match=f"--{option.replace('_', '-')} is"):
        make_method("variational-dropout", **{option: rate})


@pytest.mark.parametrize("name", HOLDING)
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_a_draw_reads_in_pieces_as_it_reads_at_once(name, cell, make_model, words):
    method = make_method(name)
    net = method.build(make_model(cell=cell).double(), HINTS)
    with torch.no_grad():
        drawn = method.draw(net, 7)
        whole, last = drawn(words, None)
        for cut in range(1, len(words)):
            first, state = drawn(words[:cut], None)
            second, final = method.draw(net, 7)(words[cut:], state)
            torch.testing.assert_close(torch.cat([first, second]), whole)
            torch.testing.assert_close(final, last)
        assert not torch.allclose(method.draw(net, 8)(words, None)[0], whole)


@pytest.mark.parametrize("gates", ["tied", "untied"])
@pytest.mark.parametrize("name", ["variational-dropout", "gaussian-dropout"])
def test_a_draw_is_one_network_whatever_is_read_beside(name, gates, make_model):
    """Equal sequences get equal answers, and none depends on its neighbours; in training both."""
    kind = METHODS[name]
    method = kind(kind.options_type(gates=gates), RandomStreams(0))
    net = method.build(make_model(layers=2), Hints(before_recurrent=("input_dropout",)))
    words = torch.tensor([[1, 1, 2], [3, 3, 1], [1, 1, 1]])
    with torch.no_grad():
        together = method.draw(net, 5)(words, None)[0]
        alone = method.draw(net, 5)(words[:, 2:], None)[0]
        # Up to rounding: some processors sum the columns of a product in different orders.
        torch.testing.assert_close(together[:, 0], together[:, 1])
        torch.testing.assert_close(together[:, 2:], alone)
        with RandomStreams(0).as_default("any"):
            training = net.train()(words, None)[0]
        assert not torch.allclose(training[:, 0], training[:, 1])


def test_the_masks_of_a_naive_draw_go_on(make_model, words):
    method = make_method("naive-dropout")
    net = method.build(make_model(), HINTS)
    with torch.no_grad():
        drawn, again = method.draw(net, 7), method.draw(net, 7)
        first, second = drawn(words, None)[0], drawn(words, None)[0]
        assert not torch.equal(first, second)
        assert torch.equal(again(words, None)[0], first)
        assert torch.equal(again(words, None)[0], second)


@pytest.mark.parametrize("name", [*MASKING, "dropconnect"])
def test_draws_leave_modes_and_the_global_generator_alone(name, make_model, objective, words):
    method = make_method(name)
    net = method.build(make_model(), HINTS)
    before = torch.get_rng_state()
    method.loss(net, objective, KL_SCALE)
    with torch.no_grad():
        method.draw(net.eval(), 3)(words, None)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(layer.training for layer in net.modules())


@pytest.mark.parametrize("name", MASKING)
def test_predict_leaves_masks_on(name, make_model, words):
    net = make_method(name, dropout=0.3).build(make_model(), HINTS).eval()
    found = bayesrnn.predict(net, words, None, samples=30, generator=torch.Generator())
    assert (found.epistemic > 1e-5).all()
    streams = RandomStreams(draw_seed(torch.Generator()))
    with torch.no_grad(), streams.as_default("dropout"):
        net.train()
        probabilities = [net(words, None)[0].softmax(-1) for _ in range(30)]
    torch.testing.assert_close(found.mean, torch.stack(probabilities).mean(0))


@pytest.mark.parametrize("name", MASKING)
def test_dynamic_evaluation_drops_nothing(name, make_model, words):
    net = make_method(name).build(make_model(), HINTS)
    rule = GradientDescent(lr=0.1)
    stream = words[:, 0]
    found = dynamic_log_probs(net, stream, rule, segment=2)
    assert torch.equal(found, dynamic_log_probs(make_model(), stream, rule, segment=2))
    assert net.recurrent.input_rate == 0.5


class Model(nn.Module):
    """A user's network: batch first, recurrent layers of two kinds, a dropout layer used twice."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(6, 4)
        self.stack = nn.ModuleList(
            [nn.GRU(4, 3, batch_first=True, bidirectional=True), nn.LSTM(6, 3, batch_first=True)]
        )
        self.drop = nn.Dropout(0.9)
        self.same = self.drop
        self.head = nn.Linear(3, 2)

    def forward(self, words):
        x = self.stack[0](self.words(words))[0]
        x = self.stack[1](self.drop(x))[0]
        return self.head(self.same(x[:, -1]))


@pytest.mark.parametrize("name", MASKING)
def test_a_network_of_the_users(name):
    module = Model()
    expected = list(module.state_dict())
    plain = module.eval()(words := torch.randint(6, (5, 8)))
    net = make_method(name, dropout=0.3).build(module, Hints())
    assert list(net.state_dict()) == expected
    assert all(isinstance(layer, MaskedRecurrent) for layer in net.stack)
    assert net.drop is net.same
    assert net.drop.time_axis == 1
    assert torch.equal(net.eval()(words), plain)
    found = bayesrnn.predict(net, words, samples=8, generator=torch.Generator())
    assert (found.epistemic > 0).all()
    net.train()(words).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_a_recurrent_layer_by_itself():
    layer = nn.LSTM(3, 2)
    net = make_method("variational-dropout").build(layer, Hints())
    assert isinstance(net, MaskedRecurrent)
    assert net.weight_hh_l0 is layer.weight_hh_l0


@pytest.mark.parametrize("name", MASKING)
def test_a_network_without_time(name):
    method = make_method(name, dropout=0.3)
    net = method.build(MLP(4, 3, hidden=5), Hints())
    layers = [layer for layer in net.modules() if isinstance(layer, nn.Dropout)]
    assert [layer.p for layer in layers] == [0.3, 0.3]
    with torch.no_grad():
        drawn = method.draw(net, 1)
        rows = drawn(torch.ones(20, 4))
        with RandomStreams(0).as_default("any"):
            training = net.train()(torch.ones(20, 4))
    # Each example has its own mask, but for draws whose masks last: there it is one network.
    different = [len({tuple(row) for row in found.tolist()}) for found in (rows, training)]
    assert different[1] > 10
    assert (different[0] > 10) if name == "naive-dropout" else (different[0] == 1)


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.drop = nn.GRUCell(2, 2), nn.Dropout(0.1)


class OwnEmbedding(nn.Embedding):
    pass


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Linear(2, 2), "no place for dropout"),
        (Cells(), r"GRUCell.*use nn\.GRU"),
        (nn.ModuleList([nn.LSTM(2, 2), nn.GRU(2, 2, batch_first=True)]), "batch_first"),
        (nn.ModuleList([OwnEmbedding(3, 2), nn.GRU(2, 2)]), "OwnEmbedding.*--embedding-dropout 0"),
    ],
    ids=["nothing", "cells", "time", "embedding"],
)
def test_networks_that_are_refused(module, words):
    with pytest.raises(ConfigError, match=words):
        make_method("variational-dropout").build(module, Hints())
