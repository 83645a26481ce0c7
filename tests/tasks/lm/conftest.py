"""Small runs of language models, and what evaluating them writes."""

import json
import shutil

import pytest

from bayesrnn.cli.main import main

from ...conftest import TINY


@pytest.fixture(scope="package")
def trained_once(tiny_text, tmp_path_factory):
    """A function that trains a method for two epochs, once; nobody may change the run."""
    folder = tmp_path_factory.mktemp("trained")

    def train(method):
        run = folder / method
        if not run.exists():
            options = ["--epochs", "2", "--method", method, "--out", str(run)]
            assert main(["train", "lm", "--corpus", str(tiny_text), *TINY, *options]) == 0
        return run

    return train


@pytest.fixture
def trained(trained_once, capsys, tmp_path):
    """A function that gives the folder of a run of a method, which a test may change."""

    def copied(method):
        run = shutil.copytree(trained_once(method), tmp_path / method, symlinks=True)
        capsys.readouterr()  # what training said
        return run

    return copied


@pytest.fixture
def evaluated(program, tmp_path):
    """A function that evaluates a run; gives what it wrote as JSON and what it printed."""

    def evaluate(run, *options):
        file = tmp_path / "result.json"
        code, out, errors = program("evaluate", run, *options, "--json", file)
        assert code == 0, errors
        return json.loads(file.read_text()), out

    return evaluate
