"""Training that is stopped in every way, and goes on as if nothing had happened."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bayesrnn.cli.main import main
from bayesrnn.errors import CorpusError
from bayesrnn.methods.base import Outcome
from bayesrnn.tasks.lm.task import LanguageModelProblem
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.training.kept_files import read_metrics

from ..conftest import TINY, model_hash

#: A checkpoint after every step.
ALWAYS = ("--save-minutes", "0.000001")


#: The program in a process that sends itself a signal when it calls a function for the n-th time.
STOPPING = """
import importlib, os, sys
from bayesrnn.cli.main import main

place, left, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
module, owner, name = place.split(":")
owner = getattr(importlib.import_module(module), owner)
function = getattr(owner, name)

def counted(*arguments, **options):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), number)
    return function(*arguments, **options)

setattr(owner, name, counted)
sys.exit(main(sys.argv[4:]))
"""

STEP = "bayesrnn.training.loop:Trainer:step"
SAVE = "bayesrnn.training.checkpoints:CheckpointStore:save"
LOG = "bayesrnn.training.run_directory:MetricsLog:append"


def stopped(number, place, call, arguments):
    """Run the program to the given call of a function, where the signal comes."""
    process = subprocess.run(
        [sys.executable, "-c", STOPPING, place, str(call), str(int(number)), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return process.returncode, process.stderr


@pytest.fixture(scope="module")
def uninterrupted(tiny_text, tmp_path_factory):
    """The arguments of a run, and its folder; nobody may change it."""
    arguments = ["train", "lm", "--corpus", str(tiny_text), *TINY, "--method", "bbb"]
    arguments += ["--epochs", "3"]
    whole = tmp_path_factory.mktemp("runs") / "whole"
    assert main([*arguments, "--out", str(whole)]) == 0
    return arguments, whole


def epoch_records(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == "epoch"]


def test_killed_again_and_again_and_resumed(uninterrupted, program, tmp_path):
    """Before a step, between a step and its checkpoint, between an epoch and its record."""
    arguments, whole = uninterrupted
    run = tmp_path / "killed"
    steps = CheckpointStore(whole).load("last").step
    begun = []
    for place, call in ((STEP, steps // 4), (SAVE, steps // 4), (LOG, 1), (STEP, 2)):
        given = [*arguments, *ALWAYS, "--resume", "--out", run]
        assert stopped(signal.SIGKILL, place, call, given)[0] == -signal.SIGKILL
        begun.append(CheckpointStore(run).load("last").step)
    assert begun == sorted(set(begun)), "each goes on from where the one before came to"
    assert begun[-1] < steps
    code, _, errors = program(*arguments, "--resume", "--out", run)
    assert code == 0, errors
    assert model_hash(run) == model_hash(whole)
    assert epoch_records(run) == epoch_records(whole)


def test_a_run_that_went_back_and_was_killed_can_still_be_read(uninterrupted, tmp_path):
    """Its log then ends before what the later checkpoint knows of it."""
    arguments, whole = uninterrupted
    run = Path(shutil.copytree(whole, tmp_path / "back"))
    earlier = min(CheckpointStore(run).steps())
    back = [*arguments, "--resume", "--checkpoint", str(earlier), "--out", run]
    assert stopped(signal.SIGKILL, STEP, 2, back)[0] == -signal.SIGKILL
    assert read_metrics(run) == [one for one in read_metrics(whole) if one["step"] <= earlier]


@pytest.fixture
def terminal_heard():
    """As if the tests were not run by `nohup`, whose children leave a closed terminal unheard."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("terminal_heard")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_save_and_exit_cleanly(number, uninterrupted, program, tmp_path):
    arguments, whole = uninterrupted
    run = tmp_path / "stopped"
    half = CheckpointStore(whole).load("last").step // 2
    code, errors = stopped(number, STEP, half, [*arguments, "--out", run])
    assert code == 128 + number
    assert f"after {half} steps; everything is saved" in errors
    assert "--resume" in errors
    assert "Traceback" not in errors
    assert CheckpointStore(run).load("last").step == half
    code, _, errors = program(*arguments, "--resume", "--out", run)
    assert code == 0, errors
    assert model_hash(run) == model_hash(whole)


