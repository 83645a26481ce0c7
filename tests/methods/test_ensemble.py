"""Ensembles: members of their own start, one after the other or side by side."""

import copy
import dataclasses

import pytest
import torch
from torch import nn

from bayesrnn.core.init import absolute
from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Bounded, Hints, KLScale, Outcome
from bayesrnn.methods.ensemble import Ensemble, EnsembleOptions, member_seed
from bayesrnn.random import RandomStreams
from bayesrnn.training.optimisation import clipped_step, gradient_norms

SEED = 5
KL_SCALE = KLScale(epoch=0.01, minibatch=1.0)
BASES = {"plain": {}, "dropout": {"dropout": 0.4}, "bbb": {}, "sharpened": {"eta_lr": 0.01}}


def initialise(module, generator):
    module.initialise(0.5, generator)


HINTS = Hints(("output.bias",), {"*": absolute(0.1)}, initialise)


def make(base="plain", members=3, side_by_side=False, **options):
    values = {"base": base, "members": members, "side_by_side": side_by_side, **options}
    return Ensemble(Ensemble.options_for(values)(**values), RandomStreams(SEED))


def alone(base, number, make_model, **options):
    """The base alone, with the seed of a member."""
    streams = RandomStreams(member_seed(SEED, number))
    module = make_model()
    initialise(module, streams["init"])
    method = METHODS[base](METHODS[base].options_type(**options), streams)
    return method, method.build(module, HINTS)


def built(method, make_model):
    module = make_model()
    initialise(module, RandomStreams(SEED)["init"])
    return method.build(module, HINTS)


def make_optimiser(method, net, kind=torch.optim.SGD):
    groups = method.parameter_groups(net)
    for group in groups:
        group["lr"] = 0.1 * group.pop("lr_scale", 1.0)
    return kind(groups)


def carried(words):
    """A function that gives the objective of a minibatch from a carried state."""

    def objective_from(state):
        def objective(network):
            logits, after = network(words[:-1], state)
            return Outcome(
                nn.functional.cross_entropy(logits.flatten(0, 1), words[1:].flatten()), after
            )

        return objective

    return objective_from


def train(method, net, optimiser, objective_from, steps=3, clip=0.05, state=None):
    """Train as the loop does, a tight clip included; gives losses and the last state."""
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = method.loss(net, objective_from(state), KL_SCALE)
        loss.total.backward()
        norms = gradient_norms(optimiser, loss.gradient_norm(), loss.group)
        clipped_step(optimiser, clip, norms)
        state = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, loss.state)
        losses.append((loss.total.item(), loss.terms, norms[loss.group]))
    return losses, state


