"""Resuming says what it does, and trains on for longer or at another rate."""

import json
import shutil

import pytest

from bayesrnn.options import from_toml
from bayesrnn.training.optimisation import Schedule


def config(run):
    return from_toml((run / "config.toml").read_text(), "")


def rates(run):
    """The learning rate of each epoch, from the log of its steps."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return {r["epoch"]: r["lr"] for r in records if r["kind"] == "train"}


@pytest.fixture
def run(train_arguments, program, tmp_path):
    path = tmp_path / "run"
    given = (*train_arguments, "--method", "plain", "--epochs", "2", "--decay", "0.5")
    code, _, errors = program(*given, "--hold-epochs", "1", "--out", path)
    assert code == 0, errors
    return path


def test_a_finished_run_says_so(run, program):
    before = (run / "metrics.jsonl").read_bytes()
    code, _, errors = program("train", "lm", "--resume", "--out", run)
    assert code == 0
    assert f"{run} is finished: it has been trained for all of its 2 epochs" in errors
    assert f"--resume --epochs +3 --out {run}" in errors
    assert (run / "metrics.jsonl").read_bytes() == before


def test_more_epochs_go_on_where_the_run_ended(run, program):
    code, _, errors = program("train", "lm", "--resume", "--epochs", "+2", "--out", run)
    assert code == 0, errors
    assert f"resuming {run} in epoch 3 of 4, at a learning rate of 0.25" in errors
    assert config(run)["epochs"] == 4
    assert rates(run) == {1: 1.0, 2: 0.5, 3: 0.25, 4: 0.125}


def test_another_rate_holds_from_where_the_run_goes_on(run, program):
    given = ("train", "lm", "--resume", "--epochs", "+2", "--lr", "0.3", "--out", run)
    code, _, errors = program(*given)
    assert code == 0, errors
    assert "at a learning rate of 0.3" in errors
    assert rates(run) == {1: 1.0, 2: 0.5, 3: 0.3, 4: 0.3}
    # An interruption later changes nothing of it.
    code, _, errors = program("train", "lm", "--resume", "--epochs", "5", "--out", run)
    assert code == 0, errors
    assert rates(run)[5] == 0.15
    code, _, errors = program(*given[:3], "--epochs", "+2", *given[5:7], "--out", run)
    assert code == 0, errors
    assert config(run)["lr_from"] == 2, "the same rate again is no other one"
    longer = ("--lr", "0.2", "--hold-epochs", "1", "--decay", "0.1", "--epochs", "+2")
    assert program("train", "lm", "--resume", *longer, "--out", run)[0] == 0
    assert rates(run)[8] == 0.2
    assert rates(run)[9] == pytest.approx(0.02)


def test_a_command_with_a_file_and_a_rate_can_be_repeated(run, program, tmp_path):
    file = tmp_path / "first.toml"
    shutil.copy(run / "config.toml", file)
    again = ("train", "lm", "--resume", "--config", file, "--lr", "0.3", "--epochs", "4")
    assert program(*again, "--out", run)[0] == 0
    first = config(run)
    code, _, errors = program(*again, "--out", run)
    assert code == 0, errors
    assert config(run) == first
    assert (first["lr_from"], first["hold_epochs"]) == (2, 2)


def test_a_new_run_by_the_file_of_a_resumed_one_has_the_course_from_the_start(
    run, program, tmp_path
):
    longer = ("--resume", "--epochs", "+1", "--lr", "0.3")
    assert program("train", "lm", *longer, "--out", run)[0] == 0
    new = tmp_path / "new"
    code, _, errors = program("train", "lm", "--config", run / "config.toml", "--out", new)
    assert code == 0, errors
    assert config(new)["lr_from"] == 0


def test_the_course_of_a_rate_can_begin_later():
    schedule = Schedule(2.0, hold=2, decay=0.5, start=3)
    assert [schedule.at(epoch) for epoch in (3, 4, 5, 6)] == [2, 2, 1, 0.5]


def test_rounds_keep_their_rate(train_arguments, program, tmp_path):
    run = tmp_path / "run"
    given = (*train_arguments, "--method", "ensemble", "--members", "2", "--epochs", "1")
    assert program(*given, "--out", run)[0] == 0
    code, _, errors = program("train", "lm", "--resume", "--lr", "0.1", "--out", run)
    assert code == 1
    assert "trains in rounds" in errors


def test_without_out_it_resumes_the_default_folder_or_none(
    train_arguments, program, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    given = (*train_arguments, "--method", "plain", "--epochs", "1")
    code, _, errors = program(*given, "--resume")
    assert code == 1
    assert "--resume was given without --out, and runs/novel-plain-tiny-seed1" in errors
    assert not (tmp_path / "runs").exists()
    assert program(*given)[0] == 0
    code, _, errors = program(*train_arguments, "--method", "plain", "--resume", "--epochs", "+1")
    assert code == 0, errors
    assert "resuming runs/novel-plain-tiny-seed1, the folder that these options name" in errors
    assert config(tmp_path / "runs" / "novel-plain-tiny-seed1")["epochs"] == 2


def test_more_epochs_than_nothing_are_refused(train_arguments, program, tmp_path):
    for options in ((), ("--resume",)):
        code, _, errors = program(
            *train_arguments, *options, "--epochs", "+3", "--out", tmp_path / "none"
        )
        assert code == 1
        assert "--epochs is +3" in errors
        assert "--epochs 3" in errors