def test_a_second_process_is_refused(train_arguments, start, program, tmp_path):
    run = tmp_path / "run"
    arguments = [*train_arguments, "--epochs", "1000", *ALWAYS, "--out", run]
    process = start(*arguments)
    while not (run / "last").exists():
        assert process.poll() is None
        time.sleep(0.01)
    code, _, errors = program(*arguments, "--resume")
    assert code == 1
    assert f"pid {process.pid}" in errors
    assert process.poll() is None


def test_a_full_disk_leaves_the_checkpoint_before_it_whole(
    train_arguments, start, program, tmp_path
):
    run = tmp_path / "run"
    arguments = [*train_arguments, "--epochs", "2", "--resume", "--out", run]
    assert stopped(signal.SIGKILL, STEP, 6, [*arguments, *ALWAYS])[0] == -signal.SIGKILL
    before = CheckpointStore(run).load("last")

    def small_files_only():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    process = start(*arguments, *ALWAYS, preexec_fn=small_files_only)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert [line for line in errors.splitlines() if line.startswith("bayesrnn: cannot")]
    assert CheckpointStore(run).load("last").step == before.step
    assert program(*arguments)[0] == 0


def test_a_diverging_run_is_stopped_and_not_saved(train_arguments, program, tmp_path, monkeypatch):
    run, batches = tmp_path / "run", []
    objective = LanguageModelProblem.objective

    def diverging(self, batch, state):
        batches.append(batch)
        found = objective(self, batch, state)
        if len(batches) < 3:
            return found
        return lambda network: Outcome(found(network).nll * float("inf"), state)

    monkeypatch.setattr(LanguageModelProblem, "objective", diverging)
    code, _, errors = program(*train_arguments, "--method", "plain", *ALWAYS, "--out", run)
    assert code == 1
    assert "--lr" in errors
    diverged = int(re.search(r"at step (\d+) ", errors).group(1))
    assert diverged > 1, "the first one is taken with sane weights"
    last = CheckpointStore(run).load("last")
    assert last.step == diverged - 1
    assert all(tensor.isfinite().all() for tensor in last.model.values())


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again_as_it_was_meant(
    train_arguments, program, tmp_path
):
    run = tmp_path / "run"
    arguments = [*train_arguments, "--method", "dropout", "--epochs", "1", "--out", run]
    assert program(*arguments)[0] == 0
    meant = (run / "config.toml").read_text()
    shutil.rmtree(run / "checkpoints")
    for pointer in ("best", "last"):
        (run / pointer).unlink()
    assert program("train", "lm", "--resume", "--out", run)[0] == 0
    assert (run / "config.toml").read_text() == meant
    shutil.rmtree(run / "checkpoints")
    for pointer in ("best", "last"):
        (run / pointer).unlink()
    code, _, errors = program("train", "lm", "--resume", "--out", run, "--method", "plain")
    assert code == 1
    assert "--method is plain, but the run was started with dropout" in errors


def test_resuming_with_other_options_is_refused(train_arguments, program, tmp_path):
    run = tmp_path / "run"
    program(*train_arguments, "--epochs", "1", "--out", run)
    code, _, errors = program(*train_arguments, "--clip", "0.1", "--resume", "--out", run)
    assert code == 1
    assert "--clip" in errors
    code, _, errors = program(*train_arguments, "--resume", "--epochs", "2", "--out", run)
    assert code == 0, errors
    assert [record["epoch"] for record in epoch_records(run)] == [1, 2]


