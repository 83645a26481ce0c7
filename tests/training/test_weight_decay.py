"""Weight decay is for weights alone, with every method and every optimiser."""

import copy
import inspect

import pytest
import torch
from torch import nn

from bayesrnn.core.init import absolute
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.training.optimisation import (
    _UNUSABLE,
    clipped_step,
    gradient_norms,
    make_optimiser,
    restore_optimiser,
)

OPTIMISERS = [
    name
    for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind)
    and "weight_decay" in inspect.signature(kind).parameters
    and name not in _UNUSABLE
]


class Net(nn.Module):
    """A bit of everything: weights, a bias, a normalisation, a dropout layer, a single number."""

    def __init__(self):
        super().__init__()
        self.log_noise = nn.Parameter(torch.tensor(2.0))
        self.recurrent = nn.LSTM(3, 4, 2)
        self.line = nn.Sequential(nn.Dropout(0.0), nn.LayerNorm(4), nn.Linear(4, 2))
        for parameter in self.parameters():
            nn.init.constant_(parameter, 2.0)


def made(method, **options):
    kind = METHODS[method]
    method = kind(kind.options_for(options)(**options), RandomStreams(0))
    net = method.build(Net(), Hints(sigma_init={"*": absolute(0.1)}))
    return method, net


def decayed(method, net, optimiser, weight_decay=0.1):
    """The names of the parameters that an update with a gradient of zero moves."""
    before = copy.deepcopy(net.state_dict())
    groups, undecayed = method.parameter_groups(net), method.undecayed(net)
    optimiser = make_optimiser(optimiser, groups, 0.1, weight_decay, undecayed)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    clipped_step(optimiser, 1.0, gradient_norms(optimiser))
    return {
        name for name, value in net.state_dict().items() if not torch.equal(value, before[name])
    }


def test_the_optimisers_are_those_of_torch():
    assert {"SGD", "Adam", "AdamW", "RMSprop", "Adafactor"} <= set(OPTIMISERS)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_no_standard_deviation_is_decayed_by_any_optimiser(optimiser):
    method, net = made("sharpened")
    found = decayed(method, net, optimiser)
    assert found == {f"loc.{name}" for name in decayed(*made("plain"), optimiser)}
    assert "loc.recurrent.weight_ih_l0" in found
    assert "loc.recurrent.bias_hh_l1" in found


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_the_decay_is_what_was_asked_for_with_every_optimiser(weight_decay):
    """Also where torch's default is another: 0.01 for AdamW, and `lambd` of 1e-4 for ASGD."""
    for name in OPTIMISERS:
        groups = [{"params": [nn.Parameter(torch.ones(2))]}]
        (group,) = make_optimiser(name, groups, 0.1, weight_decay).param_groups
        assert (group["weight_decay"], group.get("lambd", 0)) == (weight_decay, 0), name


def test_without_decay_a_gradient_of_zero_moves_nothing():
    for name in OPTIMISERS:
        assert decayed(*made("plain"), name, weight_decay=0.0) == set(), name


@pytest.mark.parametrize("name", ["plain", "bbb"])
def test_a_run_with_a_decay_that_its_configuration_does_not_say_goes_on_without(name):
    method, net = made(name)
    groups, undecayed = method.parameter_groups(net), method.undecayed(net)
    old = make_optimiser("adamw", groups, 0.1, 0.01, undecayed)
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    old.step()
    new = make_optimiser("adamw", method.parameter_groups(net), 0.1, 0.0, undecayed)
    restore_optimiser(new, old.state_dict())
    assert {group["weight_decay"] for group in new.param_groups} == {0.0}
    for parameter in net.parameters():
        torch.testing.assert_close(new.state[parameter], old.state[parameter])


def test_what_is_decayed_with_each_method():
    weights = {
        *(f"recurrent.{name}" for name, _ in nn.LSTM(3, 4, 2).named_parameters()),
        "line.2.weight",
        "line.2.bias",
    }
    for name, kind in METHODS.items():
        if kind.own_optimiser or name == "ensemble":
            continue
        prefix = "loc." if name in ("bbb", "sharpened") else ""
        assert decayed(*made(name), "sgd") == {prefix + weight for weight in weights}, name
    found = decayed(*made("ensemble", base="bbb", members=2), "sgd")
    assert found == {f"members.{n}.loc.{weight}" for n in range(2) for weight in weights}


def test_means_and_deviations_are_clipped_together_though_one_of_them_decays():
    """Against torch's own clipping of one group, with the decay of the means added by hand."""
    found = []
    for weight_decay in (0.0, 0.25):
        method, net = made("bbb")
        groups, undecayed = method.parameter_groups(net), method.undecayed(net)
        optimiser = make_optimiser("sgd", groups, 0.1, weight_decay, undecayed)
        before = copy.deepcopy(net.state_dict())
        for number, parameter in enumerate(net.parameters()):
            parameter.grad = torch.full_like(parameter, 0.1 * number)
        norms = gradient_norms(optimiser)
        expected = nn.utils.get_total_norm([p.grad for p in net.parameters()]).item()
        assert norms == pytest.approx([expected])
        clipped_step(optimiser, 1.0, norms)
        found.append(net.state_dict())
    plain, with_decay = found
    spared = {"loc.log_noise", "loc.line.1.weight", "loc.line.1.bias"}
    for name, value in plain.items():
        is_weight = name.startswith("loc.") and name not in spared
        expected = value - (0.1 * 0.25 * before[name] if is_weight else 0)
        torch.testing.assert_close(with_decay[name], expected)


def test_without_decay_the_groups_are_those_of_the_method():
    method, net = made("sharpened")
    groups, undecayed = method.parameter_groups(net), method.undecayed(net)
    optimiser = make_optimiser("adam", groups, 0.1, 0.0, undecayed)
    assert [group["params"] for group in optimiser.param_groups] == [
        group["params"] for group in method.parameter_groups(net)
    ]
    assert not any("clip_group" in group for group in optimiser.param_groups)


@pytest.mark.parametrize("name", ["bbb", "plain", "sharpened"])
def test_a_run_from_before_the_groups_were_cut_goes_on(name):
    method, net = made(name)
    old = make_optimiser("adam", method.parameter_groups(net), 0.1, 0.1)
    for number, parameter in enumerate(net.parameters()):
        parameter.grad = torch.full_like(parameter, number)
    old.step()
    new = make_optimiser("adam", method.parameter_groups(net), 0.1, 0.1, method.undecayed(net))
    assert len(new.param_groups) > len(old.param_groups)
    restore_optimiser(new, old.state_dict())
    for parameter in net.parameters():
        torch.testing.assert_close(new.state[parameter], old.state[parameter])
    assert {group["weight_decay"] for group in new.param_groups} == {0.0, 0.1}
    restore_optimiser(new, copy.deepcopy(new.state_dict()))
    with pytest.raises(ValueError, match="parameter group"):
        restore_optimiser(new, make_optimiser("adam", [{"params": [parameter]}], 1, 0).state_dict())


def test_sigmas_stay_where_they_are_under_a_run_with_weight_decay(
    train_arguments, program, tmp_path
):
    arguments = [*train_arguments, "--method", "bbb", "--epochs", "1", "--weight-decay"]
    mean = {}
    for decay in ("0", "0.01"):
        code, *_ = program(*arguments, decay, "--out", tmp_path / decay)
        assert code == 0
        net = TASK.open_run(tmp_path / decay).net
        mean[decay] = torch.cat([sigma.flatten() for sigma in net.sigmas().values()]).mean().item()
    assert mean["0.01"] == pytest.approx(mean["0"], rel=0.02)
