"""A search over runs of the toy task, begun, joined, killed, taken up and shown."""

import json
import os
import shutil
import signal

import optuna
import pytest
from optuna.trial import TrialState

from bayesrnn.errors import ConfigError, Interrupted, MissingExtraError, RunError
from bayesrnn.options import from_toml
from bayesrnn.studies.search import worker
from bayesrnn.studies.search.lease import holder
from bayesrnn.studies.search.record import TrialRecord, read_progress, read_record
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.loop import Trainer
from bayesrnn.training.run_directory import RunDirectory

from ...conftest import model_hash


def told(folder):
    """How often each trial was told, by the journal's own lines."""
    lines = map(json.loads, (folder / "journal.log").read_text().splitlines())
    ends = [line["trial_id"] for line in lines if line["op_code"] == 6 and line["state"] in (1, 2)]
    return {trial: ends.count(trial) for trial in ends}


def study(folder):
    """The search as any other program that has Optuna sees it."""
    backend = optuna.storages.journal.JournalFileBackend(str(folder / "journal.log"))
    storage = optuna.storages.JournalStorage(backend)
    return optuna.load_study(study_name="search", storage=storage)


def test_trials_are_runs_and_the_journal_says_what_they_say(search, opened, toy):
    folder, said = search(trials=4)
    trials = study(folder).get_trials()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 4
    assert told(folder) == {0: 1, 1: 1, 2: 1, 3: 1}
    for trial in trials:
        run = folder / "trials" / f"{trial.number:04d}"
        config = toy.open_run(run).config
        params = dict(trial.params)
        assert {name: config.options[name] for name in params} == params
        assert config.options["prior"] == "mixture"
        epochs = [r for r in RunDirectory(run).metrics.read() if r["kind"] == "epoch"]
        assert trial.value == [r["valid_nll"] for r in epochs if r["best"]][-1]
        assert trial.intermediate_values == {r["epoch"]: r["valid_nll"] for r in epochs}
        assert read_record(run) == TrialRecord(trial.number, params, "complete", trial.value)
    # The first one has the settings of the recipe.
    assert trials[0].params == {"prior_per": "row", "antithetic": True, "sigma_scale": 1.0}
    best = min(trials, key=lambda trial: trial.value)
    assert f"Trial {best.number} is the best: loss {best.value:.4f}" in said
    assert best.number == study(folder).best_trial.number


def test_best_toml_trains_the_best_trial_again(search, toy, program, tmp_path):
    folder, _ = search()
    again = tmp_path / "again"
    code, _, errors = program(
        "train", "toy", "--config", folder / "best.toml", "--out", again, "--no-calibrate"
    )
    assert code == 0, errors
    number = study(folder).best_trial.number
    assert read_progress(again).best == study(folder).best_value
    saved, made = (
        from_toml(path.read_text(), "")
        for path in (folder / f"trials/{number:04d}/config.toml", folder / "best.toml")
    )
    assert saved.pop("calibrate") is False
    assert made.pop("calibrate") is True
    assert saved == made


def test_a_search_goes_on_and_takes_no_other_settings(search, toy, program, tmp_path):
    folder, _ = search(trials=2)
    program("search", "toy", "--out", folder, "--trials", 3)
    assert len(study(folder).get_trials()) == 3
    for given, said in (
        (["--hidden", "4"], "--hidden is 4, but the search in"),
        (["--space", "wide"], "--space is wide, but the search in"),
        (["--no-pruning"], "--no-pruning is given, but the search in"),
    ):
        code, _, errors = program("search", "toy", "--out", folder, *given)
        assert code == 1
        assert said in errors
        assert errors.count("\n") == 1
    for given, said in (
        (["--epochs", "+3"], "--epochs is +3, which is more than a run has"),
        (["--start-from", "runs/a"], "a search trains its runs from the start"),
    ):
        code, _, errors = program("search", "toy", "--out", tmp_path / "new", *given)
        assert (code, said in errors) == (1, True), errors
    code, _, errors = program("search", "mnist", "--out", folder)
    assert (code, "is a search over runs of `bayesrnn train toy`" in errors) == (1, True)


def test_settings_depend_on_the_trials_before_alone(search):
    """A search in pieces finds what one in one piece finds; so does one that was torn."""
    whole, _ = search("whole", trials=14)
    pieces, _ = search("pieces", trials=5)
    search("pieces", trials=12)
    (pieces / "journal.log").unlink()  # the trials are the truth
    search("pieces", trials=14)
    found = [
        [(t.params, t.value) for t in study(folder).get_trials()] for folder in (whole, pieces)
    ]
    assert found[0] == found[1]
    # By then TPE chooses: not all of its trials can be those of random draws.
    assert len({t.params["sigma_scale"] for t in study(whole).get_trials()}) == 14


class Killed(BaseException):
    """Stands for a SIGKILL: nothing of the worker's own handles it."""


@pytest.mark.parametrize("moment", ["asking", "begun", "mid-epoch", "trained", "told"])
def test_a_trial_whose_worker_died_is_finished_by_another(
    search, monkeypatch, opened, moment, space_file
):
    quiet, _ = search("quiet", trials=2)
    folder = quiet.parent / "killed"

    def die(*_args, **_kwargs):
        raise Killed

    with monkeypatch.context() as patch:
        module = "bayesrnn.studies.search"
        if moment == "asking":
            patch.setattr("optuna.trial.Trial.suggest_float", die)
        elif moment == "begun":
            patch.setattr(f"{module}.worker.train_run", die)
        elif moment == "mid-epoch":
            stepped = iter(range(9))  # six minibatches an epoch
            step = Trainer.step
            patch.setattr(
                Trainer,
                "step",
                lambda self: step(self) if next(stepped, None) is not None else die(),
            )
        elif moment == "trained":
            patch.setattr(f"{module}.search.Search.tell", die)
        else:
            patch.setattr(f"{module}.search.Search._tell", die)
        with pytest.raises(Killed):
            search("killed", trials=2)
    assert len(study(folder).get_trials()) == 1
    search("killed", trials=2)
    assert told(folder) == {0: 1, 1: 1}
    states = [[(t.params, t.value) for t in study(f).get_trials()] for f in (quiet, folder)]
    assert states[0] == states[1]


