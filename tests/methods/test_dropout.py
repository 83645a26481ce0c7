import math

import pytest
import torch
from torch import nn

import bayesrnn as br
from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, KLScale
from bayesrnn.methods.dropout import Dropout, DropoutOptions
from bayesrnn.random import RandomStreams


def make_method(rate=0.4, seed=0):
    return Dropout(DropoutOptions(rate), RandomStreams(seed))


def test_the_rate_is_set_on_all_non_recurrent_connections(make_model):
    assert METHODS["dropout"] is Dropout
    net = make_method().build(make_model(layers=2), Hints())
    assert net.input_dropout.p == net.output_dropout.p == net.recurrent.dropout == 0.4


def test_one_layer_has_nothing_in_between(make_model, objective):
    # torch warns about dropout inside a recurrent module of one layer; warnings fail tests.
    method = make_method()
    net = method.build(make_model(layers=1), Hints())
    assert net.recurrent.dropout == 0.0
    method.loss(net, objective, 1.0)


@pytest.mark.parametrize("layers", [1, 2])
def test_the_rate_is_set_on_layers_that_mask_their_inputs_themselves(layers):
    layer = br.nn.LSTM(3, 4, num_layers=layers, dropout=0.1, recurrent_dropout=0.2)
    net = make_method(0.6).build(layer, Hints())
    assert (net.input_rate, net.recurrent_rate, net.dropout) == (0.6, 0.2, 0.0)
    assert make_method(0.0).build(br.nn.LSTM(3, 4, dropout=0.1), Hints()).rate == 0


def test_units_are_dropped_at_the_rate():
    method = make_method(0.3)
    net = method.build(nn.Dropout(0.0), Hints())
    ones = torch.ones(100_000)
    dropped = method.draw(net, 0)(ones)
    share = (dropped == 0).double().mean().item()
    assert abs(share - 0.3) < 5 * math.sqrt(0.3 * 0.7 / 1e5)
    kept = dropped[dropped != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / 0.7))


def test_training_drops_and_the_mean_does_not(make_model, objective, words):
    method = make_method()
    net = method.build(make_model(), Hints())
    first, second = (method.loss(net, objective, 1.0).total.item() for _ in range(2))
    plain = objective(make_model().eval()).nll.item()
    assert len({first, second, plain}) == 3
    assert objective(method.mean(net)).nll.item() == plain
    assert method.loss(net, objective, KLScale(5.0, 5.0)).terms.keys() == {"nll"}


def test_rate_zero_is_plain(make_model, objective):
    method = make_method(0.0)
    net = method.build(make_model(), Hints())
    expected = objective(make_model()).nll.item()
    assert method.loss(net, objective, 1.0).total.item() == expected


def test_masks_come_from_the_stream_alone(make_model, objective):
    def losses():
        method = make_method(seed=4)
        net = method.build(make_model(), Hints())
        torch.randn(5)
        return [method.loss(net, objective, 1.0).total.item() for _ in range(3)]

    assert losses() == losses()


def test_the_global_generator_is_left_alone(make_model, objective, words):
    method = make_method()
    net = method.build(make_model(), Hints())
    before = torch.get_rng_state()
    method.loss(net, objective, 1.0)
    method.draw(net, 1)(words, None)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_drawn_network_draws_new_masks_at_each_call(make_model, words):
    method = make_method()
    net = method.build(make_model(), Hints())
    drawn = method.draw(net, 1)
    again = method.draw(net, 1)
    first, second = drawn(words, None)[0], drawn(words, None)[0]
    assert not torch.equal(first, second)
    assert torch.equal(again(words, None)[0], first)
    assert torch.equal(again(words, None)[0], second)


def test_drawn_networks_average_to_the_mean_where_the_network_is_linear():
    # E[dropout(x)] = x: for a linear network the average over draws is the mean network.
    method = make_method(0.5)
    net = method.build(nn.Sequential(nn.Dropout(0.0), nn.Linear(4, 3)), Hints())
    x = torch.randn(1, 4)
    with torch.no_grad():
        draws = torch.cat([method.draw(net, seed)(x) for seed in range(1000)])
        error = draws.std(0) / math.sqrt(len(draws))
        assert ((draws.mean(0) - method.mean(net)(x)[0]).abs() < 5 * error).all()


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, math.nan])
def test_impossible_rates(rate):
    with pytest.raises(ConfigError, match="--dropout"):
        DropoutOptions(rate)
