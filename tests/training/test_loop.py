"""The training loop with a method and a problem that record what they are asked and given."""

import math
from dataclasses import asdict
from types import SimpleNamespace

import pytest
import torch

from bayesrnn.errors import TrainingDivergedError
from bayesrnn.random import RandomStreams
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.loop import Trainer
from bayesrnn.training.optimisation import Schedule, make_optimiser
from bayesrnn.training.run_directory import RunDirectory
from bayesrnn.training.settings import LoopSettings

from .recording import LR_SCALE, SLOPE, STEPS, Net, Recorder, Recording


@pytest.fixture
def make_trainer(tmp_path):
    """A function that makes a trainer in a folder of its own, or the one by name."""

    def make(problem, name="run", noise=0.0, optimiser="sgd", observe=None, **settings):
        streams, net = RandomStreams(3), Net()
        method = Recording(streams, noise)
        run = RunDirectory(tmp_path / name)
        run.create()
        defaults = {"epochs": 2, "schedule": Schedule(0.1, 1, 0.5), "clip": None}
        defaults |= {"unit": "sign", "measure": "error"}
        return Trainer(
            net,
            method,
            problem,
            make_optimiser(optimiser, method.parameter_groups(net), 1.0, 0.0),
            LoopSettings(**{**defaults, "save_minutes": 60.0, **settings}),
            streams,
            run,
            "fingerprint",
            observe,
        )

    return make


@pytest.mark.parametrize(("sequences", "count"), [(1, 1), (4, 3), (20, 2), (3, 7)])
@pytest.mark.parametrize("weighting", ["uniform", "geometric"])
def test_shares_of_the_kl(make_trainer, weighting, sequences, count):
    """An epoch charges the KL once per sequence, and a minibatch its own one once."""
    trainer = make_trainer(Recorder(count, sequences), kl_weighting=weighting)
    trainer.train()
    shares = trainer.method.shares
    assert len(shares) == 2 * count
    weights = [
        1 / count if weighting == "uniform" else 2 ** (count - 1 - number) / (2**count - 1)
        for number in range(count)
    ]
    assert [share.epoch for share in shares] == pytest.approx(
        2 * [weight / sequences for weight in weights]
    )
    assert [share.minibatch for share in shares] == pytest.approx(2 * count * [1 / sequences])
    assert sum(share.epoch for share in shares[:count]) == pytest.approx(1 / sequences)


def test_the_kl_is_warmed_up(make_trainer):
    """With the third power of the steps, over one and a half epochs of two; then it is whole."""
    trainer = make_trainer(Recorder(count=2, sequences=4), epochs=3, kl_warmup=1.5)
    trainer.train()
    shares = trainer.method.shares
    expected = [share / 8 for share in (1 / 27, 8 / 27, 1, 1, 1, 1)]
    assert [share.epoch for share in shares] == pytest.approx(expected)
    assert {share.minibatch for share in shares} == {1 / 4}


@pytest.mark.parametrize("clip", [None, 1.2])
def test_rates_and_clipping_of_each_group(make_trainer, clip):
    """Held, then decayed; the second group has a rate of its own, and a gradient below the clip."""
    trainer = make_trainer(Recorder(count=1), epochs=4, schedule=Schedule(0.4, 2, 0.5), clip=clip)
    net, places = trainer.net, []

    def note(*_):
        places.append([net.first.detach().clone(), net.second.detach().clone()])

    note()
    trainer.optimiser.register_step_post_hook(note)
    trainer.train()
    for epoch, lr in enumerate([0.4, 0.4, 0.2, 0.1]):
        (first, second), (first_after, second_after) = places[epoch : epoch + 2]
        gradient = torch.tensor([epoch + 1.0, 1.0], dtype=torch.double)
        if clip is not None:
            gradient *= clip / gradient.norm()
        torch.testing.assert_close(first - first_after, lr * gradient, rtol=1e-5, atol=0)
        slope = torch.tensor(SLOPE, dtype=torch.double)
        torch.testing.assert_close(second - second_after, LR_SCALE * lr * slope)


