"""What the training loop, checkpoints and evaluation rely on, for every method in the registry."""

import copy
import dataclasses

import pytest
import torch

from bayesrnn.core.init import absolute
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, KLScale, Method
from bayesrnn.options import options_of
from bayesrnn.random import RandomStreams

HINTS = Hints(deterministic=("output.bias",), sigma_init={"*": absolute(0.1)})
#: The objective of these tests is a summed loss.
KL_SCALE = KLScale(epoch=0.01, minibatch=1.0)


@pytest.fixture(params=METHODS)
def make_method(request):
    """A function that makes the method with its default options."""
    kind = METHODS[request.param]
    return lambda seed=0: kind(kind.options_type(), RandomStreams(seed))


def test_names_and_options():
    for name, kind in METHODS.items():
        assert issubclass(kind, Method)
        assert kind.name == name
        assert kind.summary
        stated = options_of(kind.options_type)
        assert [item.name for item in stated] == [
            field.name for field in dataclasses.fields(kind.options_type)
        ]
        assert all(item.help for item in stated)
    assert {"plain", "dropout", "bbb", "sharpened"} <= set(METHODS)


def test_a_step_of_training(make_method, make_model, objective):
    for cell, tied in (("lstm", False), ("lstm", True), ("gru", False), ("rnn", False)):
        method = make_method()
        net = method.build(make_model(cell=cell, tied=tied), HINTS)
        optimiser = make_optimiser(method, net)
        net.eval()  # as an evaluation would leave it
        before = {name: value.detach().clone() for name, value in net.named_parameters()}
        loss = method.loss(net, objective, KL_SCALE)
        assert net.training
        assert loss.total.shape == ()
        assert loss.terms["nll"] > 0
        assert all(isinstance(value, float) for value in loss.terms.values())
        assert loss.total.item() == pytest.approx(sum(loss.terms.values()), rel=1e-5)
        loss.total.backward()
        optimiser.step()
        for name, value in net.named_parameters():
            is_learnt = value.requires_grad and (method.rounds == 1 or "members.0." in name)
            assert torch.equal(value, before[name]) == (not is_learnt), name


def test_the_state_to_carry_on_is_that_of_the_objective(make_method, make_model, objective):
    method = make_method()
    net = method.build(make_model(), HINTS)
    make_optimiser(method, net)
    seen = []

    def recorded(network):
        seen.append(objective(network))
        return seen[-1]

    loss = method.loss(net, recorded, KL_SCALE)
    assert loss.state is seen[-1].state
    assert loss.terms["nll"] == seen[-1].nll.item()


def test_the_mean_network_is_one_and_the_same(make_method, make_model, words):
    method = make_method()
    net = method.build(make_model(), HINTS)
    first = method.mean(net)(words, None)[0]
    assert torch.equal(method.mean(net)(words, None)[0], first)
    # Untrained, it is the module that the method was given.
    assert torch.equal(make_model().eval()(words, None)[0], first)


def test_a_drawn_network_comes_from_its_seed(make_method, make_model, words):
    method = make_method()
    net = method.build(make_model(), HINTS)

    def drawn(seed):
        return method.draw(net, seed)(words, None)[0]

    with torch.no_grad():
        before = torch.get_rng_state()
        assert torch.equal(drawn(1), drawn(1))
        assert torch.equal(torch.get_rng_state(), before)
        is_one = method.members(net) == 1 and not method.draws_differ
        assert torch.equal(drawn(1), drawn(2)) == is_one
        mean = method.mean(net)(words, None)[0]
        assert torch.equal(drawn(1), mean) == is_one
        # After a draw the mean is again the mean.
        assert torch.equal(method.mean(net)(words, None)[0], mean)


def make_optimiser(method, net, lr=0.05):
    """Plain gradient descent on the method's groups of parameters, as the training loop has it.

    Or the optimiser that is the method's own.
    """
    if method.own_optimiser:
        return method.optimiser(net, lr, KL_SCALE)
    groups = method.parameter_groups(net)
    for group in groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)
    return torch.optim.SGD(groups)


def test_the_groups_hold_every_parameter_once(make_method, make_model):
    method = make_method()
    net = method.build(make_model(tied=True), HINTS)
    grouped = [id(p) for group in method.parameter_groups(net) for p in group["params"]]
    assert sorted(grouped) == sorted(map(id, net.parameters()))


def test_diagnostics_are_numbers_and_the_mean_module_is_ordinary(make_method, make_model, words):
    method = make_method()
    module = make_model()
    net = method.build(module, HINTS)
    assert all(isinstance(value, float) for value in method.diagnostics(net).values())
    assert method.mean_module(net) is module


def train(method, net, optimiser, objective, steps):
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = method.loss(net, objective, KL_SCALE)
        loss.total.backward()
        optimiser.step()
        losses.append((loss.total.item(), loss.terms))
    return losses


def test_training_goes_on_as_if_never_interrupted(make_method, make_model, objective):
    for stop in (1, 2, 3):
        method = make_method()
        net = method.build(make_model(), HINTS)
        optimiser = make_optimiser(method, net)
        train(method, net, optimiser, objective, stop)
        saved = net.state_dict()
        saved = {name: value.clone() for name, value in saved.items()}
        streams, state = method.streams.state(), method.state()
        rest = copy.deepcopy(optimiser.state_dict())
        expected = train(method, net, optimiser, objective, 4)

        resumed = make_method()
        other = resumed.build(make_model(), HINTS)
        other.load_state_dict(saved)
        resumed.streams.restore(streams)
        resumed.restore(state)
        optimiser = make_optimiser(resumed, other)
        optimiser.load_state_dict(rest)
        assert train(resumed, other, optimiser, objective, 4) == expected
        for name, value in net.state_dict().items():
            assert torch.equal(value, other.state_dict()[name])


def test_the_seed_decides(make_method, make_model, objective):
    def losses(seed):
        method = make_method(seed)
        net = method.build(make_model(), HINTS)
        make_optimiser(method, net)
        torch.randn(3)  # torch's own generator has no part in it
        return [method.loss(net, objective, KL_SCALE).total.item() for _ in range(3)]

    assert losses(0) == losses(0)
    if make_method().draws_differ:
        assert losses(0) != losses(1)