def equal(net, other):
    pairs = zip(net.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_members_start_where_the_base_would_with_their_seeds(make_model):
    net = built(make(), make_model)
    for number, member in enumerate(net.members):
        assert equal(member, alone("plain", number, make_model)[1])
    assert not equal(net.members[0], net.members[1])
    assert not equal(net.members[1], net.members[2])


def test_seeds_of_members():
    assert member_seed(7, 0) == 7
    seeds = {member_seed(root, number) for root in range(20) for number in range(20)}
    assert len(seeds) == 400
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_without_a_hint_the_layers_start_anew_by_themselves(make_model):
    method = make()
    before = torch.get_rng_state()
    net = method.build(make_model(), Hints())
    assert torch.equal(torch.get_rng_state(), before)
    assert equal(net.members[0], make_model())
    for one, other in ((0, 1), (1, 2)):
        for (name, a), b in zip(
            net.members[one].named_parameters(), net.members[other].parameters(), strict=True
        ):
            assert torch.equal(a, b) == (not a.requires_grad), name
    assert equal(net, make().build(make_model(), Hints()))


@pytest.mark.parametrize("base", BASES)
def test_one_after_the_other_each_is_trained_as_if_alone(base, make_model, words):
    method = make(base, **BASES[base])
    assert method.rounds == 3
    net = built(method, make_model)
    optimiser = make_optimiser(method, net, torch.optim.Adam)
    for number in range(3):
        method.begin_round(net, number)
        assert method.members(net) == number + 1
        others = copy.deepcopy([m for n, m in enumerate(net.members) if n != number])
        found, _ = train(method, net, optimiser, carried(words))
        for member, before in zip(
            [m for n, m in enumerate(net.members) if n != number], others, strict=True
        ):
            assert equal(member, before)
        single, expected = alone(base, number, make_model, **BASES[base])
        reference, _ = train(
            single, expected, make_optimiser(single, expected, torch.optim.Adam), carried(words)
        )
        assert found == reference
        assert equal(net.members[number], expected)


@pytest.mark.parametrize("base", BASES)
def test_a_snapshot_starts_where_the_one_before_it_ended(base, make_model, words):
    method = make(base, start="previous", **BASES[base])
    assert method.rounds_go_on
    net = built(method, make_model)
    optimiser = make_optimiser(method, net, torch.optim.Adam)
    method.begin_round(net, 0)
    train(method, net, optimiser, carried(words))
    ended = copy.deepcopy(net.members[0])
    method.begin_round(net, 1)
    assert equal(net.members[1], ended)
    train(method, net, optimiser, carried(words))
    learnt = copy.deepcopy(net.members[1])
    assert not equal(learnt, ended)
    method.begin_round(net, 1)  # the next epoch of the same round
    assert equal(net.members[1], learnt)
    assert equal(net.members[0], ended)


@pytest.mark.parametrize("side_by_side", [False, True])
def test_the_prior_pulls_those_that_are_trained(side_by_side, make_model, words):
    options = {"prior": "fitted", "sigma_lr": 1.0, "prior_step": "natural"}
    method = make("bbb", side_by_side=side_by_side, **options)
    net = built(method, make_model)
    before = copy.deepcopy(net)
    method.begin_round(net, 0)
    loss = method.loss(net, carried(words)(None), KL_SCALE)
    loss.pull(1.0)
    moved = [not equal(*pair) for pair in zip(net.members, before.members, strict=True)]
    assert moved == [number == 0 or side_by_side for number in range(len(moved))]


def test_epochs_of_rounds():
    def rounds(epochs, **values):
        return Ensemble.round_epochs(values, epochs)

    assert rounds(10) == (10,) * 5
    assert rounds(10, members=2) == (10, 10)
    assert rounds(10, members=3, side_by_side=True) == (10,)
    assert rounds(10, members=3, start="previous") == (10, 3, 3)
    assert rounds(10, members=3, start="previous", later_epochs=0.5) == (10, 5, 5)
    assert rounds(1, members=3, start="previous") == (1, 1, 1)


def test_snapshots_cannot_be_trained_side_by_side():
    with pytest.raises(ConfigError, match="--start is previous, but with --side-by-side"):
        EnsembleOptions(start="previous", side_by_side=True)


@pytest.mark.parametrize("base", BASES)
def test_side_by_side_is_as_many_separate_runs(base, make_model, words):
    method = make(base, side_by_side=True, **BASES[base])
    assert method.rounds == 1
    net = built(method, make_model)
    method.begin_round(net, 0)
    assert method.members(net) == 3
    found, state = train(method, net, make_optimiser(method, net), carried(words))
    runs = []
    for number in range(3):
        single, expected = alone(base, number, make_model, **BASES[base])
        optimiser = make_optimiser(single, expected)
        losses, own_state = train(single, expected, optimiser, carried(words))
        runs.append(losses)
        for a, b in zip(net.members[number].parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
        for a, b in zip(state["members"][number], own_state, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    for step, (total, terms, norm) in enumerate(found):
        assert total == pytest.approx(sum(run[step][0] for run in runs) / 3, rel=1e-5)
        for name, value in terms.items():
            mean = sum(run[step][1][name] for run in runs) / 3
            assert value == pytest.approx(mean, rel=1e-4, abs=1e-6)
        assert norm == pytest.approx(runs[0][step][2], rel=1e-5)


class Weighted(nn.Module):
    """A network without a state that takes a second argument."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, x, lengths, scale):
        return (self.linear(x).squeeze() * lengths["of"]).sum() * scale


def test_side_by_side_other_arguments_are_handed_on_and_no_state_is_no_state():
    method = make(side_by_side=True, members=2)
    net = method.build(Weighted(), Hints())
    arguments = (torch.ones(2, 3), {"of": torch.tensor([1.0, 2.0])})
    loss = method.loss(net, lambda run: Outcome(run(*arguments, scale=3.0), None), KL_SCALE)
    assert loss.state is None
    expected = sum(member(*arguments, scale=3.0).item() for member in net.members) / 2
    assert loss.total.item() == pytest.approx(expected)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("side_by_side", [False, True])
def test_resumed_it_goes_on_identically(base, side_by_side, make_model, words):
    def begin():
        method = make(base, side_by_side=side_by_side, **BASES[base])
        net = built(method, make_model)
        return method, net, make_optimiser(method, net, torch.optim.Adam)

    method, net, optimiser = begin()
    for number in range(1 if side_by_side else 2):
        method.begin_round(net, number)
        _, state = train(method, net, optimiser, carried(words))
    saved = copy.deepcopy((net.state_dict(), optimiser.state_dict(), method.state(), state))
    expected = train(method, net, optimiser, carried(words), state=state)

    again, other, optimiser = begin()
    other.load_state_dict(saved[0])
    optimiser.load_state_dict(saved[1])
    again.restore(saved[2])
    again.begin_round(other, 0 if side_by_side else 1)
    found = train(again, other, optimiser, carried(words), state=saved[3])
    assert found[0] == expected[0]
    assert equal(net, other)


@pytest.mark.parametrize("base", BASES)
def test_draws_go_through_the_members(base, make_model, words):
    method = make(base, **BASES[base])
    net = built(method, make_model)
    method.begin_round(net, 2)
    single, _ = alone(base, 0, make_model, **BASES[base])
    assert method.draws_differ == single.draws_differ
    with torch.no_grad():
        for seed in (0, 1, 2, 3, 10):
            expected = single.draw(net.members[seed % 3], seed // 3)(words, None)[0]
            assert torch.equal(method.draw(net, seed)(words, None)[0], expected)
        # Of an unfinished run, the members trained so far.
        method.begin_round(net, 1)
        expected = single.draw(net.members[1], 5)(words, None)[0]
        assert torch.equal(method.draw(net, 11)(words, None)[0], expected)


@pytest.mark.parametrize(("side_by_side", "stands"), [(False, 1), (True, 0)])
def test_one_member_stands_for_all(side_by_side, stands, make_model, words):
    method = make("bbb", side_by_side=side_by_side)
    net = built(method, make_model)
    method.begin_round(net, 1)
    assert method.mean_module(net) is net.members[stands].module
    expected = net.members[stands].eval()(words)[0]
    assert torch.equal(method.mean(net)(words)[0], expected)
    assert not isinstance(make("sharpened"), Bounded)


def test_steps_and_diagnostics_are_passed_to_the_base(make_model):
    method = make("sharpened")
    net = built(method, make_model)
    calls = []
    for number, base in enumerate(method.bases):
        base.after_step = lambda net, step, steps, number=number: calls.append(
            (number, step, steps)
        )
    method.begin_round(net, 1)
    method.after_step(net, 4, 9)
    assert calls == [(1, 4, 9)]
    expected = method.bases[1].diagnostics(net.members[1])
    assert expected
    assert method.diagnostics(net) == expected
    method = make("plain", side_by_side=True)
    net = built(method, make_model)
    calls.clear()
    for number, base in enumerate(method.bases):
        base.after_step = lambda net, step, steps, number=number: calls.append(
            (number, step, steps)
        )
    method.after_step(net, 4, 9)
    assert calls == [(0, 4, 9), (1, 4, 9), (2, 4, 9)]


def test_the_options_are_those_of_ensemble_and_base():
    kind = Ensemble.options_for({"base": "dropout"})
    assert {item.name for item in dataclasses.fields(kind)} == {
        *("base", "members", "side_by_side", "start", "later_epochs", "dropout")
    }
    options = kind(base="dropout", dropout=0.3)
    assert options.base_options() == METHODS["dropout"].options_type(0.3)
    assert Ensemble.recipe_names({"base": "sharpened"}) == ["ensemble", "sharpened", "bbb"]
    assert Ensemble.recipe_names({}) == ["ensemble", "plain"]
    assert EnsembleOptions().base == "plain"
    assert Ensemble.options_for({})().members == 5
    with pytest.raises(ConfigError, match="--dropout is 1"):
        kind(base="dropout", dropout=1.0)


@pytest.mark.parametrize("base", ["ensemble", "sgld", "psgld", "ivon", "nonsense", 3, None])
def test_what_cannot_be_a_base_is_refused(base):
    for use in (
        lambda: Ensemble.options_for({"base": base}),
        lambda: Ensemble.recipe_names({"base": base}),
        lambda: EnsembleOptions(base=base),
    ):
        with pytest.raises(ConfigError, match=r"--base is .*there are: plain, dropout"):
            use()


def test_fewer_than_two_members_are_refused():
    with pytest.raises(ConfigError, match="--members is 1; it has to be from 2 to 1000"):
        EnsembleOptions(members=1)
