"""Runs whose weights are gone are refused, and nothing that was found of them is overwritten."""

import shutil

import pytest

from .conftest import TRAINING, command, remove_weights, values_of


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_checkpoints(run):
    """The pointers to them stay."""
    shutil.rmtree(run / "checkpoints")


def with_log_alone(run):
    """What a repository would keep of a run."""
    remove_weights(run)
    shutil.rmtree(run / "results")


def with_results_of_one_epoch(run):
    remove_weights(run)
    log = run / "metrics.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if '"epoch": 2' in line)
    log.write_text("".join(lines[:first]))


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--skip", "training"), ("--seeds", 2)])
@pytest.mark.parametrize("damage", [without_checkpoints, with_log_alone, with_results_of_one_epoch])
def test_a_run_without_weights_is_refused_before_the_work(copied, calls, program, damage, more):
    """Also one that was not asked for: a report without it would overwrite the one that has it."""
    run = copied / "bbb-seed1"
    damage(run)
    before = files(copied)
    code, out, errors = program(*command(copied, *more))
    assert (code, out, calls) == (1, "", [])
    said = f"bayesrnn: {run} has no weights any more, so it can be neither trained on nor measured"
    assert errors.startswith(said)
    assert "put its checkpoints back, move the folder away to train the run anew" in errors
    assert errors.count("\n") == 1
    assert files(copied) == before


def test_the_advice_leads_on(copied, tmp_path, calls, program):
    before = values_of(copied)["runs"]
    run = copied / "bbb-seed1"
    shutil.move(run / "checkpoints", tmp_path)
    assert program(*command(copied))[0] == 1
    shutil.move(tmp_path / "checkpoints", run)
    assert program(*command(copied))[0] == 0
    assert calls == []
    assert values_of(copied)["runs"] == before
    shutil.rmtree(run / "checkpoints")
    run.rename(tmp_path / "aside")
    assert program(*command(copied, *TRAINING))[0] == 0
    assert calls.count("train_run") == 1
    assert [one["name"] for one in values_of(copied)["runs"]] == ["plain-seed1", "bbb-seed1"]


def test_a_run_may_be_a_link_to_a_folder_of_another_name(copied, tmp_path, program, calls):
    before = values_of(copied)["runs"]
    (copied / "bbb-seed1").rename(tmp_path / "mine")
    (copied / "bbb-seed1").symlink_to(tmp_path / "mine")
    assert program(*command(copied))[0] == 0
    assert values_of(copied)["runs"] == before
    assert calls == []


def test_a_seed_written_otherwise_is_not_shown_twice(copied, program):
    (copied / "bbb-seed01").mkdir()
    assert program(*command(copied, "--methods", "plain"))[0] == 0
    names = [run["name"] for run in values_of(copied)["runs"]]
    assert names == ["plain-seed1", "bbb-seed1"]


@pytest.mark.parametrize("epochs", [0, 1])
def test_a_run_that_was_killed_before_its_first_checkpoint_starts_as_asked_for(
    copied, program, epochs
):
    """An epoch is logged a moment before it is saved."""
    run = copied / "plain-seed1"
    if epochs:
        with_results_of_one_epoch(run)
    else:
        remove_weights(run)
        (run / "metrics.jsonl").unlink()
    shutil.rmtree(run / "results")
    only = ("--methods", "plain", "--epochs", 3)
    code, _, errors = program(*command(copied, *TRAINING, *only))
    assert code == 0
    assert "train plain-seed1: 0 of 3 epochs done" in errors
    assert "epochs = 3" in (run / "config.toml").read_text()
