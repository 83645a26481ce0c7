"""Weights dropped while training: the schedule, the order, and what stays of them (nothing)."""

from dataclasses import asdict

import pytest
import torch
from torch import nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.priors import FittedGaussian
from bayesrnn.methods.base import KLScale
from bayesrnn.random import RandomStreams
from bayesrnn.training import dropping
from bayesrnn.training.averaging import ParameterAverage
from bayesrnn.training.dropping import Dropping, DropSchedule
from bayesrnn.training.loop import Trainer
from bayesrnn.training.optimisation import Schedule, make_optimiser
from bayesrnn.training.run_directory import RunDirectory
from bayesrnn.training.settings import LoopSettings

from .recording import Net, Recorder, Recording


def test_the_share_rises_by_the_third_power_of_what_is_left():
    schedule = DropSchedule(0.8, 2.0, 6.0)
    # 1 - (1 - x)^3 at x = 0, 1/4, 1/2, 3/4, 1.
    expected = {0: 0, 1.9: 0, 2: 0, 3: 37 / 64, 4: 7 / 8, 5: 63 / 64, 6: 1, 6.1: 1, 100: 1}
    for epoch, part in expected.items():
        assert schedule.at(epoch) == pytest.approx(0.8 * part, abs=1e-15)
    at_once = DropSchedule(0.5, 1.0, 1.0)
    assert (at_once.at(0.99), at_once.at(1.0)) == (0, 0.5)


def linear():
    net = nn.Linear(4, 2, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, -8.0, 3.0, 0.0], [-2.0, 7.0, -6.0, 5.0]]))
    return net


def made(net, schedule, average=None):
    return Dropping(net, net, schedule, average or ParameterAverage(net, 0.0))


def test_the_smallest_go_and_none_comes_back(monkeypatch):
    monkeypatch.setattr(dropping, "EVERY", 1)
    net = linear()
    drop = made(net, DropSchedule(0.5, 0.0, 2.0))
    drop.after_step(1, 1)  # 7/16 of 8 weights: 3.5, which rounds to 4
    assert drop.share == pytest.approx(7 / 16)
    assert net.weight.tolist() == [[0, -8, 0, 0], [0, 7, -6, 5]]
    with torch.no_grad():  # dropped weights that an optimiser moves, and one that is now small
        net.weight.copy_(torch.tensor([[9.0, -8.0, 9.0, 9.0], [9.0, 0.5, -6.0, 5.0]]))
    drop.after_step(2, 1)
    assert drop.share == 0.5
    assert net.weight.tolist() == [[0, -8, 0, 0], [0, 0.5, -6, 5]]
    with torch.no_grad():
        net.weight.fill_(1.0)
    drop.after_step(3, 1)
    assert net.weight.tolist() == [[0, 1, 0, 0], [0, 1, 1, 1]]


def test_the_weight_of_the_kl_grows_with_what_is_dropped(monkeypatch):
    monkeypatch.setattr(dropping, "EVERY", 1)
    net = linear()
    drop = made(net, DropSchedule(0.5, 0.0, 2.0, kl_factor=3.0))
    found = [drop.kl_factor]
    for step in (1, 2, 3):
        drop.after_step(step, 1)
        found.append(drop.kl_factor)
    assert found == pytest.approx([1, 1 + 2 * 7 / 8, 3, 3])
    assert made(net, None).kl_factor == 1
    assert KLScale(0.5, 0.25).times(3.0) == (1.5, 0.25)


def test_gradients_are_of_what_is_left():
    net = linear()
    drop = made(net, DropSchedule(0.5, 0.0, 0.0))
    net.weight.grad = torch.full_like(net.weight, 3.0)
    drop.mask_gradients()
    assert (net.weight.grad == 3).all()
    drop.after_step(1, 1)
    drop.mask_gradients()
    assert net.weight.grad.tolist() == [[0, 3, 0, 0], [0, 3, 3, 3]]


