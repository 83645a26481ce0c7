"""A minibatch in shards: the mean over them, each with its own state and noise, or one draw."""

import math

import pytest
import torch

from bayesrnn.errors import ConfigError, PeerError, RunError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, Outcome
from bayesrnn.random import RandomStreams
from bayesrnn.runs.sharding import require_same, require_shards, with_shards
from bayesrnn.tasks import TASKS
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.distributed import Group
from bayesrnn.training.launch import Launch
from bayesrnn.training.optimisation import minibatch_kl_scale
from bayesrnn.training.shards import Whole, parts_of


class Examples:
    """One minibatch of 8 examples, and a state that counts how often it was read."""

    sequences, steps = 8, 1

    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(8, 3, generator=generator)
        self.y = torch.randn(8, 2, generator=generator)

    def __len__(self):
        return 1

    def length(self, number):
        return 1.0

    def __getitem__(self, number):
        return self.part(number, slice(None))

    def part(self, number, sequences):
        return self.x[sequences], self.y[sequences]


class Fit:
    def minibatches(self, epoch):
        return Examples()

    def objective(self, batch, state):
        x, y = batch
        after = x[:, 0] + (0 if state is None else state)
        return lambda network: Outcome((network(x) - y).square().sum(1).mean(), after)


def built(name, **options):
    """A method and its network, always from the same start."""
    kind = METHODS[name]
    method = kind(kind.options_for(options)(**options), RandomStreams(3))
    with RandomStreams(1).as_default("layers"):
        module = torch.nn.Sequential(
            torch.nn.Linear(3, 4), torch.nn.Dropout(0.0), torch.nn.Tanh(), torch.nn.Linear(4, 2)
        )
    return method, method.build(module, Hints())


SCALE = minibatch_kl_scale("uniform", 0, 5, 8)


def step(name, shards, noise="own", apart=False, **options):
    """Loss and gradients of a minibatch."""
    method, net = built(name, **options)
    if method.own_optimiser:
        method.optimiser(net, 0.01, SCALE)
    whole = Whole(net, method, Fit(), "float32")
    parts = parts_of(whole, shards, noise, apart, Group())
    loss = parts.loss(Examples(), 0, None, SCALE)
    if apart:
        (loss.total - loss.prior_kl).backward(retain_graph=True)
        likelihood = gradients(net)
        loss.prior_kl.backward()
        return loss, likelihood, gradients(net)
    loss.total.backward()
    return loss, gradients(net)


def gradients(net):
    named = net.named_parameters()
    return {n: p.grad.clone() for n, p in named if p.grad is not None}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["plain", "bbb", "sgld", "ivon"])
@pytest.mark.parametrize("shards", [2, 4])
def test_with_one_draw_it_is_the_minibatch_in_one(name, shards):
    """The same noise, the KL of one draw in full: all as without shards, to rounding."""
    if name == "ivon":
        pytest.importorskip("ivon")
    loss, found = step(name, shards, noise="shared")
    expected, wanted = step(name, 1)
    assert loss.total.item() == pytest.approx(expected.total.item(), rel=1e-5)
    assert loss.terms == pytest.approx(expected.terms, rel=1e-5)
    assert_same(found, wanted)
    assert torch.equal(torch.cat(loss.state), expected.state)


@pytest.mark.parametrize("name", ["plain", "dropout", "dropconnect", "bbb", "sharpened"])
def test_with_noise_of_their_own_it_is_the_mean_of_small_minibatches(name):
    """Each a minibatch of 4 examples of 8, charged its share of the KL of all 8."""
    loss, found = step(name, 2)
    totals, expected = [], {}
    for shard in range(2):
        method, net = built(name)
        if shard:
            method.streams = RandomStreams(3).of_shard(1)
        batch = Examples().part(0, slice(4 * shard, 4 * shard + 4))
        scale = SCALE._replace(minibatch=1 / 4)
        one = method.loss(net, Fit().objective(batch, None), scale)
        one.total.backward()
        totals.append(one.total.item())
        for key, gradient in gradients(net).items():
            expected[key] = expected.get(key, 0) + gradient / 2
    assert loss.total.item() == pytest.approx(sum(totals) / 2, rel=1e-5)
    assert totals[0] != totals[1]
    assert_same(found, expected)


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_the_kl_can_be_had_apart(noise):
    """As where the likelihood's gradient alone is clipped."""
    loss, likelihood, both = step("bbb", 2, noise, apart=True)
    _, together = step("bbb", 2, noise)
    assert_same(both, together)
    assert loss.prior_kl.item() == pytest.approx(loss.terms["kl"], rel=1e-5)
    assert max((both[n] - likelihood[n]).abs().max().item() for n in both) > 1e-4


def test_members_of_an_ensemble_have_noise_of_their_own_in_each_shard():
    loss, found = step("ensemble", 2, base="bbb", members=2, side_by_side=True)
    assert set(loss.terms) == {"nll", "kl"}
    assert all(math.isfinite(one.abs().sum().item()) for one in found.values())
    method, _ = built("ensemble", base="bbb", members=2)
    streams = [base.streams for one in (method, method.of_shard(1)) for base in one.bases]
    first = [int(torch.randint(2**62, (), generator=one["weights"])) for one in streams]
    assert len(set(first)) == 4


