"""The curvature of the layer below a softmax, against autograd's second derivatives."""

import torch
from torch import nn
from torch.nn import functional as F

from bayesrnn.core.curvature import watched


def test_it_is_the_diagonal_of_the_hessian():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 5)).double()
    x, targets = torch.randn(7, 2, 3, dtype=torch.double), torch.randint(5, (14,))
    with watched(net, "2") as seen:
        net(x[:3])
        net(x[3:])
    net(x)  # nobody looks any more
    found = seen.curvature()
    features = net[:2](x).flatten(0, 1).detach()

    def nll(weight, bias):
        return F.cross_entropy(features @ weight.T + bias, targets, reduction="sum")

    weight, bias = net[2].weight.detach(), net[2].bias.detach()
    hessian = torch.autograd.functional.hessian(nll, (weight, bias))
    torch.testing.assert_close(found["2.bias"], hessian[1][1].diagonal())
    expected = hessian[0][0].reshape(20, 20).diagonal().view(5, 4)
    torch.testing.assert_close(found["2.weight"], expected)


def test_a_layer_without_bias_has_none():
    net = nn.Sequential(nn.Linear(3, 4, bias=False))
    with watched(net, "0") as seen:
        net(torch.ones(2, 1, 3))
    assert list(seen.curvature()) == ["0.weight"]