def test_a_norm_that_the_method_knows_is_taken_for_the_first_group(make_trainer):
    trainer = make_trainer(Recorder(count=1), epochs=1, clip=1.0, log_every=1)
    before = [parameter.detach().clone() for parameter in trainer.net.parameters()]
    trainer.method.known_norm = 1000.0
    trainer.train()
    first, second = (b - p.detach() for b, p in zip(before, trainer.net.parameters(), strict=True))
    ones = torch.ones(2, dtype=torch.double)
    torch.testing.assert_close(first, 0.1 * ones / 1000, rtol=1e-5, atol=0)
    torch.testing.assert_close(second.norm().item(), 0.1 * LR_SCALE)
    assert trainer.run.metrics.read()[0]["gradient_norm"] == 1000.0


def test_the_method_says_which_group_its_norm_is_of(make_trainer):
    trainer = make_trainer(Recorder(count=1), epochs=1, clip=1.0, log_every=1)
    second = trainer.net.second.detach().clone()
    trainer.method.known_norm, trainer.method.group = 1000.0, 1
    trainer.train()
    moved = (second - trainer.net.second.detach()).norm().item()
    assert moved == pytest.approx(0.1 * LR_SCALE / 1000, rel=1e-5)
    assert trainer.run.metrics.read()[0]["gradient_norm"] == 1000.0


def test_minibatches_of_each_epoch_in_order(make_trainer):
    problem = Recorder(count=3)
    make_trainer(problem, epochs=3).train()
    asked = [epoch for place, epoch in enumerate(problem.epochs) if place]  # without __init__'s
    assert asked == [0, 1, 2]
    assert problem.used == [(epoch, number) for epoch in range(3) for number in range(3)]


def test_the_state_is_handed_on_within_an_epoch_without_its_history(make_trainer):
    problem = Recorder(count=3)
    trainer = make_trainer(problem)
    before = []
    trainer.optimiser.register_step_pre_hook(
        lambda *_: before.append(trainer.net.first.detach().clone())
    )
    trainer.train()
    assert [state is None for state in problem.states] == [True, False, False] * 2
    for place in (1, 2, 4, 5):
        state = problem.states[place]
        assert state["count"] == 1
        (found,) = state["sums"]
        assert not found.requires_grad
        epoch_start = place - place % 3
        torch.testing.assert_close(found, sum(before[epoch_start:place]))


def test_the_best_epoch_is_the_one_with_the_highest_likelihood(make_trainer):
    """The first of equals, whatever the measure and other metrics say."""
    trainer = make_trainer(Recorder(count=3, nlls={0: 0.5, 1: 0.2, 2: 0.2, 3: 0.3}), epochs=4)
    kept = {}
    trainer.optimiser.register_step_post_hook(
        lambda *_: kept.update({len(kept) + 1: trainer.net.first.detach().clone()})
    )
    trainer.train()
    store = CheckpointStore(trainer.run.path)
    best, last = store.load("best"), store.load("last")
    assert (best.step, last.step) == (6, 12)
    assert (trainer.run.path / "best").read_text() == "6\n"
    assert torch.equal(best.model["first"], kept[6])
    assert torch.equal(last.model["first"], kept[12])
    assert trainer.position.best == 0.2


def test_an_epoch_with_more_kept_networks_is_better_whatever_its_likelihood(make_trainer):
    problem = Recorder(count=1, nlls={0: 0.1, 1: 0.5, 2: 0.4, 3: 0.45})
    trainer = make_trainer(problem, epochs=4)
    trainer.method.kept = lambda net: 0 if problem.epochs[-1] == 0 else 3
    trainer.train()
    assert CheckpointStore(trainer.run.path).load("best").step == 3
    assert (trainer.position.best, trainer.position.best_kept) == (0.4, 3)


def test_the_likelihood_at_the_best_temperature_chooses_if_there_is_one(make_trainer, capsys):
    problem = Recorder(count=1, nlls={0: 0.1, 1: 0.5}, fitted_nlls=[0.1, 0.08, 0.09])
    trainer = make_trainer(problem, epochs=3)
    trainer.train()
    assert (trainer.position.best, trainer.position.best_by) == (0.08, "fitted_nll")
    assert trainer.store.load("best").step == 2
    assert "validation fitted nll   0.0800, error" in capsys.readouterr().err


