"""Fixtures that every test can use: data, a tiny text, and ways to run the program on it."""

import hashlib
import os
import shutil
import subprocess
import sys
from importlib.resources import files
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from bayesrnn.cli.main import main
from bayesrnn.tasks.captions import data as captions
from bayesrnn.training.checkpoints import CheckpointStore

from .made_up import make_run, make_uncertainty, read_page  # noqa: F401 (fixtures)

# Other libraries are in an environment of their own: `make test-peers`.
if not all(map(find_spec, ("bayesian_torch", "blitz", "torchbayesian"))):
    collect_ignore = ["peers"]

# A busy machine must not fail a test: time limits are pytest's.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_configure() -> None:
    """One thread per xdist worker and per program it starts: more would fight for the cores.

    And no terminal, whoever runs the tests.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ["OMP_NUM_THREADS"] = "1"
        torch.set_num_threads(1)
    # The workers of xdist say that they have a terminal of 80 columns; without one tables take 100.
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the published data sets; a test that needs it is skipped without it."""
    given = os.environ.get("BAYESRNN_DATA")
    if not given:
        pytest.skip("BAYESRNN_DATA is not set")
    folder = Path(given)
    if not folder.is_dir():
        pytest.fail(f"BAYESRNN_DATA is not a folder: {folder}")
    return folder


#: Images of the tiny Flickr8k: a split's word in file names, and how many there are.
TINY_SPLITS = {"train": ("train", 48), "valid": ("dev", 12), "test": ("test", 12)}


@pytest.fixture(scope="session")
def tiny_flickr8k_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a made-up Flickr8k, whose features tell what captions say.

    Each image shows one of three animals at one of two places.
    """
    generator = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("data") / "flickr8k"
    folder.mkdir()
    scenes = list(product(("dog", "cat", "horse"), ("on the beach", "in snow")))
    names, lines, rows = [], [], []
    directions = generator.normal(size=(len(scenes), 1280))
    for split, size in TINY_SPLITS.values():
        own = [f"{split}{number}.jpg" for number in range(size)]
        (folder / f"Flickr_8k.{split}Images.txt").write_text("\n".join(own) + "\n")
        for number, name in enumerate(own):
            animal, place = scenes[number % len(scenes)]
            said = (f"A {animal} runs {place} .", f"The {animal}", f"One {animal} {place} .")
            lines += [f"{name}#{n}\t{text}\n" for n, text in enumerate(said)]
            rows.append(directions[number % len(scenes)] + 0.1 * generator.normal(size=1280))
        names += own
    (folder / "Flickr8k.token.txt").write_text("".join(lines))
    features = np.array(rows, dtype=np.float16)
    np.savez(folder / "features-efficientnet-lite0.npz", names=np.array(names), features=features)
    return folder.parent


@pytest.fixture
def tiny_flickr8k(tiny_flickr8k_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder with the made-up Flickr8k, whose sizes count as the right ones."""
    monkeypatch.setattr(captions, "_FLICKR_SPLITS", TINY_SPLITS)
    monkeypatch.setenv("BAYESRNN_DATA", str(tiny_flickr8k_folder))
    return tiny_flickr8k_folder


TINY = (
    *("--hidden", "12", "--layers", "2", "--batch-size", "4", "--unroll", "10"),
    *("--device", "cpu", "--threads", "1", "--no-calibrate"),
)

METHODS = (
    *("plain", "dropout", "variational-dropout", "dropconnect", "bbb", "sharpened"),
    *("sgld", "psgld", "ivon", "ensemble"),
)
#: Their draws differ by less than rounding where a network has learnt next to nothing, and those of
#: dropconnect not at all before the first word.
FAINT = ("variational-dropout", "dropconnect")


@pytest.fixture(scope="session")
def tiny_text(tmp_path_factory):
    """The beginning of the embedded novel as a file of the user's own."""
    novel = files("bayesrnn.data").joinpath("bundled/pride-and-prejudice.txt").read_text()
    path = tmp_path_factory.mktemp("text") / "novel.txt"
    path.write_text(novel[:20_000])
    return path


@pytest.fixture(scope="session")
def runs(tiny_text, tmp_path_factory):
    """A folder with a tiny language model of every method; nobody may change it."""
    folder = tmp_path_factory.mktemp("runs")
    for method in METHODS:
        options = ["--method", method, "--epochs", "1", "--out", str(folder / method)]
        options += ["--dropout", "0.3"] if method == "dropout" else []
        options += ["--members", "2"] if method == "ensemble" else []
        options += ["--vocabulary-limit", "800"]
        assert main(["train", "lm", "--corpus", str(tiny_text), *TINY, *options]) == 0
    return folder


@pytest.fixture
def train_arguments(tiny_text):
    return ["train", "lm", "--corpus", str(tiny_text), *TINY]


@pytest.fixture
def program(capsys):
    """Run the program in this process; gives exit code, output and errors."""

    def run(*arguments):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stopped:  # the parser's own way out
            code = stopped.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def start():
    """Start the program in a process of its own; what is still running at the end is killed."""
    processes = []

    def begin(*arguments, **options):
        process = subprocess.Popen(
            [sys.executable, "-m", "bayesrnn", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            **options,
        )
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def model_hash(run: Path) -> str:
    """What a run learnt, as a hash over the bytes of its last model."""
    model = CheckpointStore(run).load("last").model
    digest = hashlib.sha256()
    for name in sorted(model):
        digest.update(name.encode() + model[name].numpy().tobytes())
    return digest.hexdigest()


#: A captioner for the made-up Flickr8k, and what methods need to learn from so few images.
CAPTIONER = (
    *("--hidden", "16", "--batch-size", "16", "--lr", "0.02"),
    *("--device", "cpu", "--threads", "1", "--no-calibrate"),
)
CAPTIONER_OPTIONS = {
    "dropout": ("--dropout", "0.1"),
    "bbb": ("--kl-weight", "0.01", "--sigma-scale", "0.2"),
    "sharpened": ("--kl-weight", "0.01", "--sigma-scale", "0.2"),
    "ensemble": ("--members", "2"),
}


@pytest.fixture(scope="session")
def captioners_of_all_tests(tmp_path_factory):
    """Where captioners are kept that several tests copy."""
    return tmp_path_factory.mktemp("captioners-of-all-tests")


@pytest.fixture
def trained_captioner(tiny_flickr8k, program, tmp_path, captioners_of_all_tests):
    """A function that trains a method; gives the folder of the run, which a test may change.

    Runs that differ in method and epochs alone are trained once and copied.
    """

    def train(method="plain", *options, name=None):
        run = tmp_path / (name or method)
        shared = len(options) == 2 and options[0] == "--epochs"
        out = captioners_of_all_tests / f"{method}-{options[1]}" if shared else run
        if not (shared and out.exists()):
            own = CAPTIONER_OPTIONS.get(method, ())
            code, _, errors = program(
                *("train", "captions", *CAPTIONER, "--method", method, *own, *options, "--out", out)
            )
            assert code == 0, errors
        return shutil.copytree(out, run, symlinks=True) if shared else run

    return train