def test_states_and_noise_of_shards_are_kept(tmp_path):
    """From two shards with a history, and what is saved of them, on to the same loss."""
    method, net = built("bbb")
    parts = parts_of(Whole(net, method, Fit(), "float32"), 2, "own", False, Group())
    state = parts.loss(Examples(), 0, None, SCALE).state
    carried, shards = parts.saved(state)
    assert carried is None
    expected = parts.loss(Examples(), 0, state, SCALE)

    method, net = built("bbb")
    again = parts_of(Whole(net, method, Fit(), "float32"), 2, "own", False, Group())
    state = again.restored(None, shards)
    found = again.loss(Examples(), 0, state, SCALE)
    assert found.total.item() == expected.total.item()
    assert all(map(torch.equal, found.state, expected.state))
    with pytest.raises(ValueError, match="not of a run with 2 shards"):
        again.restored(None, shards[:1])


def test_without_shards_a_checkpoint_is_as_ever(train_arguments, program, tmp_path):
    """An epoch with `--shards 1`, and without the option, by the same steps."""
    quick = ("--epochs", "1", "--method", "bbb", "--vocabulary-limit", "100")
    for name, more in {"without": (), "one": ("--shards", "1")}.items():
        code, _, errors = program(*train_arguments, *quick, *more, "--out", tmp_path / name)
        assert code == 0, errors
    models = [CheckpointStore(tmp_path / name).load() for name in ("without", "one")]
    assert all(torch.equal(models[0].model[n], models[1].model[n]) for n in models[0].model)
    assert models[0].state["shards"] is None
    assert "shards" not in (tmp_path / "without" / "config.toml").read_text().replace(
        "shard_noise", ""
    )
    code, _, errors = program("train", "lm", "--resume", "--shards", "2", "--out", tmp_path / "one")
    assert code == 1
    assert "--shards is 2, but the run was started with 1" in errors


def config(**given):
    return TASKS["lm"].resolve({"corpus": ("novel.txt",), **given})


def test_a_new_run_has_a_shard_for_each_process():
    assert with_shards(config(), Group()).shards is None
    assert with_shards(config(), Group(Launch(0, 4))).shards == 4
    assert with_shards(config(shards=8), Group(Launch(0, 4))).shards == 8


@pytest.mark.parametrize(
    ("given", "size", "said"),
    [
        ({"shards": 3, "batch_size": 20}, 1, "--shards is 3, but 20 sequences .* divides 20"),
        ({"shards": 4}, 3, r"there are 3 processes, but .* cut into 4 \(--shards\)"),
        ({}, 2, r"there are 2 processes, but .* cut into 1 \(--shards\)"),
        ({"method": "dropout", "shard_noise": "shared"}, 1, "--shard-noise is shared, but dropout"),
        ({"method": "sharpened", "form": "shrinking", "shards": 2}, 1, "keeps statistics"),
        ({"method": "ensemble", "base": "sharpened", "form": "shrinking", "shards": 2}, 1, "keeps"),
        ({"method": "sharpened", "shard_noise": "shared"}, 1, "another --method: plain, bbb"),
    ],
)
def test_shards_that_cannot_be_are_refused(given, size, said):
    with pytest.raises(ConfigError, match=said):
        require_shards(config(**given), Group(Launch(0, size)))


class Told(Group):
    """A group of two in which the other process says what it is told to."""

    def __init__(self, other):
        super().__init__(Launch(0, 2))
        self.other = other

    def gather(self, value):
        return [value, self.other(value)]


def test_processes_with_other_options_or_data_are_refused():
    task, here = TASKS["lm"], config(device="cpu", threads=1)
    with pytest.raises(RunError, match="process 1 of 2 has other data than process 0"):
        require_same(task, here, "a", Told(lambda own: (own[0], "b")))
    with pytest.raises(RunError, match="other options"):
        require_same(task, here, "a", Told(lambda own: (own[0] + "x", own[1])))

    def elsewhere(own):
        """Where it computes, and where its data lie, may differ."""
        assert "threads" not in own[0]
        assert "novel.txt" not in own[0]
        assert "seed" in own[0]
        return own

    require_same(task, here, "a", Told(elsewhere))


def test_weights_that_drift_apart_are_not_saved():
    method, net = built("bbb")
    whole = Whole(net, method, Fit(), "float32")
    same = parts_of(whole, 2, "own", False, Told(lambda own: own))
    assert len(same.saved(None)[1]) == 2
    apart = parts_of(whole, 2, "own", False, Told(lambda own: {**own, "weights": 1}))
    with pytest.raises(PeerError, match="no longer have the same weights"):
        apart.saved(None)
    before = same._checksum()
    with torch.no_grad():
        next(net.parameters()).view(-1)[0] += 1e-6
    assert same._checksum() != before


def test_minibatches_that_cannot_be_cut_are_refused():
    class Uncut:
        def minibatches(self, epoch):
            return [1, 2]

    method, net = built("plain")
    with pytest.raises(ConfigError, match="--shards is 2, but the minibatches of this task"):
        parts_of(Whole(net, method, Uncut(), "float32"), 2, "own", False, Group())
