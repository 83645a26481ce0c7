"""Training in rounds, with a method that counts its calls."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bayesrnn.data.batches import Batch
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Method, MinibatchLoss, Outcome
from bayesrnn.random import RandomStreams
from bayesrnn.training.loop import Trainer
from bayesrnn.training.optimisation import Schedule
from bayesrnn.training.run_directory import RunDirectory
from bayesrnn.training.settings import LoopSettings

MINIBATCHES = 2
EPOCHS = 3


class Rounds(Method[None]):
    """Adds 1 to the number of the round's member at each step."""

    name, summary, options_type = "rounds", "", type(None)
    rounds_go_on = False
    later = EPOCHS

    def __init__(self):
        super().__init__(SimpleNamespace(), RandomStreams(0))
        self.begun, self.steps, self.member, self.kl_shares = [], [], None, []

    @classmethod
    def round_epochs(cls, values, epochs):
        return (epochs, cls.later)

    def build(self, module, hints):
        return module

    def loss(self, net, objective, shares):
        self.kl_shares.append(shares.epoch)
        return MinibatchLoss(-net.numbers[self.member], None, {"nll": 1.0})

    def begin_round(self, net, number):
        self.begun.append((number, net.numbers.tolist()))
        self.member = number

    def after_step(self, net, step, steps):
        self.steps.append((step, steps))

    def draw(self, net, seed):
        raise NotImplementedError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.numbers = nn.Parameter(torch.zeros(2))


class Problem:
    """Nothing to learn; `nlls` are those of the epochs."""

    sequences, steps = 1, 1

    def __init__(self, nlls):
        self.nlls, self.epoch = nlls, None
        self.stop_at = None

    def minibatches(self, epoch):
        self.epoch = epoch
        return self

    def __len__(self):
        return MINIBATCHES

    def length(self, number):
        return 1

    def __getitem__(self, number):
        if (self.epoch, number) == self.stop_at:
            raise KeyboardInterrupt
        return Batch(torch.zeros(1), torch.zeros(1))

    def objective(self, batch, state):
        return lambda network: Outcome(torch.tensor(0.0), None)

    def loss_metrics(self, nll):
        return {"nll": nll}

    def validate(self):
        return {"nll": self.nlls[self.epoch]}


class Continued(Rounds):
    """Its second round is shorter, and goes on from the first."""

    rounds_go_on = True
    later = 2


def make_trainer(folder, nlls, epochs=EPOCHS, kind=Rounds, kl_warmup=0.0):
    net, method = Net(), kind()
    run = RunDirectory(folder)
    run.create()
    return Trainer(
        net,
        method,
        Problem(nlls),
        torch.optim.SGD(net.parameters(), lr=1.0),
        LoopSettings(
            *("thing", "nll", epochs, Schedule(1.0, 2, 0.5), None, 60.0),
            log_every=1,
            kl_warmup=kl_warmup,
        ),
        method.streams,
        run,
        "fingerprint",
    )


#: The second epoch of the first round is its best, and better than any of the second round.
ERRORS = [0.3, 0.1, 0.2, 0.9, 0.8, 0.7]


def test_a_round_begins_with_the_best_of_the_one_before(tmp_path):
    trainer = make_trainer(tmp_path / "run", ERRORS)
    trainer.train()
    first = trainer.method.begun
    # Once for each epoch; at full rate an epoch adds 2, in the last epoch of a round half of it.
    assert first == [
        (0, [0, 0]),
        (0, [2, 0]),
        (0, [4, 0]),
        (1, [4, 0]),
        (1, [4, 2]),
        (1, [4, 4]),
    ]
    assert trainer.net.numbers.tolist() == [4, 5]
    # The best of the last round, though an epoch of the first one had a lower error.
    assert trainer.store.load("best").model["numbers"].tolist() == [4, 5]
    assert trainer.position.best == 0.7


def test_steps_and_rates_start_anew_in_each_round(tmp_path):
    trainer = make_trainer(tmp_path / "run", ERRORS)
    trainer.train()
    steps = EPOCHS * MINIBATCHES
    assert trainer.method.steps == 2 * [(step, steps) for step in range(1, steps + 1)]
    rates = [r["lr"] for r in trainer.run.metrics.read() if r["kind"] == "train"]
    assert rates == 2 * [1.0, 1.0, 1.0, 1.0, 0.5, 0.5]
    epochs = [r["epoch"] for r in trainer.run.metrics.read() if r["kind"] == "epoch"]
    assert epochs == [1, 2, 3, 4, 5, 6]


def test_a_shorter_round_goes_through_the_whole_schedule(tmp_path):
    trainer = make_trainer(tmp_path / "run", ERRORS, kind=Continued)
    trainer.train()
    assert trainer.method.steps[-4:] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    rates = [r["lr"] for r in trainer.run.metrics.read() if r["kind"] == "train"]
    assert rates == [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 1.0, 1.0, 0.5, 0.5]
    assert trainer.position.epoch == trainer.epochs == 5


@pytest.mark.parametrize(("kind", "second"), [(Rounds, 1 / 64), (Continued, 1.0)])
def test_the_kl_is_warmed_up_again_unless_a_round_goes_on(tmp_path, kind, second):
    trainer = make_trainer(tmp_path / "run", ERRORS, kind=kind, kl_warmup=2.0)
    trainer.train()
    in_full = 1 / MINIBATCHES
    shares = [share / in_full for share in trainer.method.kl_shares]
    assert shares[:6] == pytest.approx([1 / 64, 8 / 64, 27 / 64, 1, 1, 1])
    assert shares[6] == pytest.approx(second)


@pytest.mark.parametrize("stop_at", [(2, 0), (3, 0), (4, 1)])
def test_resumed_before_at_and_after_the_change_of_rounds(tmp_path, stop_at):
    whole = make_trainer(tmp_path / "whole", ERRORS)
    whole.train()
    stopped = make_trainer(tmp_path / "run", ERRORS)
    stopped.problem.stop_at = stop_at
    with pytest.raises(KeyboardInterrupt):
        stopped.train()
    resumed = make_trainer(tmp_path / "run", ERRORS)
    resumed.resume()
    resumed.train()
    for which in ("best", "last"):
        found, expected = (t.store.load(which) for t in (resumed, whole))
        assert found.step == expected.step
        assert torch.equal(found.model["numbers"], expected.model["numbers"])


def test_killed_between_the_pointers_to_the_best_and_the_last(tmp_path, monkeypatch):
    """`best` is ahead of `last` then: a round must not begin with what came after it."""
    whole = make_trainer(tmp_path / "whole", ERRORS)
    whole.train()
    killed = make_trainer(tmp_path / "run", ERRORS)
    point = killed.store._point

    def dying(name, step):
        if name == "last" and step == 4 * MINIBATCHES:
            raise KeyboardInterrupt
        point(name, step)

    monkeypatch.setattr(killed.store, "_point", dying)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    pointers = [(killed.run.path / name).read_text() for name in ("best", "last")]
    assert pointers == ["8\n", "6\n"]
    resumed = make_trainer(tmp_path / "run", ERRORS)
    resumed.resume()
    resumed.train()
    for which in ("best", "last"):
        found, expected = (t.store.load(which) for t in (resumed, whole))
        assert found.step == expected.step
        assert torch.equal(found.model["numbers"], expected.model["numbers"])


def test_rounds_cannot_be_lengthened(tmp_path):
    make_trainer(tmp_path / "run", ERRORS).train()
    longer = make_trainer(tmp_path / "run", ERRORS, epochs=4)
    with pytest.raises(ConfigError, match="--epochs is 4, but the run was started with 3"):
        longer.resume()