def test_a_run_that_was_chosen_by_its_likelihood_goes_on_so(make_trainer):
    trainer = make_trainer(Recorder(count=1, nlls={0: 0.1}), epochs=1)
    trainer.train()
    later = make_trainer(Recorder(1, nlls={1: 0.2}, fitted_nlls=[0.3, 0.01]), epochs=2)
    later.resume()
    later.train()
    assert (later.position.best, later.position.best_by) == (0.1, "nll")
    assert later.store.load("best").step == 1


def test_a_best_of_zero_is_a_best(make_trainer):
    trainer = make_trainer(Recorder(count=1, nlls={0: 0.0, 1: 0.1}))
    trainer.train()
    assert CheckpointStore(trainer.run.path).load("best").step == 1


def test_the_line_of_an_epoch_shows_what_chooses_and_the_measure(make_trainer, capsys):
    make_trainer(Recorder(nlls={0: 0.69315, 1: 0.75})).train()
    first, second = capsys.readouterr().err.split("epoch ")[-2:]
    assert "validation nll   0.6932, error    0.00%  (best so far)" in first
    assert "validation nll   0.7500, error -100.00%" in second
    assert "best" not in second


def test_a_run_of_an_earlier_version_goes_on_by_its_measure(make_trainer):
    """Its best is an error, to which no likelihood may be compared."""
    trainer = make_trainer(Recorder(count=1, nlls={0: 0.1, 1: 0.2, 2: 0.3}), epochs=1)
    trainer.train()
    store = trainer.store
    saved = store.load()
    del saved.state["position"]["best_by"]
    saved.state["position"]["best"] = -0.5  # as bad as no later error
    store.save(saved, best=True)
    later = make_trainer(Recorder(count=1, nlls={1: 0.2, 2: 0.3}), epochs=3)
    later.resume()
    assert later.position.best_by == "error"
    later.train()
    assert [record["best"] for record in later.run.metrics.read()] == [True, True, True]
    assert (later.position.best, store.load("best").step) == (-2.0, 3)
    assert store.load().state["position"]["best_by"] == "error"


@pytest.mark.parametrize("seen_kl", [0.0, 2.5])
def test_log_records(make_trainer, monkeypatch, seen_kl):
    """What a network paid for having seen the targets is part of every loss that is shown."""
    seen, problem = [], Recorder(count=3, sequences=4, nlls={0: 0.5, 1: 0.25})
    monkeypatch.setattr(
        "bayesrnn.training.loop.time", SimpleNamespace(monotonic=lambda: problem.seconds)
    )
    schedule = Schedule(1e-3, 1, 0.5)
    trainer = make_trainer(problem, log_every=2, observe=seen.append, schedule=schedule)
    trainer.method.kl, trainer.method.seen_kl = 6.0, seen_kl
    losses = []
    loss = trainer.method.loss

    def noted(*arguments):
        found = loss(*arguments)
        losses.append(found.terms["nll"] + seen_kl)
        return found

    monkeypatch.setattr(trainer.method, "loss", noted)
    norms = []
    trainer.optimiser.register_step_pre_hook(
        lambda *_: norms.append(trainer.net.first.grad.norm().item())
    )
    trainer.train()

    def training(epoch, step, lr):
        nll = losses[step - 1] / (STEPS + (step - 1) % 3)
        return {
            "kind": "train",
            "epoch": epoch,
            "step": step,
            "loss": pytest.approx(nll),
            "square": pytest.approx(nll**2),
            "gradient_norm": pytest.approx(norms[step - 1]),
            "lr": lr,
            # 4 sequences of 5 signs every 2 seconds, also where an epoch began in between.
            "signs_per_second": 10,
            "kl_per_sign": 6.0 / STEPS,
            "calls": step,
        }

    def finished(epoch, valid):
        nll = sum(losses[3 * epoch - 3 : 3 * epoch]) / (3 * STEPS + 0 + 1 + 2)
        return {
            "kind": "epoch",
            "epoch": epoch,
            "step": 3 * epoch,
            "train_loss": pytest.approx(nll),
            "train_square": pytest.approx(nll**2),
            "valid_error": 1.0 - epoch,
            "valid_nll": valid,
            "best": True,
        }

    records = trainer.run.metrics.read()
    assert records == [
        training(1, 2, 1e-3),
        finished(1, 0.5),
        training(2, 4, 5e-4),
        training(2, 6, 5e-4),
        finished(2, 0.25),
    ]
    assert seen == records