def test_resuming_needs_no_option_but_out(train_arguments, program, tmp_path):
    run = tmp_path / "run"
    assert program(*train_arguments, "--method", "sharpened", "--epochs", "1", "--out", run)[0] == 0
    resume = ("train", "lm", "--resume", "--out", run)
    saved = ("--eta-lr", "0.002", "--method", "sharpened")
    for options in ((), saved[:2], saved, ("--config", run / "config.toml")):
        code, _, errors = program(*resume, *options)
        assert code == 0, errors
    other = tmp_path / "other.toml"
    for text, options, words in (
        ("", ("--eta-lr", "0.1"), "--eta-lr is 0.1, but the run was started with 0.002"),
        ("", ("--eta-init", "0.1"), "--eta-init is 0.1, but the run was started without it"),
        ("", ("--dropout", "0.1"), "--dropout is 0.1, but the run was started without it"),
        ("", ("--epochs", "0"), "--epochs is 0; it has to be above 0"),
        ('epochs = "ten"', (), "--epochs is 'ten'; it has to be a whole number"),
        ('corpus = "ptb"', (), "--corpus is ptb, but"),
        ('task = "mnist"', (), "train mnist"),
        ("options = 3", (), "table"),
        ("speed = 3", (), "'speed', which is not an option"),
    ):
        other.write_text(text)
        code, _, errors = program(*resume, "--config", other, *options)
        assert code == 1
        assert words in errors
        assert errors.count("\n") == 1
    data = tmp_path / "data"
    other.write_text(f"epochs = 2\ndata_dir = '{data}'")
    code, _, errors = program(*resume, "--config", other)
    assert code == 0, errors
    assert [record["epoch"] for record in epoch_records(run)] == [1, 2]
    assert f'data_dir = "{data}"' in (run / "config.toml").read_text()


def test_resuming_looks_for_no_images_but_those_of_the_run(program, tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    run = tmp_path / "run"
    small = ("--hidden", "8", "--epochs", "1", "--method", "plain", "--threads", "1")
    code, _, errors = program("train", "mnist", "--images", "digits", *small, "--out", run)
    assert code == 0, errors

    def none_found(data_dir):
        raise CorpusError("no images were found")

    monkeypatch.setattr("bayesrnn.tasks.mnist.task.available_images", none_found)
    resume = ("train", "mnist", "--resume", "--out", run)
    for options in ((), ("--images", "auto"), ("--images", "digits"), ("--epochs", "2")):
        code, _, errors = program(*resume, *options)
        assert code == 0, errors
    assert [record["epoch"] for record in epoch_records(run)] == [1, 2]
    code, _, errors = program(*resume, "--images", "mnist")
    assert code == 1
    assert "--images is mnist, but the run was started with digits" in errors
    code, _, errors = program("train", "mnist", *small, "--resume", "--out", tmp_path / "new")
    assert code == 1
    assert "no images were found" in errors


def test_resuming_with_another_text_is_refused(train_arguments, program, tiny_text, tmp_path):
    text = tmp_path / "own.txt"
    text.write_text(tiny_text.read_text())
    arguments = [*train_arguments, "--epochs", "1", "--corpus", text, "--out", tmp_path / "run"]
    assert program(*arguments)[0] == 0
    kept = {
        name: (tmp_path / "run" / name).read_text() for name in ("config.toml", "vocabulary.txt")
    }
    text.write_text(tiny_text.read_text().replace("truth", "lie").replace("Bennet", "Smith"))
    code, _, errors = program(*arguments, "--epochs", "2", "--resume")
    assert code == 1
    assert "training data" in errors
    for name, before in kept.items():
        assert (tmp_path / "run" / name).read_text() == before


def test_a_damaged_checkpoint_is_refused_with_a_way_out(train_arguments, program, tmp_path):
    run = tmp_path / "run"
    program(*train_arguments, "--epochs", "2", "--out", run)
    steps = CheckpointStore(run).steps()
    model = run / "checkpoints" / str(steps[-1]) / "model.safetensors"
    data = bytearray(model.read_bytes())
    data[len(data) // 2] ^= 1
    model.write_bytes(data)
    code, _, errors = program(*train_arguments, "--epochs", "3", "--resume", "--out", run)
    assert code == 1
    assert "damaged" in errors
    assert f"--checkpoint {steps[0]}" in errors
    code, _, errors = program(
        *train_arguments, "--epochs", "3", "--resume", "--checkpoint", steps[0], "--out", run
    )
    assert code == 0, errors
    assert [record["epoch"] for record in epoch_records(run)] == [1, 2, 3]
