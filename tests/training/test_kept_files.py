"""What is changed beside the checkpoints of a run is noticed and named."""

import hashlib
import json
import os
import re
import shutil

import pytest
import safetensors.torch
import torch

from bayesrnn.cli.main import main
from bayesrnn.training.checkpoints import CheckpointStore, _manifest_bytes

from ..conftest import TINY, model_hash


@pytest.fixture(scope="module")
def trained(tiny_text, tmp_path_factory):
    """A run of two epochs and its arguments; nobody may change it."""
    arguments = ["train", "lm", "--corpus", str(tiny_text), *TINY, "--method", "plain"]
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main([*arguments, "--epochs", "1", "--no-calibrate", "--out", str(folder)]) == 0
    return arguments, folder


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained[1], tmp_path / "run")


def edit(path, pattern, replacement):
    text = path.read_text()
    changed, count = re.subn(pattern, replacement, text, count=1)
    assert count == 1
    path.write_text(changed)


def say_something(program, run):
    return program("generate", run, "--words", "4")


def test_words_in_another_order_are_refused(run, program):
    assert say_something(program, run)[0] == 0
    file = run / "vocabulary.txt"
    file.write_text("\n".join(reversed(file.read_text().splitlines())) + "\n")
    code, out, errors = say_something(program, run)
    assert code == 1
    assert not out
    assert f"{file} was changed since the run was trained" in errors
    # It is made from the training text, and resuming writes it again.
    assert program("train", "lm", "--resume", "--out", run)[0] == 0
    assert say_something(program, run)[0] == 0


def test_settings_that_were_edited_are_named(run, program):
    edit(run / "config.toml", r"\nlr = \S+", "\nlr = 0.125")
    edit(run / "config.toml", r"\nseed = 1\n", "\n")
    for command in (["generate", run], ["train", "lm", "--resume", "--epochs", "2", "--out", run]):
        code, _, errors = program(*command)
        assert code == 1
        assert "lr is 0.125 and was 1.0, seed is not there and was 1; put that back" in errors
        assert errors.count("\n") == 1


def test_what_changes_no_prediction_may_be_edited(run, program):
    edit(run / "config.toml", r"\nsave_minutes = \S+", "\n# mine\nsave_minutes = 1.5")
    edit(run / "config.toml", r"\nepochs = \S+", "\nepochs = 2")
    code, _, errors = say_something(program, run)
    assert code == 0, errors


@pytest.mark.parametrize("which", ["before", "after"])
def test_a_kill_while_settings_change_leaves_a_run_that_goes_on(
    which, run, trained, program, monkeypatch, tmp_path
):
    """The kill comes before or after the new settings are written, and before a new checkpoint."""
    expected = shutil.copytree(run, tmp_path / "expected")
    later = ["train", "lm", "--resume", "--epochs", "2", "--lr", "0.25", "--no-calibrate", "--out"]
    assert program(*later, expected)[0] == 0

    from bayesrnn.runs import start

    def kill(*_):
        raise KeyboardInterrupt

    owner, name = (
        (start.RunDirectory, "write_text") if which == "before" else (start.Trainer, "train")
    )
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, kill)
        assert program(*later, run)[0] == 130
    assert ("lr = 0.25" in (run / "config.toml").read_text()) == (which == "after")
    assert say_something(program, run)[0] == 0
    code, _, errors = program(*later, run)
    assert code == 0, errors
    assert model_hash(run) == model_hash(expected)


def make_earlier(run):
    """Leave out of the checkpoints what earlier versions did not keep."""
    for path in run.glob("checkpoints/*/manifest.json"):
        content = json.loads(path.read_bytes())["content"]
        content["state"]["dict"] = [kept for kept in content["state"]["dict"] if kept[0] != "files"]
        path.write_bytes(_manifest_bytes(content))


