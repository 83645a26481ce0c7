"""A training by `fit` that is stopped and called again ends as if nothing had happened."""

import os
import signal

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

import bayesrnn as br
from bayesrnn.errors import CheckpointError, ConfigError, Interrupted, RunError
from bayesrnn.training import fitting
from bayesrnn.training.run_directory import RunDirectory

METHODS = {
    "plain": {},
    "dropout": {},
    "variational-dropout": {},
    "bbb": {"prior": "mixture", "prior_step": "gradient"},
    "sharpened": {},
    "sgld": {"snapshots": 3},
    "ivon": {},
    "ensemble": {"members": 2, "base": "bbb"},
}


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.GRU(1, 4, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.output = nn.Linear(4, 2)

    def forward(self, x):
        return self.output(self.dropout(self.recurrent(x)[0][:, -1]))


def made(kind=Reader):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind()


def sequences(count, seed):
    x = torch.randn(count, 6, 1, generator=torch.Generator().manual_seed(seed))
    return x, (x.sum((1, 2)) > 0).long()


def loader(generator):
    """Five minibatches of unequal size, in random order."""
    return DataLoader(
        TensorDataset(*sequences(36, 1)), batch_size=8, shuffle=True, generator=generator
    )


def fit(out=None, loss=F.cross_entropy, method="bbb", own_generator=True, **options):
    given = {"epochs": 3, "valid": [sequences(20, 2)], **options}
    generator = torch.Generator().manual_seed(3) if own_generator else None
    return br.fit(made(), loader(generator), loss, method=method, out=out, **given)


def stopping(at, how):
    """The loss, but its call number `at` does something else first."""
    calls = []

    def loss(output, target):
        calls.append(1)
        if len(calls) == at:
            how()
        return F.cross_entropy(output, target)

    return loss


class Killed(BaseException):
    pass


def kill():
    raise Killed


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def assert_same(one, other):
    assert one.history == other.history
    assert one.best_epoch == other.best_epoch
    state = other.net.state_dict()
    assert state.keys() == one.net.state_dict().keys()
    assert all(torch.equal(x, state[name]) for name, x in one.net.state_dict().items())


@pytest.mark.parametrize("method", METHODS)
def test_stopped_and_called_again(tmp_path, method):
    if method == "ivon":
        pytest.importorskip("ivon", reason="the extra `ivon` brings it")
    options = {"method": method, **METHODS[method]}
    expected = fit(**options)
    # With sharpening there are two calls to a minibatch; six more belong to the first epoch.
    found = fit(tmp_path, stopping(9 if method != "sharpened" else 17, interrupt), **options)
    assert len(found.history) == 1
    again = fit(tmp_path, stopping(5, interrupt), **options)
    assert len(again.history) in (1, 2)
    assert_same(fit(tmp_path, **options), expected)


@pytest.mark.parametrize("own_generator", [True, False])
@pytest.mark.parametrize("average", [0.0, 0.9])
def test_killed_in_the_middle_of_an_epoch(tmp_path, own_generator, average):
    options = {"own_generator": own_generator, "average": average, "epochs": 5}
    expected = fit(**options)
    for at in (4, 20):  # before anything is saved, and in the third epoch or later
        with pytest.raises(Killed):
            fit(tmp_path, stopping(at, kill), **options)
    assert_same(fit(tmp_path, **options), expected)


def test_checkpoints_within_an_epoch(tmp_path, monkeypatch):
    expected = fit()
    monkeypatch.setattr(fitting, "_SAVE_SECONDS", -1.0)
    with pytest.raises(Killed):
        fit(tmp_path, stopping(4, kill))
    assert (tmp_path / "last").read_text() == "3\n"
    assert_same(fit(tmp_path), expected)


def test_patience_and_no_validation(tmp_path):
    for number, options in enumerate(({"patience": 1, "epochs": 9, "lr": 0.3}, {"valid": None})):
        expected = fit(**options)
        out = tmp_path / str(number)
        with pytest.raises(Killed):
            fit(out, stopping(9, kill), **options)
        assert_same(fit(out, **options), expected)


def test_a_training_that_is_over_is_loaded(tmp_path, capsys):
    expected = fit(tmp_path)
    assert_same(fit(tmp_path, stopping(1, kill)), expected)
    assert "the training is over" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["variational-dropout", "bbb", "dropout"])