def test_a_posterior_is_ranked_by_signal_to_noise_and_left_without_noise():
    net = Bayesian(linear(), FittedGaussian(), 0.1)
    with torch.no_grad():  # a large mean in much noise, a small one in little
        net.rho.weight[0, 1], net.rho.weight[0, 2] = 4.0, -9.0
    drop = Dropping(net, net.module, DropSchedule(0.25, 0.0, 0.0), ParameterAverage(net, 0.0))
    ratio = net.module.weight.abs() / net.sigmas()["weight"]
    least = ratio.detach().flatten().argsort()[:2].tolist()
    assert sorted(least) == [1, 3]
    drop.after_step(1, 1)
    assert net.dropped()["weight"].flatten().nonzero().flatten().tolist() == [1, 3]
    assert net.module.weight.flatten()[[1, 3]].tolist() == [0, 0]
    assert net.factors()["weight"].term.dropped == 2


def test_averages_rank_and_are_dropped_too():
    net = linear()
    average = ParameterAverage(net, 0.99)
    for _ in range(10):
        average.update()
    with torch.no_grad():
        net.weight.copy_(net.weight.flip(0))  # the last step would have another order
    drop = made(net, DropSchedule(0.5, 0.0, 0.0), average)
    drop.after_step(1, 1)
    assert net.weight.tolist() == [[0, 7, 0, 0], [0, -8, 3, 0]]
    with average.in_place():
        assert net.weight.tolist() == [[0, -8, 0, 0], [0, 7, -6, 5]]


COUNT, EPOCHS = 6, 4


class Killed(Exception):
    pass


def kill():
    raise Killed


@pytest.fixture
def make_trainer(tmp_path):
    def make(name, optimiser):
        streams, net, problem = RandomStreams(3), Net(), Recorder(COUNT)
        method = Recording(streams, noise=0.1)
        run = RunDirectory(tmp_path / name)
        run.create()
        settings = LoopSettings(
            unit="sign",
            measure="error",
            epochs=EPOCHS,
            schedule=Schedule(0.1, 3, 0.5),
            clip=0.5,
            save_minutes=60.0,
            log_every=1,
            average=0.9,
            drop=DropSchedule(0.75, 0.5, 2.5),
        )
        made = make_optimiser(optimiser, method.parameter_groups(net), 1.0, 0.0)
        return Trainer(net, method, problem, made, settings, streams, run, "fingerprint")

    return make


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("saved", [2, 5, 8, 12, 15, 18, 21])
def test_stopped_and_resumed_it_ends_with_the_same_bits(make_trainer, saved, optimiser):
    whole = make_trainer("whole", optimiser)
    whole.train()
    stopped = make_trainer("stopped", optimiser)
    stopped.problem.events = {saved: stopped.save, saved + 1: kill}
    with pytest.raises(Killed):
        stopped.train()
    resumed = make_trainer("stopped", optimiser)
    resumed.resume(str(saved))
    resumed.train()
    assert asdict(resumed.position) == asdict(whole.position)
    for name, value in whole.net.state_dict().items():
        assert torch.equal(resumed.net.state_dict()[name], value)
    weights = torch.cat([parameter.detach() for parameter in whole.net.parameters()])
    assert int((weights == 0).sum()) == 3


def test_the_best_epoch_has_all_dropped_that_is_to_be(make_trainer):
    """However good an epoch was before."""
    trainer = make_trainer("run", "sgd")
    errors = iter((0.1, 0.2, 0.9, 0.8))
    trainer.average.decay = 0.0
    trainer.problem.validate = lambda: {"nll": next(errors), "error": 0.0}
    trainer.train()
    records = [r for r in trainer.run.metrics.read() if r["kind"] == "epoch"]
    assert [r["best"] for r in records] == [True, True, True, True]
    assert [r["dropped_share"] for r in records] == sorted(r["dropped_share"] for r in records)
    assert records[2]["dropped_share"] == records[3]["dropped_share"] == 0.75
