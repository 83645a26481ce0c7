"""Averaged parameters: the formula, the swap, and the loop that keeps what is better."""

import copy
from dataclasses import asdict

import pytest
import torch
from torch import nn

from bayesrnn.random import RandomStreams
from bayesrnn.training.averaging import EVERY, ParameterAverage, Validation
from bayesrnn.training.loop import Trainer
from bayesrnn.training.optimisation import Schedule, make_optimiser
from bayesrnn.training.run_directory import RunDirectory
from bayesrnn.training.settings import LoopSettings

from .recording import Net, Recorder, Recording


def explicit(path, decay):
    """The weighted mean of every EVERY-th point of a path, which begins after the first step."""
    points = path[EVERY - 1 :: EVERY]
    weights = [decay ** (EVERY * age) for age in reversed(range(len(points)))]
    return sum(w * p for w, p in zip(weights, points, strict=True)) / sum(weights)


def moved(net, average, steps, seed=0):
    """The path of a weight over so many steps, each of which moves it at random."""
    generator, path = torch.Generator().manual_seed(seed), []
    for _ in range(steps):
        with torch.no_grad():
            net.weight += torch.randn(net.weight.shape, generator=generator, dtype=torch.double)
        average.update()
        path.append(net.weight.detach().clone())
    return path


@pytest.mark.parametrize("decay", [1e-9, 0.3, 0.9, 0.998, 1 - 1e-12])
@pytest.mark.parametrize("steps", [10, 19, 20, 57, 400])
def test_it_is_the_weighted_mean_of_the_path(decay, steps):
    net = nn.Linear(3, 2).double()
    average = ParameterAverage(net, decay)
    path = moved(net, average, steps)
    with average.in_place():
        torch.testing.assert_close(net.weight.data, explicit(path, decay), rtol=1e-12, atol=1e-12)
    assert torch.equal(net.weight, path[-1])


def test_the_first_average_is_the_parameters_bit_for_bit():
    """Whatever was there before, also after a restart; and so it stays while nothing moves."""
    net = nn.Linear(3, 2).double()
    average = ParameterAverage(net, 0.998)
    moved(net, average, 3 * EVERY)
    average.restart()
    assert not average.is_ready
    path = moved(net, average, EVERY)
    assert average.is_ready
    for _ in range(5 * EVERY):
        average.update()
    with average.in_place():
        assert torch.equal(net.weight, path[-1])


def test_without_a_decay_there_is_no_average():
    net = nn.Linear(3, 2).double()
    average = ParameterAverage(net, 0.0)
    path = moved(net, average, 2 * EVERY)
    assert not average.is_ready
    with average.in_place():
        assert torch.equal(net.weight, path[-1])
    assert average.state()["averages"] == {}


def test_frozen_parameters_and_buffers_are_those_of_the_moment():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    net[0].bias.requires_grad_(False)
    average = ParameterAverage(net, 0.9)
    for step in range(2 * EVERY):
        net(torch.full((3, 2), float(step)) + torch.eye(3, 2))  # moves the buffers
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.fill_(step)
        average.update()
    before = copy.deepcopy(net.state_dict())
    with average.in_place():
        inside = copy.deepcopy(net.state_dict())
    changed = {name for name in before if not torch.equal(before[name], inside[name])}
    assert changed == {"0.weight", "1.weight", "1.bias"}


