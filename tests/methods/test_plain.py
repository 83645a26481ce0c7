import torch

from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, KLScale
from bayesrnn.methods.plain import Plain, PlainOptions
from bayesrnn.random import RandomStreams


def test_plain_is_the_module_and_its_loss(make_model, objective):
    assert METHODS["plain"] is Plain
    method, model = Plain(PlainOptions(), RandomStreams(0)), make_model()
    net = method.build(model, Hints())
    assert net is model
    loss = method.loss(net, objective, KLScale(123.0, 456.0))
    expected, _ = objective(make_model())
    torch.testing.assert_close(loss.total, expected, rtol=0, atol=0)
    assert loss.terms == {"nll": expected.item()}
    assert method.state() is None
    words = torch.arange(6).view(3, 2)
    expected = make_model().eval()(words)[0]
    for network in (method.draw(net, 0), method.mean(net)):
        net.train()  # whoever trained in between does not matter
        assert torch.equal(network(words)[0], expected)
        assert not model.training
