"""Methods that keep several networks, or have an optimiser of their own, in the whole program."""

import json
import math
import shutil
import sys

import pytest
import torch

from bayesrnn.cli.main import main
from bayesrnn.methods import ivon
from bayesrnn.methods.ensemble import member_seed
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.loop import Trainer

from ..conftest import TINY, model_hash

CASES = {
    "dropout": ["--method", "dropout", "--epochs", "2"],
    "sharpened": ["--method", "sharpened", "--epochs", "2"],
    "sgld": ["--method", "sgld", "--epochs", "2", "--snapshots", "3"],
    "psgld": ["--method", "psgld", "--epochs", "2", "--burn-in", "0.1", "--thinning", "20"],
    "ivon": ["--method", "ivon", "--epochs", "2"],
    "ensemble": [
        *("--method", "ensemble", "--base", "bbb", "--members", "2", "--epochs", "2"),
    ],
    "ensemble side by side": [
        *("--method", "ensemble", "--base", "dropout", "--dropout", "0.3", "--members", "2"),
        *("--side-by-side", "--epochs", "2"),
    ],
    "bbb averaged": ["--method", "bbb", "--epochs", "2", "--average", "0.9"],
    "ensemble averaged": [
        *("--method", "ensemble", "--members", "2", "--epochs", "2", "--average", "0.9"),
    ],
}


class Killed(BaseException):
    """The process ends here."""


def stopped_at(step, monkeypatch):
    """Let training end after a step, as if the process were killed right after a checkpoint."""
    original = Trainer.step

    def counted(self):
        if self.position.step == step:
            self.save()
            raise Killed
        return original(self)

    monkeypatch.setattr(Trainer, "step", counted)


@pytest.fixture
def trained(train_arguments, program, tmp_path):
    """A function that trains a run; gives its folder."""

    def train(name, *options):
        run = tmp_path / name
        code, _, errors = program(*train_arguments, *options, "--out", run)
        assert code == 0, errors
        return run

    return train


@pytest.fixture(scope="module")
def whole_run(tiny_text, tmp_path_factory):
    """A function that gives the folder of a run of `CASES`, trained once; nobody may change it."""
    folder = tmp_path_factory.mktemp("runs")

    def train(case):
        run = folder / case
        if not run.exists():
            arguments = ["train", "lm", "--corpus", str(tiny_text), *TINY, *CASES[case]]
            assert main([*arguments, "--out", str(run)]) == 0
        return run

    return train