def test_a_recurrent_network_with_tied_words_runs_with_the_average():
    """Against a copy that was given the averaged values; the parameters stay the same objects."""

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(5, 4)
            self.recurrent = nn.LSTM(4, 4)
            self.output = nn.Linear(4, 5)
            self.output.weight = self.words.weight

        def forward(self, inputs):
            return self.output(self.recurrent(self.words(inputs))[0])

    torch.manual_seed(0)
    net, inputs = Words(), torch.tensor([[1], [4], [2]])
    average = ParameterAverage(net, 0.95)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    objects, path = list(net.parameters()), []
    for _ in range(4 * EVERY):
        net(inputs).square().sum().backward()
        optimiser.step()
        optimiser.zero_grad()
        average.update()
        path.append([parameter.detach().clone() for parameter in net.parameters()])
    twin = copy.deepcopy(net)
    with torch.no_grad():
        for parameter, values in zip(twin.parameters(), zip(*path, strict=True), strict=True):
            parameter.copy_(explicit([value.double() for value in values], 0.95))
    current = net(inputs).detach()
    with average.in_place():
        torch.testing.assert_close(net(inputs), twin(inputs))
    assert torch.equal(net(inputs), current)
    assert not torch.allclose(current, twin(inputs))
    assert all(p is q for p, q in zip(net.parameters(), objects, strict=True))
    assert net.output.weight is net.words.weight


def test_the_current_parameters_come_back_when_the_block_fails():
    net = nn.Linear(3, 2).double()
    average = ParameterAverage(net, 0.9)
    path = moved(net, average, 25)
    inside = []

    def fail():
        inside.append(net.weight.detach().clone())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), average.in_place():
        fail()
    assert not torch.equal(inside[0], path[-1])
    assert torch.equal(net.weight, path[-1])


def test_what_is_logged_and_shown_of_both():
    averaged, current = {"error": 1.0, "train_error": 2.0}, {"error": 3.0, "train_error": 4.0}
    better = Validation(averaged, "error", averaged=True, others=current)
    logged = {"valid_averaged_error": 1.0, "valid_current_error": 3.0}
    assert better.record() == {**logged, "averaged": True}
    assert better.shown("error") == [(" averaged", 1.0), (" current", 3.0)]
    worse = Validation(current, "error", others=averaged)
    assert worse.record() == {**logged, "averaged": False}
    assert worse.shown("error") == [(" current", 3.0), (" averaged", 1.0)]
    alone = Validation(current, "error")
    assert (alone.record(), alone.shown("error")) == ({}, [("", 3.0)])


COUNT, EPOCHS, DECAY = 7, 5, 0.9
#: The validation errors of the current and the averaged parameters by epoch, from 0. In the first
#: epoch there are too few steps for an average; in the third the two are as good as each other.
ERRORS = {0: (0.9,), 1: (0.8, 0.7), 2: (0.6, 0.6), 3: (0.9, 0.5), 4: (0.55, 0.56)}


class Judged(Recorder):
    """The problem with `ERRORS`; notes the parameters that it is asked to validate."""

    def __init__(self):
        super().__init__(COUNT)
        self.asked, self.net = [], None

    def validate(self):
        epoch = self.epochs[-1]
        before = sum(number == epoch for number, _ in self.asked)
        self.asked.append((epoch, self.net.first.detach().clone()))
        error = ERRORS[epoch][before]
        return {"nll": 2 * error, "error": error}


@pytest.fixture
def make_trainer(tmp_path):
    """A function that makes a trainer in the folder of a name, and a list that its path fills."""

    def make(name="run", optimiser="sgd", decay=DECAY):
        streams, net, problem = RandomStreams(3), Net(), Judged()
        problem.net, method = net, Recording(streams, noise=0.1)
        run = RunDirectory(tmp_path / name)
        run.create()
        trainer = Trainer(
            net,
            method,
            problem,
            make_optimiser(optimiser, method.parameter_groups(net), 1.0, 0.0),
            LoopSettings(
                unit="sign",
                measure="error",
                epochs=EPOCHS,
                schedule=Schedule(0.1, 3, 0.5),
                clip=None,
                save_minutes=60.0,
                log_every=1,
                average=decay,
            ),
            streams,
            run,
            "fingerprint",
        )
        path = []
        trainer.optimiser.register_step_post_hook(
            lambda *_: path.append(net.first.detach().clone())
        )
        return trainer, path

    return make


def averaged_at(path, step):
    return explicit(path[:step], DECAY)