def test_the_same_module_is_given_again_as_in_a_notebook(tmp_path, method):
    class Words(Reader):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(2, 1)

        def forward(self, x):
            return super().forward(self.embedding((x[..., 0] > 0).long()))

    def run(module, loss=F.cross_entropy, out=None):
        batches = [sequences(8, 1), sequences(8, 2)]
        return br.fit(module, batches, loss, method=method, epochs=3, out=out)

    expected, module = run(made(Words)), made(Words)
    run(module, stopping(4, interrupt), tmp_path)
    assert_same(run(module, out=tmp_path), expected)


def test_a_request_to_end_saves_and_ends(tmp_path):
    expected = fit()
    with pytest.raises(Interrupted, match="epoch 1; all is saved"):
        fit(tmp_path, stopping(2, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert_same(fit(tmp_path), expected)


class Signalling:
    """Validation batches whose reading number `at` comes with a signal."""

    def __init__(self, at, number):
        self.at, self.number = at, number

    def __iter__(self):
        self.at -= 1
        if not self.at:
            os.kill(os.getpid(), self.number)
        return iter([sequences(20, 2)])


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_request_during_validation_is_honoured_when_the_epoch_is_saved(tmp_path, epoch, capsys):
    expected = fit()
    with pytest.raises(Interrupted, match=f"after epoch {epoch}; all is saved"):
        fit(tmp_path, valid=Signalling(epoch, signal.SIGTERM))
    assert_same(fit(tmp_path), expected)
    found = fit(tmp_path / "other", valid=Signalling(epoch, signal.SIGINT))
    assert len(found.history) == epoch
    assert f"stopped after epoch {epoch}; the best so far is kept" in capsys.readouterr().err


def test_the_order_of_a_sampler_inside_others_and_of_validation_goes_on(tmp_path):
    """Bit for bit: the validation loss is a sum in the order of its batches."""

    def run(out=None, loss=F.cross_entropy):
        data, valid = TensorDataset(*sequences(36, 1)), TensorDataset(*sequences(23, 2))
        own, other = (torch.Generator().manual_seed(seed) for seed in (3, 4))
        shuffled = BatchSampler(RandomSampler(data, generator=own), 8, drop_last=False)
        return br.fit(
            made(), DataLoader(data, batch_sampler=shuffled), loss, epochs=3, method="plain",
            valid=DataLoader(valid, batch_size=5, shuffle=True, generator=other), out=out,
        )  # fmt: skip

    expected = run()
    # Five minibatches and five of validation are an epoch; the third begins with call 21.
    for at in (13, 24):
        run(tmp_path / str(at), stopping(at, interrupt))
        assert_same(run(tmp_path / str(at)), expected)


def test_an_interruption_before_the_first_epoch_is_over_is_passed_on(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, stopping(2, interrupt))
    assert (tmp_path / "last").read_text() == "2\n"


def test_mistakes(tmp_path):
    fit(tmp_path, epochs=1)
    for given, match in (
        ({"epochs": 2}, r"was begun with epochs 1, not 2: give the same arguments"),
        ({"epochs": 1, "kl_weight": 0.5}, "begun with kl_weight 0.03, not 0.5"),
        ({"epochs": 1, "method": "plain"}, "begun with method bbb, not plain"),
        ({"epochs": 1, "valid": None}, "begun with validation True, not False"),
    ):
        with pytest.raises(ConfigError, match=match):
            fit(tmp_path, **given)
    with pytest.raises(CheckpointError, match="does not belong to this module"):
        br.fit(
            nn.Sequential(nn.Flatten(), nn.Linear(6, 2)), loader(torch.Generator()),
            F.cross_entropy, epochs=1, valid=[sequences(20, 2)], out=tmp_path,
        )  # fmt: skip
    with RunDirectory(tmp_path).lock(), pytest.raises(RunError, match="is training in"):
        fit(tmp_path, epochs=1)
    with pytest.raises(RunError, match="is a file"):
        fit(tmp_path / "last")
