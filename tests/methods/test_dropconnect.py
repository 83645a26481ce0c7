import math

import pytest
import torch
from torch import nn

from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, KLScale
from bayesrnn.methods.dropconnect import DropConnect, DropConnectOptions
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.mnist.model import MLP

KL_SCALE = KLScale(1.0, 1.0)


def make_method(rate=0.4, seed=0):
    return DropConnect(DropConnectOptions(rate), RandomStreams(seed))


def seen_weights(net, monkeypatch, run):
    """The weights that the network has at each call inside `run`, by all of their names."""
    seen, forward = [], type(net).forward

    def recorded(self, *args, **kwargs):
        named = self.named_parameters(remove_duplicate=False)
        seen.append({name: value.detach().clone() for name, value in named})
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(type(net), "forward", recorded)
    run()
    return seen


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_single_recurrent_weights_are_dropped_once_per_minibatch(
    make_model, objective, monkeypatch, cell, tied
):
    method = make_method()
    net = method.build(make_model(cell=cell, tied=tied), Hints())
    own = {name: value.clone() for name, value in net.state_dict().items()}

    def twice(network):
        first, second = objective(network), objective(network)
        assert first.nll == second.nll
        return second

    def calls():
        for _ in range(2):
            method.loss(net, twice, KL_SCALE)

    seen = seen_weights(net, monkeypatch, calls)
    assert len(seen) == 4
    for weights in seen:
        assert weights.keys() == own.keys()
        for name, value in weights.items():
            if "weight_hh" not in name:
                assert torch.equal(value, own[name])
                continue
            kept = value != 0
            assert 0 < kept.double().mean() < 1
            torch.testing.assert_close(value[kept], own[name][kept] / 0.6)
    for one, other, same in ((0, 1, True), (2, 3, True), (1, 2, False)):
        name = "recurrent.weight_hh_l0"
        assert torch.equal(seen[one][name], seen[other][name]) == same
    # The network itself is as it was, and so is the list that torch's layer keeps of its weights.
    assert all(torch.equal(value, own[name]) for name, value in net.state_dict().items())
    assert net.recurrent._flat_weights[1] is net.recurrent.weight_hh_l0


def test_gradients_reach_the_weights_that_are_kept(make_model, objective, monkeypatch):
    method = make_method()
    net = method.build(make_model(layers=1), Hints())
    seen = seen_weights(
        net, monkeypatch, lambda: method.loss(net, objective, KL_SCALE).total.backward()
    )
    dropped = seen[0]["recurrent.weight_hh_l0"] == 0
    gradient = net.recurrent.weight_hh_l0.grad
    assert (gradient[dropped] == 0).all()
    assert (gradient[~dropped] != 0).all()
    assert all(p.grad is not None for p in net.parameters() if p.requires_grad)


def test_the_share_that_is_dropped_and_the_mean():
    method = make_method(0.3)
    net = method.build(nn.Linear(300, 300, bias=False), Hints())
    with torch.no_grad():
        net.weight.fill_(1.0)
        dropped = method.draw(net, 0)(torch.eye(300))
    assert abs((dropped == 0).double().mean() - 0.3) < 5 * math.sqrt(0.3 * 0.7) / 300
    torch.testing.assert_close(
        dropped[dropped != 0], torch.tensor(1 / 0.7).expand((dropped != 0).sum())
    )


def test_a_matrix_that_is_an_embedding_as_well_is_dropped_in_the_linear_layer_alone(monkeypatch):
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.output = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
            self.output.weight = self.embedding.weight

        def forward(self, words):
            return self.output(self.embedding(words).mean(0))

    method = make_method()
    net = method.build(Bag(), Hints())
    words = torch.randint(5, (3, 2))
    seen = seen_weights(net, monkeypatch, lambda: method.draw(net, 0)(words))[0]
    assert torch.equal(seen["embedding.weight"], net.embedding.weight)
    assert (seen["output.weight"] == 0).any()


def test_layers_that_share_their_weights_share_the_mask(monkeypatch):
    class Twins(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.GRU(3, 3), nn.GRU(3, 3)
            self.two.weight_hh_l0 = self.one.weight_hh_l0

        def forward(self, x):
            return self.two(self.one(x)[0])[0]

    method = make_method()
    net = method.build(Twins(), Hints())
    seen = seen_weights(net, monkeypatch, lambda: method.draw(net, 0)(torch.randn(4, 2, 3)))[0]
    assert torch.equal(seen["one.weight_hh_l0"], seen["two.weight_hh_l0"])
    assert (seen["one.weight_hh_l0"] == 0).any()


def test_a_network_without_recurrent_layers(monkeypatch):
    method = make_method()
    net = method.build(MLP(4, 3, hidden=5), Hints())
    own = {name: value.clone() for name, value in net.state_dict().items()}
    seen = seen_weights(net, monkeypatch, lambda: method.draw(net, 0)(torch.ones(2, 4)))[0]
    for name, value in seen.items():
        if name.endswith("bias"):
            assert torch.equal(value, own[name])
        else:
            kept = value != 0
            assert not kept.all()
            torch.testing.assert_close(value[kept], own[name][kept] / 0.6)


def test_registration_and_rates(make_model, objective):
    assert METHODS["dropconnect"] is DropConnect
    assert make_method().draws_differ
    method = make_method(0.0)
    assert not method.draws_differ
    net = method.build(make_model(), Hints())
    assert method.loss(net, objective, KL_SCALE).total.item() == objective(make_model()).nll.item()
    with pytest.raises(ConfigError, match="--weight-dropout"):
        make_method(1.0)
    with pytest.raises(ConfigError, match="no weights for dropconnect"):
        make_method().build(nn.Embedding(3, 2), Hints())
