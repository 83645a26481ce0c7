"""sgld and psgld: the loss, which weights are kept when, and the networks to predict with."""

import copy

import pytest
import torch
from torch import distributions

from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, KLScale
from bayesrnn.methods.langevin import LangevinOptions, PreconditionedOptions
from bayesrnn.random import RandomStreams

KL_SCALE = KLScale(epoch=0.01, minibatch=1.0)
STEPS = 12


@pytest.fixture(params=["sgld", "psgld"])
def make(request, make_model):
    """A function that makes the method, its network and its optimiser."""

    def build(lr=0.05, seed=0, **options):
        kind = METHODS[request.param]
        method = kind(kind.options_type(**options), RandomStreams(seed))
        net = method.build(make_model(), Hints())
        return method, net, method.optimiser(net, lr, KL_SCALE)

    return build


def train(method, net, optimiser, objective, steps=range(1, STEPS + 1)):
    """Train; gives the weights after each step."""
    course = []
    for step in steps:
        optimiser.zero_grad()
        method.loss(net, objective, KL_SCALE).total.backward()
        optimiser.step()
        method.after_step(net, step, STEPS)
        course.append([weight.detach().clone() for weight in trained(net.module)])
    return course


def trained(module):
    return [weight for weight in module.parameters() if weight.requires_grad]


def same(module, weights):
    return all(torch.equal(a, b) for a, b in zip(trained(module), weights, strict=True))


def test_the_loss_is_the_negative_log_posterior_up_to_a_constant(make, objective):
    method, net, _ = make(lr=0.005, prior_sigma=0.3)
    prior = distributions.Normal(0.0, 0.3)

    def both():
        loss = method.loss(net, objective, KL_SCALE)
        log_prob = sum(prior.log_prob(weight).sum() for weight in trained(net))
        expected = objective(net)[0] - KL_SCALE.epoch * log_prob
        assert loss.total.item() == pytest.approx(sum(loss.terms.values()))
        return loss.total.item(), expected.item()

    ours, theirs = both()
    for weight in trained(net):
        weight.data.mul_(1.5)
    ours_then, theirs_then = both()
    assert ours_then - ours == pytest.approx(theirs_then - theirs, rel=1e-4)


def test_a_step_without_noise_goes_down_the_whole_loss(make_model, objective):
    """With autograd's gradient of the prior instead of the optimiser's."""
    kind = METHODS["sgld"]
    method = kind(LangevinOptions(prior_sigma=0.3, temperature=0.0), RandomStreams(0))
    net = method.build(make_model(), Hints())
    optimiser = method.optimiser(net, 0.05, KL_SCALE)
    reference = make_model()
    prior = distributions.Normal(0.0, 0.3)
    log_prob = sum(prior.log_prob(weight).sum() for weight in trained(reference))
    (objective(reference)[0] - KL_SCALE.epoch * log_prob).backward()
    torch.optim.SGD(trained(reference), 0.05).step()
    train(method, net, optimiser, objective, steps=[1])
    for a, b in zip(trained(net.module), trained(reference), strict=True):
        torch.testing.assert_close(a, b)


def test_the_options_reach_the_optimiser(make):
    method, net, optimiser = make(lr=0.02, prior_sigma=0.7, temperature=0.2)
    (group,) = optimiser.param_groups
    assert (group["lr"], group["scale"]) == (0.02, KL_SCALE.epoch)
    assert (group["prior_sigma"], group["temperature"]) == (0.7, 0.2)
    scaled = method.name == "psgld"
    assert group["alpha"] == (method.options.memory if scaled else None)
    assert not scaled or group["eps"] == method.options.damping
    assert [id(p) for p in group["params"]] == [id(p) for p in trained(net)]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"burn_in": 0.5, "snapshots": 3}, [8, 10, 12]),
        ({"burn_in": 0.5, "snapshots": 4}, [8, 9, 11, 12]),
        ({"burn_in": 0.5, "snapshots": 100}, [7, 8, 9, 10, 11, 12]),
        ({"burn_in": 0.0, "snapshots": 2}, [6, 12]),
        ({"burn_in": 0.25, "snapshots": 1}, [12]),
        ({"burn_in": 0.5, "snapshots": 9, "thinning": 2}, [8, 10, 12]),
        ({"burn_in": 0.25, "snapshots": 2, "thinning": 4}, [7, 11]),
        ({"burn_in": 0.0, "snapshots": 2, "thinning": 3}, [9, 12]),
    ],
)
def test_burn_in_and_thinning_are_counted_exactly(make, objective, options, kept):
    method, net, optimiser = make(**options)
    course = train(method, net, optimiser, objective)
    assert len(net) == len(kept)
    for number, step in enumerate(kept):
        assert same(net.copy(number), course[step - 1])


