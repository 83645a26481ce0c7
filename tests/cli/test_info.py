"""`bayesrnn info` and words that are no commands."""

from pathlib import Path

import pytest
import torch

import bayesrnn
from bayesrnn.cli.info import _EXTRAS
from bayesrnn.core.kernel import library
from bayesrnn.core.kernel.library import Library
from bayesrnn.data.files import find_published
from bayesrnn.options import from_toml
from bayesrnn.tasks import TASKS


def test_info(program, tmp_path, monkeypatch):
    monkeypatch.delenv("BAYESRNN_DATA", raising=False)
    (tmp_path / "ptb").mkdir()
    (tmp_path / "ptb" / "ptb.train.txt.gz").touch()
    code, out, errors = program("info", "--data-dir", tmp_path)
    assert code == 0
    assert errors == ""
    lines = dict(line.strip().split(maxsplit=1) for line in out.splitlines())
    assert lines["bayesrnn"].startswith(f"{bayesrnn.__version__}, in ")
    assert lines["torch"] == torch.__version__
    assert lines["kernel"] == library.load_library().origin
    assert lines["threads"].startswith(f"{torch.get_num_threads()} of ")
    assert lines["devices"].startswith("cpu")
    assert lines["ptb"] == str(tmp_path / "ptb" / "ptb.train.txt.gz")
    assert lines["mnist"] == "not found: mnist/train-images-idx3-ubyte"


def test_info_says_why_there_is_no_kernel_and_no_data(program, monkeypatch):
    monkeypatch.delenv("BAYESRNN_DATA", raising=False)
    missing = Library(None, "none: there is no C compiler, neither cc nor gcc")
    monkeypatch.setattr("bayesrnn.cli.info.load_library", lambda: missing)
    _, out, _ = program("info")
    assert "neither cc nor gcc" in out
    assert "name its folder by --data-dir or BAYESRNN_DATA" in out


def test_info_knows_every_extra():
    file = Path(__file__).parents[2] / "pyproject.toml"
    extras = from_toml(file.read_text(), str(file))["project"]["optional-dependencies"]
    assert _EXTRAS.keys() == extras.keys() - {"dev"}
    for extra, package in _EXTRAS.items():
        assert any(line.startswith(package) for line in extras[extra])


def test_every_published_data_set_is_found_by_its_file(data_dir):
    for entry in TASKS.entries().values():
        for file in entry.data_sets.values():
            assert find_published(file, data_dir) is not None, file


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian", "lm"], "there is no command trian; did you mean train?"),
        (["train", "sentimant"], "there is no command train sentimant; did you mean train sentim"),
        (["evalute", "runs/mine"], "there is no command evalute; did you mean evaluate?"),
        (["zzz"], "there is no command zzz; there are: train, evaluate, "),
        (["train", "zzz"], "there is no command train zzz; there are: lm, mnist, sentiment, "),
    ],
)
def test_a_mistyped_command_gets_a_suggestion(words, said, program):
    code, out, errors = program(*words)
    assert (code, out) == (2, "")
    assert errors.startswith(f"bayesrnn: {said}")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["train", "lm", "--lr", "abc"], "--lr is 'abc'; it has to be a number"),
        (["train", "lm", "--epochs", "1.5"], "--epochs is '1.5'; it has to be a whole number"),
        (["evaluate", "run", "--samples", "x"], "--samples is 'x'; it has to be a whole number"),
        (["train", "lm", "--kl-weight", "half"], "--kl-weight is 'half'; it has to be a number"),
    ],
)
def test_what_is_no_number_gets_one_line(options, said, program):
    code, _, errors = program(*options)
    assert code == 1
    assert errors == f"bayesrnn: {said}\n"


@pytest.mark.parametrize("words", [["--help"], ["train", "lm", "--help"], ["evaluate", "--help"]])
def test_help_is_in_the_users_words(words, program, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = program(*words)
    assert "NoneType" not in out
    assert "None" not in out.replace("None where", "")
    assert "options options" not in out.lower()
    assert max(map(len, out.splitlines()[1:])) <= 170


def test_help_says_how_to_get_completion(program):
    assert "bayesrnn completion --help" in program("--help")[1]
