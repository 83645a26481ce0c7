"""The captions task through the program, on a made-up Flickr8k."""

import json
import re
import shutil

import numpy as np
import pytest

from bayesrnn.methods import METHODS
from bayesrnn.tasks.captions.task import TASK, CaptionProblem

from ...conftest import CAPTIONER, model_hash

# Training


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(method, trained_captioner):
    run = trained_captioner(method, "--epochs", "1")
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert records[-1]["valid_perplexity"] < 20


def test_the_loss_falls(trained_captioner):
    run = trained_captioner("plain", "--epochs", "8")
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    epochs = [record for record in records if record["kind"] == "epoch"]
    assert epochs[-1]["train_perplexity"] < 0.4 * epochs[0]["train_perplexity"]
    assert epochs[-1]["valid_perplexity"] < 0.5 * epochs[0]["valid_perplexity"]
    assert TASK.open_run(run).vocabulary.words[-1] == "<unk>"


@pytest.mark.parametrize("method", ["bbb", "dropout"])
def test_killed_and_resumed_ends_with_the_same_bits(method, trained_captioner, program, tmp_path):
    whole = trained_captioner(method, "--epochs", "2")
    objective, calls = CaptionProblem.objective, []

    def dies(self, batch, state):
        calls.append(1)
        if len(calls) == 14:
            raise RuntimeError("killed in the middle of the second epoch")
        return objective(self, batch, state)

    always = ("--save-minutes", "0.000001")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CaptionProblem, "objective", dies)
        with pytest.raises(RuntimeError, match="killed"):
            trained_captioner(method, "--epochs", "2", *always, name="killed")
    killed = tmp_path / "killed"
    assert 9 < int((killed / "last").read_text()) < 18
    trained_captioner(method, "--epochs", "2", "--resume", name="killed")
    assert model_hash(killed) == model_hash(whole)


# Mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--dynamic",), "--dynamic is for runs of `bayesrnn train lm`; leave it out"),
        (("--beam", "0"), "--beam is 0; it has to be from 1 to 100"),
        (("--beam", "101"), "--beam is 101; it has to be from 1 to 100"),
        (("--samples", "-1"), "--samples is -1"),
    ],
)
def test_mistakes_in_an_evaluation(options, message, trained_captioner, program):
    run = trained_captioner("plain", "--epochs", "1")
    code, out, errors = program("evaluate", run, *options)
    assert (code, out) == (1, "")
    assert errors.startswith(f"bayesrnn: {message}")
    assert errors.count("\n") == 1


def test_a_beam_is_for_captions(program, tmp_path):
    (tmp_path / "config.toml").write_text('task = "mnist"\n')
    code, _, errors = program("evaluate", tmp_path, "--beam", "3")
    assert code == 1
    assert errors.startswith("bayesrnn: --beam is for runs of `bayesrnn train captions`")


@pytest.mark.parametrize(
    "command",
    [
        ("generate",),
        ("inspect", "--text", "a dog"),
        ("predict", "--text", "a dog"),
        ("tune-dynamic",),
    ],
)
def test_commands_for_other_runs(command, program, tmp_path):
    (tmp_path / "config.toml").write_text('task = "captions"\n')
    code, out, errors = program(command[0], tmp_path, *command[1:])
    assert (code, out) == (1, "")
    assert "is a run of `bayesrnn train captions`" in errors
    assert errors.count("\n") == 1


@pytest.fixture
def bad_data(tiny_flickr8k, tmp_path, monkeypatch):
    """A copy of the data folder that can be spoilt."""
    folder = tmp_path / "bad"
    shutil.copytree(tiny_flickr8k, folder)
    monkeypatch.delenv("BAYESRNN_DATA")
    return folder


def _without_folder(folder):
    shutil.rmtree(folder / "flickr8k")


def _other_columns(folder):
    (folder / "flickr8k/Flickr8k.token.txt").write_text("image,caption\na.jpg,A dog\n")


def _narrow_features(folder):
    path = folder / "flickr8k/features-efficientnet-lite0.npz"
    np.savez(path, names=np.array(["train0.jpg"]), features=np.zeros((1, 512), np.float32))


def _missing_names(folder):
    path = folder / "flickr8k/features-efficientnet-lite0.npz"
    np.savez(path, names=np.array(["train0.jpg"]), features=np.zeros((1, 1280), np.float32))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_without_folder, "Flickr8k.token.txt"),
        (_other_columns, "it has to have two columns with a tab between them"),
        (_narrow_features, "features have 512 instead of 1280 numbers for an image"),
        (_missing_names, "has no features for 47 of 48 images"),
    ],
)
def test_bad_data_is_one_line(spoil, message, bad_data, program, tmp_path):
    spoil(bad_data)
    run = tmp_path / "run"
    code, out, errors = program(
        "train", "captions", *CAPTIONER, "--data-dir", bad_data, "--out", run
    )
    assert (code, out) == (1, "")
    assert errors.startswith("bayesrnn: ")
    assert message in errors
    assert errors.count("\n") == 1
    assert not run.exists()


def test_no_data_folder(program, monkeypatch, tmp_path):
    monkeypatch.delenv("BAYESRNN_DATA", raising=False)
    code, _, errors = program("train", "captions", "--out", tmp_path / "run")
    assert code == 1
    assert "flickr8k" in errors
    assert "--data-dir" in errors
    assert errors.count("\n") == 1


def test_other_data_than_it_was_trained_on(
    trained_captioner, program, tiny_flickr8k, tmp_path, monkeypatch
):
    """Other words; the same words in other captions; the same captions of other features."""
    run = trained_captioner("plain", "--epochs", "1")
    monkeypatch.setenv("BAYESRNN_DATA", str(tmp_path / "other"))
    for spoil in (_other_words, _captions_exchanged, _features_exchanged):
        shutil.copytree(tiny_flickr8k, tmp_path / "other")
        spoil(tmp_path / "other/flickr8k")
        code, _, errors = program("evaluate", run)
        assert code == 1
        assert "the captions or features of flickr8k are not those that" in errors
        assert errors.count("\n") == 1
        shutil.rmtree(tmp_path / "other")


def _other_words(folder):
    path = folder / "Flickr8k.token.txt"
    path.write_text(path.read_text().replace("horse", "cow"))


def _captions_exchanged(folder):
    path = folder / "Flickr8k.token.txt"
    names = {"train0.jpg": "train1.jpg", "train1.jpg": "train0.jpg"}
    path.write_text(
        re.sub(r"^train[01]\.jpg", lambda found: names[found[0]], path.read_text(), flags=re.M)
    )


def _features_exchanged(folder):
    path = folder / "features-efficientnet-lite0.npz"
    with np.load(path) as file:
        names, features = file["names"], file["features"]
    np.savez(path, names=names, features=features[::-1])