def test_a_thinning_that_would_keep_nothing_is_refused(make, objective):
    method, net, optimiser = make(burn_in=0.5, thinning=7)
    with pytest.raises(ConfigError, match="--thinning is 7, but training has only 6 steps after"):
        train(method, net, optimiser, objective)


@pytest.mark.parametrize("count", [1, 3, 10, 97])
@pytest.mark.parametrize("steps", [100, 1859])
def test_snapshots_are_spread_evenly_up_to_the_end(count, steps):
    options = LangevinOptions(snapshots=count, burn_in=0.3)
    kept = [step for step in range(1, steps + 1) if options.is_kept(step, steps)]
    burnt = round(0.3 * steps)
    expected = min(count, steps - burnt)
    assert len(kept) == expected
    assert kept[0] > burnt
    assert kept[-1] == steps
    gaps = {after - before for before, after in zip([burnt, *kept], kept, strict=False)}
    assert max(gaps) - min(gaps) <= 1


def test_networks_to_predict_with(make, make_model, objective, words):
    method, net, optimiser = make(burn_in=0.5, snapshots=3)
    train(method, net, optimiser, objective, steps=range(1, 7))
    assert method.members(net) == 1
    assert method.mean_module(net) is net.module
    today = net.module.eval()(words)[0]
    assert torch.equal(method.draw(net, 5)(words, None)[0], today)

    course = train(method, net, optimiser, objective, steps=range(7, STEPS + 1))
    assert method.members(net) == 3
    assert not method.draws_differ
    for seed in range(7):
        drawn = method.draw(net, seed)(words, None)[0]
        expected = make_model().eval()
        for weight, value in zip(trained(expected), course[1 + 2 * (seed % 3)], strict=True):
            weight.data.copy_(value)
        assert torch.equal(drawn, expected(words)[0])
    average = [torch.stack(three).mean(0) for three in zip(*course[1::2], strict=True)]
    for weight, value in zip(trained(method.mean_module(net)), average, strict=True):
        torch.testing.assert_close(weight.detach(), value)
    # What is trained is untouched by all this.
    assert same(net.module, course[-1])


def test_training_resumed_between_snapshots_goes_on_identically(make, objective):
    method, net, optimiser = make(burn_in=0.0, snapshots=4)
    train(method, net, optimiser, objective, steps=range(1, 8))
    saved = copy.deepcopy((net.state_dict(), optimiser.state_dict(), method.streams.state()))
    assert len(net) == 2
    expected = train(method, net, optimiser, objective, steps=range(8, STEPS + 1))

    again, other, optimiser = make(burn_in=0.0, snapshots=4)
    other.load_state_dict(saved[0])
    optimiser.load_state_dict(saved[1])
    again.streams.restore(saved[2])
    course = train(again, other, optimiser, objective, steps=range(8, STEPS + 1))
    for a, b in zip(course, expected, strict=True):
        assert all(map(torch.equal, a, b))
    assert other.state_dict().keys() == net.state_dict().keys()
    for name, value in net.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])


@pytest.mark.parametrize(
    ("kind", "options", "word"),
    [
        (LangevinOptions, {"prior_sigma": 0.0}, "--prior-sigma"),
        (LangevinOptions, {"temperature": -0.1}, "--temperature"),
        (LangevinOptions, {"burn_in": 1.0}, "--burn-in"),
        (LangevinOptions, {"snapshots": 0}, "--snapshots"),
        (LangevinOptions, {"thinning": 0}, "--thinning"),
        (PreconditionedOptions, {"memory": 1.0}, "--memory"),
        (PreconditionedOptions, {"damping": 0.0}, "--damping"),
    ],
)
def test_options_that_cannot_work_are_refused(kind, options, word):
    with pytest.raises(ConfigError, match=word):
        kind(**options)
