import math

import pytest
import torch
from torch import nn

from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, KLScale
from bayesrnn.methods.gaussian_dropout import GaussianDropout
from bayesrnn.methods.masking import MaskOptions
from bayesrnn.random import RandomStreams

HINTS = Hints(before_recurrent=("input_dropout",))


def make_method(**options):
    return GaussianDropout(MaskOptions(**options), RandomStreams(0))


def test_it_is_registered_and_charges_no_kl(make_model, objective):
    assert METHODS["gaussian-dropout"] is GaussianDropout
    method = make_method()
    net = method.build(make_model(), HINTS)
    assert method.loss(net, objective, KLScale(1.0, 1.0)).terms.keys() == {"nll"}


@pytest.mark.parametrize("gates", ["tied", "untied"])
def test_all_masks_are_gaussian_and_last(make_model, gates):
    net = make_method(gates=gates).build(make_model(), HINTS)
    for layer in (net.embedding, net.recurrent, net.output_dropout):
        assert layer.style.noise == "gaussian"
        assert not layer.style.every_step
        assert layer.style.gates == gates
        assert layer.rate == 0.5


def test_moments_of_what_a_network_sees():
    # Input matrix of the identity, tiny inputs: the outputs are the masked inputs.
    rate, count, small = 0.3, 400, 1e-4
    method = make_method(dropout=rate, recurrent_dropout=0.0)
    layer = nn.RNN(count, count, bias=False).double()
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.eye(count))
        layer.weight_hh_l0.zero_()
    net = method.build(layer, Hints())
    with torch.no_grad(), method.streams.as_default("dropout"):
        outputs, _ = net.train()(torch.full((2, 300, count), small).double())
    factors = outputs / small
    assert torch.equal(factors[0], factors[1])
    total, variance = factors[0].numel(), rate / (1 - rate)
    assert abs(factors[0].mean() - 1) < 5 * math.sqrt(variance / total)
    assert abs(factors[0].var() - variance) < 5 * variance * math.sqrt(2 / total)
    assert (factors < 0).any()  # as no dropped unit ever is
