import pytest
import torch
from torch import nn

from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, KLScale
from bayesrnn.methods.naive_dropout import NaiveDropout, NaiveDropoutOptions
from bayesrnn.random import RandomStreams


def make_method(**options):
    return NaiveDropout(NaiveDropoutOptions(**options), RandomStreams(0))


def test_it_is_registered_and_charges_no_kl(make_model, objective):
    assert METHODS["naive-dropout"] is NaiveDropout
    method = make_method()
    net = method.build(make_model(), Hints())
    assert method.loss(net, objective, KLScale(1.0, 1.0)).terms.keys() == {"nll"}


def test_masks_are_new_at_every_step():
    # With the identity as the input matrix and no recurrent weights, outputs show the masks.
    method = make_method(dropout=0.5)
    layer = nn.RNN(40, 40, bias=False)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.eye(40))
        layer.weight_hh_l0.zero_()
    net = method.build(layer, Hints())
    with torch.no_grad():
        outputs, _ = method.draw(net, 0)(torch.ones(6, 5, 40))
    patterns = {tuple(row) for row in (outputs != 0).flatten(0, 1).tolist()}
    assert len(patterns) == 30
    torch.testing.assert_close(
        outputs[outputs != 0], torch.tensor(2.0).tanh().expand(outputs.count_nonzero())
    )


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_recurrent_connections_are_left_alone_unless_asked_for(rate):
    # Without inputs, a state that is handed on by the identity shows what it is multiplied by.
    method = make_method(dropout=0.5, recurrent_dropout=rate)
    layer = nn.RNN(1, 200, bias=False)
    with torch.no_grad():
        layer.weight_ih_l0.zero_()
        layer.weight_hh_l0.copy_(torch.eye(200))
    net = method.build(layer, Hints())
    with torch.no_grad():
        outputs, _ = method.draw(net, 0)(torch.zeros(3, 1, 1), torch.ones(1, 1, 200))
    alive = (outputs != 0).double().mean((1, 2))
    if rate:
        # New masks at every step: ever fewer units survive, 1/2, 1/4, 1/8 (5 deviations).
        for steps, share in enumerate(alive.tolist(), start=1):
            chance = 0.5**steps
            assert abs(share - chance) < 5 * (chance * (1 - chance) / 200) ** 0.5
    else:
        assert (alive == 1).all()


def test_impossible_rates():
    for name in ("dropout", "recurrent_dropout"):
        with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')}"):
            make_method(**{name: 1.0})