def test_saved_after_so_many_minutes(make_trainer, monkeypatch):
    problem, found = Recorder(count=8), []
    monkeypatch.setattr(
        "bayesrnn.training.loop.time", SimpleNamespace(monotonic=lambda: problem.seconds)
    )
    trainer = make_trainer(problem, epochs=1, save_minutes=5 / 60)
    monkeypatch.setattr(trainer, "save", lambda best=False: found.append(trainer.position.step))
    trainer.train()
    assert found == [3, 6, 8]  # two seconds a step, and the end of the epoch


@pytest.mark.parametrize(
    "extra",
    [
        lambda net: net.first.sum() * math.nan,
        lambda net: net.first.sum() * 0 + math.inf,
        lambda net: (net.second * 0).sqrt().sum(),  # 0, with a gradient of 0 * inf
    ],
    ids=["loss nan", "loss infinite", "gradient of the second group"],
)
@pytest.mark.parametrize("known", [None, 1.0])
def test_divergence_is_an_error_and_saves_nothing(make_trainer, extra, known):
    trainer = make_trainer(Recorder(count=3), log_every=1)
    trainer.method.known_norm = known
    trainer.method.extra[5] = extra
    updates = []
    trainer.optimiser.register_step_post_hook(lambda *_: updates.append(1))
    with pytest.raises(TrainingDivergedError, match=r"at step 5 \(epoch 2\)"):
        trainer.train()
    assert len(updates) == 4
    assert all(parameter.isfinite().all() for parameter in trainer.net.parameters())
    assert trainer.store.load("last").step == 3
    assert trainer.store.steps() == [3]
    assert trainer.run.metrics.read()[-1]["step"] == 4


def test_divergence_at_the_first_step_leaves_no_checkpoint(make_trainer):
    trainer = make_trainer(Recorder())
    trainer.method.extra[1] = lambda net: net.first.sum() * math.nan
    with pytest.raises(TrainingDivergedError, match="nothing of it is saved"):
        trainer.train()
    assert not trainer.store.exists()
    assert trainer.store.steps() == []


class Killed(Exception):
    pass


def kill():
    raise Killed


def without_speed(records):
    return [{k: v for k, v in r.items() if k != "signs_per_second"} for r in records]


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("saved", [4, 6, 7, 8])
def test_resumed_in_the_second_epoch_it_goes_on_identically(make_trainer, saved, optimiser):
    """Saved after some steps, killed two later, and resumed by a trainer that knows nothing."""
    options = {"noise": 0.1, "optimiser": optimiser, "epochs": 3, "log_every": 1, "clip": 5.0}
    errors = {0: 0.5, 1: 0.3, 2: 0.4}
    whole = make_trainer(Recorder(4, 2, errors), "whole", **options)
    whole.train()

    problem = Recorder(4, 2, errors)
    killed = make_trainer(problem, **options)
    problem.events = {saved: killed.save, saved + 2: kill}
    with pytest.raises(Killed):
        killed.train()

    problem = Recorder(4, 2, errors)
    resumed = make_trainer(problem, **options)
    resumed.resume(str(saved))
    assert resumed.position.step == saved
    resumed.train()
    assert problem.used == [divmod(step, 4) for step in range(saved, 12)]

    for name, value in whole.net.state_dict().items():
        assert torch.equal(resumed.net.state_dict()[name], value)
    assert asdict(resumed.position) == asdict(whole.position)
    assert resumed.method.calls == whole.method.calls
    assert [group["lr"] for group in resumed.optimiser.param_groups] == [
        group["lr"] for group in whole.optimiser.param_groups
    ]
    records = [without_speed(t.run.metrics.read()) for t in (resumed, whole)]
    assert records[0] == records[1]
    for which in ("best", "last"):
        one, other = resumed.store.load(which), whole.store.load(which)
        assert one.step == other.step
        assert all(torch.equal(one.model[name], other.model[name]) for name in other.model)
