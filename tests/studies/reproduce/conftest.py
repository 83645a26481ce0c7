"""The whole of `bayesrnn reproduce ptb`, on a made-up corpus of a few thousand words."""

import json
import os
import random
import shutil
import signal
from contextlib import contextmanager

import pytest

from bayesrnn.cli.main import main
from bayesrnn.studies.reproduce import measure, run_state
from bayesrnn.tasks.lm import config as recipes
from bayesrnn.tasks.lm import data as corpora
from bayesrnn.training.loop import Trainer
from bayesrnn.untrusted import unsealed

SPEEDS = {
    name: {"ratio": ratio, "memory_ratio": 1.25, "seconds": 1.0, "megabytes": 1.0}
    for name, ratio in (("plain", 1.0), ("bbb", 0.8125))
}

#: Train, and evaluate the mean weights alone.
TRAINING = ("--skip", "bench,dynamic,draws,entropy,pruning")

#: What does the work: nothing of it may be called where all is done.
WORK = (
    (run_state, "train_run"),
    (measure, "evaluate"),
    (measure, "dynamic_row"),
    (measure, "uncertainty"),
    (measure, "prune_run"),
    (measure, "bench"),
)


def text(lines, seed):
    """Lines of ten words; each word has its likely followers."""
    generator, word = random.Random(seed), 0
    made = []
    for _ in range(lines):
        words = []
        for _ in range(10):
            word = (2 * word + generator.choice((1, 1, 1, 7, 12))) % 30
            words.append(f"w{word}")
        made.append(" ".join(words))
    return "\n".join(made) + "\n"


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory):
    """A data folder with a made-up ptb."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "ptb").mkdir()
    for split, lines in (("train", 200), ("valid", 30), ("test", 30)):
        (folder / "ptb" / f"ptb.{split}.txt").write_text(text(lines, split))
    return folder


@contextmanager
def in_small_world(corpus_folder):
    """The made-up corpus, a tiny network for `tiny`, and speeds that are only a table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAYESRNN_DATA", str(corpus_folder))
        known = corpora._Published("ptb/ptb.{}.txt", (2200, 330, 330), 31)
        patch.setitem(corpora._PUBLISHED, "ptb", known)
        patch.setitem(recipes.SIZES, "tiny", {"hidden": 8, "layers": 1})
        patch.setattr(measure, "bench", lambda *_: SPEEDS)
        yield


@pytest.fixture
def small_world(corpus_folder):
    with in_small_world(corpus_folder):
        yield


@pytest.fixture(scope="session")
def finished_folder(corpus_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction") / "done"
    with in_small_world(corpus_folder):
        assert main(command(folder)) == 0
    return folder


@pytest.fixture
def finished(small_world, finished_folder):
    """A folder in which plain and bbb are done; nobody may change it."""
    return finished_folder


@pytest.fixture
def copied(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def calls(monkeypatch):
    """The names of the functions that do the work, as they are called."""
    made = []

    def counting(module, name):
        function = getattr(module, name)

        def counted(*arguments, **options):
            made.append(name)
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, counted)

    for pair in WORK:
        counting(*pair)
    return made


def command(out, *more):
    options = ["--size", "tiny", "--methods", "plain,bbb", "--samples", "2", "--epochs", "2"]
    arguments = ["reproduce", "ptb", *options, "--threads", "1", "--device", "cpu"]
    return [*arguments, "--out", str(out), *map(str, more)]


def result(run, name):
    """A result without its checksum, as earlier versions wrote them."""
    return unsealed(json.loads((run / "results" / f"{name}.json").read_text()))


def values_of(folder):
    return json.loads((folder / "results.json").read_text())


def markdown_of(folder):
    return (folder / "results.md").read_text()


def remove_weights(run):
    for name in ("last", "best"):
        (run / name).unlink()
    shutil.rmtree(run / "checkpoints")


def interrupt_at(monkeypatch, number):
    """Ctrl-C in the `number`-th step of training that is made from now on."""
    step, made = Trainer.step, []

    def counted(self):
        made.append(1)
        if len(made) == number:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self)

    monkeypatch.setattr(Trainer, "step", counted)