def test_one_worker_leaves_the_trial_of_another_alone(search, opened):
    folder, _ = search(trials=1)
    one, other = opened(folder), opened(folder)
    mine = one.claim(3)
    theirs = other.claim(3)
    assert (mine.record.number, theirs.record.number) == (1, 2)
    assert one.claim(3) is None
    assert worker.left_to_others(one) == "other workers are training 2 trials: 1, 2"
    mine.lease.release()
    again = other.claim(3)
    assert again.record == mine.record
    for claim in (again, theirs):
        other.tell(claim.record.over("complete", 1.0))
        other.tell(claim.record.over("complete", 1.0))
        claim.lease.release()
    assert told(folder) == {0: 1, 1: 1, 2: 1}


def test_a_trial_that_diverges_is_over_and_the_search_goes_on(search, monkeypatch):
    folder, said = search(trials=2, given={"lr": 1e18, "clip": 0.0})
    assert "diverged" in said
    assert "trial 1: the loss became" in said
    assert [t.state for t in study(folder).get_trials()] == [TrialState.PRUNED] * 2
    assert not (folder / "best.toml").exists()


def test_settings_that_cannot_be_are_asked_for_anew(search, space_file, tmp_path):
    space_file.write_text(
        'sigma_lr = 1.0\nprior_step = {}\nprior = {choices = ["mixture", "gaussian"]}\n'
    )
    folder, _ = search(trials=4)
    states = [trial.state for trial in study(folder).get_trials()]
    assert states.count(TrialState.COMPLETE) == 4
    refused = [t for t in study(folder).get_trials() if t.state == TrialState.FAIL]
    assert all("--prior-step natural goes with" in t.user_attrs["refused"] for t in refused)
    assert all(t.params == {"prior": "mixture", "prior_step": "natural"} for t in refused)
    space_file.write_text('sigma_lr = 0.0\nprior_step = {choices = ["natural"]}\n')
    with pytest.raises(ConfigError, match="50 settings in a row cannot be trained"):
        search("never", trials=1)


def test_a_trial_is_stopped_only_once_its_learning_rate_falls(search, monkeypatch, opened):
    monkeypatch.setattr(optuna.pruners.MedianPruner, "prune", lambda *_: True)
    given = {"epochs": 5, "hold_epochs": 3, "decay": 0.5}
    folder, said = search(trials=1, given=given)
    assert read_progress(folder / "trials/0000").epochs == 4  # the first with a lower rate
    assert read_record(folder / "trials/0000").state == "pruned"
    assert "stopped after epoch 4" in read_record(folder / "trials/0000").reason
    assert "pruned" in said
    folder, _ = search("all", trials=1, given=given, pruning=False)
    assert read_progress(folder / "trials/0000").epochs == 5


def test_a_stop_request_saves_in_mid_epoch_and_says_how_to_go_on(search, monkeypatch):
    quiet, _ = search("quiet", trials=1)
    step = Trainer.step

    def step_and_stop(trainer):
        if trainer.position.step == 8:  # of six in each epoch
            os.kill(os.getpid(), signal.SIGTERM)
        return step(trainer)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", step_and_stop)
        with pytest.raises(Interrupted) as stopped:
            search("stopped", trials=1)
    folder = quiet.parent / "stopped"
    assert stopped.value.signal_number == signal.SIGTERM
    assert str(stopped.value) == (
        "stopped in trial 0; everything is saved; go on with: bayesrnn search toy --trials 1 "
        f"--out {folder}"
    )
    assert CheckpointStore(folder / "trials/0000").step("last") == 9
    assert holder(folder / "trials/0000/lease") == ""
    search("stopped", trials=1)
    assert model_hash(folder / "trials/0000") == model_hash(quiet / "trials/0000")


def test_an_error_of_a_trial_says_where(search, monkeypatch):
    def fail(*_args, **_options):
        raise RunError("the disk is full")

    monkeypatch.setattr(worker, "train_run", fail)
    with pytest.raises(RunError, match=r"trial 0, in .*0000, cannot be trained: the disk is full"):
        search()


def test_a_dry_run_and_a_status_train_nothing(search, program, toy, tmp_path):
    folder, said = search(trials=9, dry_run=True)
    assert not folder.exists()
    assert "sigma_scale: 0.1 to 3 (log)" in said
    assert "antithetic: no, yes" in said
    assert "first trials: 1, then 8 by TPE" in said
    with pytest.raises(RunError, match="--status is given, but"):
        search(status=True)
    search(trials=2)
    (folder / "search.html").unlink()
    _, shown = search(status=True, trials=40)
    assert "2 trials: 2 complete" in shown
    assert (folder / "search.html").is_file()
    assert len(study(folder).get_trials()) == 2


def test_a_damaged_trial_is_named(search):
    folder, _ = search(trials=1)
    (folder / "trials/0000/trial.json").write_text("{")
    with pytest.raises(RunError, match=r"trial.json is damaged; remove the folder"):
        search(trials=1)
    shutil.rmtree(folder / "trials/0000")
    _, said = search(trials=2)
    assert "1 trial: 1 complete" in said


def test_without_optuna_the_extra_is_named(search, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'bayesrnn\[search\]'"):
        search()