def test_a_run_of_an_earlier_version_is_read_with_a_note(run, program):
    make_earlier(run)
    code, _, errors = say_something(program, run)
    assert code == 0
    assert "keep no hashes of its other files" in errors


@pytest.mark.parametrize("setting", ["hidden = 90000", "layers = 900"])
def test_no_memory_is_taken_for_a_network_that_was_not_saved(setting, run, program):
    make_earlier(run)
    edit(run / "config.toml", rf"\n{setting.split()[0]} = \S+", f"\n{setting}")
    code, _, errors = say_something(program, run)
    assert code == 1
    assert "asks for a larger network" in errors


def test_a_network_that_is_too_large_for_this_machine(trained, program, tmp_path):
    arguments = [*trained[0], "--hidden", "100000", "--layers", "900", "--out", tmp_path / "x"]
    code, _, errors = program(*arguments)
    assert code == 1
    assert "the network has 7.2e+13 weights, which take at least 5.76e+05 GB" in errors


def test_weights_that_are_no_numbers_are_refused(run, program):
    for folder in (run / "checkpoints").iterdir():
        weights = safetensors.torch.load_file(folder / "model.safetensors")
        next(iter(weights.values())).view(-1)[0] = torch.nan
        data = safetensors.torch.save(weights)
        (folder / "model.safetensors").write_bytes(data)
        content = json.loads((folder / "manifest.json").read_bytes())["content"]
        hashed = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        content["files"]["model.safetensors"] = hashed
        (folder / "manifest.json").write_bytes(_manifest_bytes(content))
    code, _, errors = say_something(program, run)
    assert code == 1
    assert "holds a NaN or an infinity" in errors


def test_metrics_that_were_edited_are_refused(run, program):
    edit(run / "metrics.jsonl", r'"valid_perplexity": \d', '"valid_perplexity": 1')
    for command in (["compare", run, run, "--out", run / "page.html"], ["doctor", run]):
        code, _, errors = program(*command)
        assert code == 1
        assert "metrics.jsonl was changed since the run was trained" in errors


def test_files_that_are_removed_while_it_trains_are_written_again(run, program, monkeypatch):
    before = {name: (run / name).read_bytes() for name in ("vocabulary.txt",)}
    save = CheckpointStore.save

    def removing(self, checkpoint, best):
        (run / "vocabulary.txt").unlink()
        (run / "config.toml").unlink()
        monkeypatch.setattr(CheckpointStore, "save", save)
        save(self, checkpoint, best)

    monkeypatch.setattr(CheckpointStore, "save", removing)
    options = ("--epochs", "3", "--no-calibrate", "--out", run)
    code, _, errors = program("train", "lm", "--resume", *options)
    assert code == 0, errors
    assert "vocabulary.txt was removed, and is written again" in errors
    assert (run / "vocabulary.txt").read_bytes() == before["vocabulary.txt"]
    assert "epochs = 3" in (run / "config.toml").read_text()


def test_results_that_were_edited_are_refused(run, program):
    assert program("evaluate", run)[0] == 0
    (result,) = (run / "results").iterdir()
    edit(result, r'"perplexity": (\d+)', r'"perplexity": 1\1')
    code, _, errors = program("compare", run, run, "--out", run / "page.html")
    assert code == 1
    assert f"{result} is not the result of an evaluation" in errors


@pytest.mark.parametrize("name", ["config.toml", "vocabulary.txt", "best", "metrics.jsonl"])
@pytest.mark.parametrize("kind", ["pipe", "device", "link"])
def test_names_that_are_no_files_are_refused_at_once(name, kind, run, trained, program, tmp_path):
    path = run / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else trained[1] / name)
    for command in (["generate", run], ["doctor", run]):
        code, _, errors = program(*command)
        if name == "metrics.jsonl" and (command[0] == "generate" or kind == "link"):
            assert code == 0  # not read, or only read
        else:
            assert code == 1
            assert str(path) in errors
            assert errors.count("\n") == 1