@pytest.mark.parametrize("case", CASES)
def test_killed_in_the_last_third_and_resumed_it_ends_with_the_same_bits(
    case, whole_run, train_arguments, program, monkeypatch, tmp_path
):
    """The last third is in the middle of the second round of the ensemble."""
    whole = whole_run(case)
    total = CheckpointStore(whole).load("last").step
    killed = tmp_path / "killed"
    with monkeypatch.context() as patch:
        stopped_at(total * 5 // 6, patch)
        with pytest.raises(Killed):
            program(*train_arguments, *CASES[case], "--out", killed)
    assert CheckpointStore(killed).load("last").step == total * 5 // 6
    code, _, errors = program(*train_arguments, "--resume", "--out", killed)
    assert code == 0, errors
    assert model_hash(killed) == model_hash(whole)


def test_every_checkpoint_holds_the_kept_weights(whole_run):
    run = whole_run("psgld")
    store = CheckpointStore(run)
    last = TASK.open_run(run, "last")
    steps, burnt = store.load("last").step, round(0.1 * store.load("last").step)
    assert len(last.net) == min(10, (steps - burnt) // 20)
    assert last.method.members(last.net) == len(last.net)
    # More kept networks are better, so the last epoch is the best, whatever its perplexity.
    assert store.load("best").step == steps


@pytest.mark.parametrize("case", ["sgld", "ensemble"])
def test_averaging_over_the_members_is_that_by_hand(case, trained, program, tmp_path):
    base = ["--base", "plain"] if case == "ensemble" else []
    run = trained("run", *CASES[case], *base)
    model = TASK.open_run(run)
    members = model.method.members(model.net)
    assert members == (3 if case == "sgld" else 2)
    text = model.corpus().test
    probabilities = 0
    with torch.no_grad():
        for number in range(members):
            network = model.method.draw(model.net, number)
            logits = network(text[:-1, None], None)[0].double().squeeze(1)
            probabilities += logits.softmax(-1).gather(1, text[1:, None]) / members
    expected = -probabilities.log().mean().item()
    result = tmp_path / "result.json"
    for samples in (members, 3 * members):  # more draws than networks are all networks
        code, out, errors = program("evaluate", run, "--samples", samples, "--json", result)
        assert code == 0, errors
        assert f"averaged over {members} networks" in out
        assert json.loads(result.read_text())["nll"] == pytest.approx(expected, rel=1e-5)
    # Unasked, one network and all of them are shown.
    code, out, _ = program("evaluate", run, "--json", result)
    assert code == 0
    rows = json.loads(result.read_text())["rows"]
    assert [row["samples"] for row in rows] == [0, members]
    assert rows[1]["nll"] == pytest.approx(expected, rel=1e-5)
    assert f"averaged over {members} networks" in out
    assert rows[0]["label"] in ("one member", "mean of the kept weights")


@pytest.mark.parametrize("average", [0, 0.9])
def test_a_member_is_the_best_epoch_of_the_base_alone(average, trained):
    """Between two members, training goes back to the best epoch; here that is the first.

    So large a rate in the second epoch makes it a bad one.
    """
    wild = ["--lr", "2", "--clip", "0.5", "--hold-epochs", "1", "--decay", "40", "--epochs", "2"]
    wild += ["--average", average]
    ensemble = trained("both", "--method", "ensemble", "--members", "2", *wild, "--seed", "3")
    found = TASK.open_run(ensemble, "last").net
    for number in range(2):
        seed = member_seed(3, number)
        alone = trained(f"alone{number}", "--method", "plain", *wild, "--seed", seed)
        assert CheckpointStore(alone).load("best").step < CheckpointStore(alone).load("last").step
        which = "best" if number == 0 else "last"
        expected = TASK.open_run(alone, which).net.state_dict()
        for name, value in found.members[number].state_dict().items():
            assert torch.equal(value, expected[name]), (number, name)


def test_an_unfinished_ensemble_is_evaluated_with_the_members_that_there_are(
    train_arguments, program, monkeypatch, tmp_path
):
    run, result = tmp_path / "run", tmp_path / "result.json"
    options = ["--method", "ensemble", "--members", "3", "--epochs", "1"]
    stopped_at(3, monkeypatch)
    with pytest.raises(Killed):
        program(*train_arguments, *options, "--out", run)
    code, _, errors = program("evaluate", run, "--json", result)
    assert code == 0, errors
    assert [row["samples"] for row in json.loads(result.read_text())["rows"]] == [0]


@pytest.mark.parametrize(
    ("command", "doing"),
    [
        (("generate", "--words", "3"), "generate"),
        (("evaluate", "--split", "valid", "--dynamic"), "dynamic evaluation"),
        (("prune", "--fractions", "0,0.5"), "prune"),
    ],
)
@pytest.mark.parametrize(
    ("method", "used"),
    [("ensemble", "one member"), ("sgld", "mean of the kept weights"), ("bbb", None)],
)
def test_a_command_for_one_network_says_which_it_takes(
    method, used, command, doing, runs, program, tmp_path
):
    run = shutil.copytree(runs / method, tmp_path / method)
    code, _, errors = program(command[0], run, *command[1:])
    assert code == 0, errors
    notes = [line for line in errors.splitlines() if line.startswith("note: the run keeps")]
    kept = TASK.open_run(run)
    members = kept.method.members(kept.net)
    expected = f"note: the run keeps {members} networks; {doing} uses one: {used}"
    assert notes == ([expected] if used else [])


def test_the_configuration_of_an_ensemble_makes_the_same_run_again(whole_run, trained):
    first = whole_run("ensemble side by side")
    text = (first / "config.toml").read_text()
    assert 'base = "dropout"' in text
    assert "dropout = 0.3" in text
    again = trained("again", "--config", first / "config.toml")
    assert (again / "config.toml").read_text() == text
    assert model_hash(again) == model_hash(first)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "sgld", "--optimizer", "adam"], ["--optimizer is adam", "sgld", "leave it"]),
        (["--method", "ivon", "--optimizer", "sgd"], ["--optimizer is sgd", "ivon", "leave it"]),
        (["--method", "psgld", "--weight-decay", "0.1"], ["--weight-decay", "psgld"]),
        (["--method", "sgld", "--average", "0.9"], ["--average is 0.9", "sgld", "plain, dropout"]),
        (["--method", "ivon", "--average", "0.9"], ["--average is 0.9", "ivon", "leave it out"]),
        (["--method", "bbb", "--average", "1"], ["--average is 1", "at least 0", "below 1"]),
        (["--method", "sgld", "--lr", "1e6"], ["leaps", "give one below"]),
        (["--method", "sgld", "--kl-weighting", "geometric"], ["--kl-weighting", "sgld"]),
        (["--method", "sgld", "--memory", "0.9"], ["no option --memory", "psgld"]),
        (["--method", "ensemble", "--dropout", "0.3"], ["no option --dropout", "dropout"]),
        (["--method", "ensemble", "--base", "sgld"], ["--base is 'sgld'", "there are: plain"]),
        (["--method", "ensemble", "--base", "ensemble"], ["--base is 'ensemble'"]),
        (["--method", "ensemble", "--members", "1"], ["--members is 1", "from 2 to"]),
    ],
)
def test_mistakes_are_told_in_a_line(options, words, train_arguments, program, tmp_path):
    code, _, errors = program(*train_arguments, *options, "--out", tmp_path / "run")
    assert code == 1
    (line,) = errors.splitlines()
    for word in words:
        assert word in line
    assert not CheckpointStore(tmp_path / "run").exists()


def test_without_the_package_ivon_says_which_extra(train_arguments, program, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ivon", None)
    ivon._ivon_type.cache_clear()
    code, _, errors = program(*train_arguments, "--method", "ivon", "--out", tmp_path / "run")
    assert code == 1
    assert "pip install 'bayesrnn[ivon]'" in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("method", ["sgld", "psgld", "ivon", "ensemble"])
def test_digits(method, program, tmp_path):
    """A task without a recurrent state, and with minibatches in another order in each epoch."""
    pytest.importorskip("sklearn", reason="the extra `digits` brings scikit-learn")
    run, result = tmp_path / "run", tmp_path / "result.json"
    options = ["--images", "digits", "--hidden", "50", "--epochs", "10", "--threads", "1"]
    options += ["--side-by-side", "--members", "2"] if method == "ensemble" else []
    code, _, errors = program("train", "mnist", "--method", method, *options, "--out", run)
    assert code == 0, errors
    assert program("evaluate", run, "--json", result)[0] == 0
    found = json.loads(result.read_text())
    assert found["error"] < 0.5
    assert math.isfinite(found["nll"])