def test_each_epoch_validates_both_and_logs_which_it_keeps(make_trainer, capsys):
    trainer, path = make_trainer()
    trainer.train()
    expected = [path[COUNT - 1]]
    for epoch in range(1, EPOCHS):
        step = COUNT * (epoch + 1)
        expected += [path[step - 1], averaged_at(path, step)]
    for (_, found), wanted in zip(trainer.problem.asked, expected, strict=True):
        torch.testing.assert_close(found, wanted)
    records = [r for r in trainer.run.metrics.read() if r["kind"] == "epoch"]
    assert "averaged" not in records[0]
    found = [(r["valid_error"], r.get("averaged"), r["best"]) for r in records]
    assert found == [
        (0.9, None, True),
        (0.7, True, True),
        (0.6, False, True),
        (0.5, True, True),
        (0.55, False, False),
    ]
    both = [(r["valid_current_error"], r["valid_averaged_error"]) for r in records[1:]]
    assert both == [ERRORS[epoch] for epoch in range(1, EPOCHS)]
    lines = [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()]
    kept = "validation nll 1.4000, error 70.00% averaged, error 80.00% current (best"
    assert any(kept in line for line in lines)
    worse = "validation nll 1.1000, error 55.00% current, error 56.00% averaged"
    assert any(line.endswith(worse) for line in lines)


def test_the_model_of_a_checkpoint_is_what_the_last_epoch_found_better(make_trainer):
    """Also inside an epoch, where both have moved on since."""
    trainer, path = make_trainer()
    models = {}

    def saved():
        trainer.save()
        step = trainer.position.step
        models[step] = trainer.store.load(str(step)).model["first"]

    for step in (5, 12, 14, 17, 20, 21, 24, 31, 33):
        trainer.problem.events[step] = saved
    trainer.train()
    for step, model in models.items():
        if step in (14, 17, 20, 31, 33):  # in the epoch after one that found the average better
            torch.testing.assert_close(model, averaged_at(path, step), rtol=1e-12, atol=0)
            assert not torch.allclose(model, path[step - 1])
        else:
            assert torch.equal(model, path[step - 1])
    assert len(models) == 9
    torch.testing.assert_close(trainer.store.load("best").model["first"], averaged_at(path, 28))
    assert torch.equal(trainer.store.load("last").model["first"], path[-1])


def test_training_itself_is_the_same_with_and_without_an_average(make_trainer):
    paths = []
    for decay in (0.0, DECAY):
        trainer, path = make_trainer(str(decay), decay=decay)
        trainer.train()
        paths.append(torch.stack(path))
    assert torch.equal(*paths)


class Killed(Exception):
    pass


def kill():
    raise Killed


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("saved", [3, 9, 10, 11, 14, 17, 20, 21, 26, 28, 33])
def test_stopped_and_resumed_it_ends_with_the_same_bits(make_trainer, saved, optimiser):
    """Before there is an average, between its updates, in epochs with and without it in place."""
    whole, _ = make_trainer("whole", optimiser)
    whole.train()
    stopped, _ = make_trainer("stopped", optimiser)
    stopped.problem.events = {saved: stopped.save, saved + 1: kill}
    with pytest.raises(Killed):
        stopped.train()
    resumed, _ = make_trainer("stopped", optimiser)
    resumed.resume(str(saved))
    assert resumed.position.step == saved
    resumed.train()
    assert asdict(resumed.position) == asdict(whole.position)
    for name, value in whole.net.state_dict().items():
        assert torch.equal(resumed.net.state_dict()[name], value)
    for which in ("best", "last"):
        one, other = resumed.store.load(which), whole.store.load(which)
        assert one.step == other.step
        assert one.state["average"]["steps"] == other.state["average"]["steps"] == one.step
        for name in ("first", "second"):
            assert torch.equal(one.model[name], other.model[name])
            averages = [each.state["average"]["averages"][name] for each in (one, other)]
            assert torch.equal(*averages)
    epochs = [[r for r in t.run.metrics.read() if r["kind"] == "epoch"] for t in (resumed, whole)]
    assert epochs[0] == epochs[1]
