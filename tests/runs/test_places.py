"""Runs are used from any folder, and find their data where they were moved to."""

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.options import from_toml
from bayesrnn.runs.arguments import DataOptions
from bayesrnn.runs.places import data_name, found_again, moved, with_whole_paths
from bayesrnn.tasks import TASKS


@pytest.fixture
def project(tiny_text, tmp_path, monkeypatch):
    """A folder with a text, and another one to work in."""
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(tiny_text, folder / "book.txt")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run(project, train_arguments, program):
    """A run that was trained in the folder of its text, named without a path."""
    text = ("--corpus", "book.txt", "--vocabulary-limit", "300")
    given = [*train_arguments, *text, "--method", "plain", "--epochs", "1", "--out", "runs/one"]
    code, _, errors = program(*given)
    assert code == 0, errors
    return project / "runs" / "one"


def perplexity(output: str) -> str:
    found = re.search(r"perplexity (\S+)", output)
    assert found is not None, output
    return found[1]


def test_a_run_is_used_from_any_folder(run, program, monkeypatch, tmp_path):
    here = program("evaluate", run)
    monkeypatch.chdir(tmp_path / "elsewhere")
    there = program("evaluate", run)
    assert there[0] == 0, there[2]
    assert perplexity(there[1]) == perplexity(here[1])
    kept = from_toml((run / "config.toml").read_text(), "")
    assert kept["corpus"] == [str(tmp_path / "project" / "book.txt")]


def test_a_run_of_an_earlier_version_finds_its_text_above_it(
    run, program, monkeypatch, project, tmp_path
):
    config = run / "config.toml"
    config.write_text(config.read_text().replace(f"{project}/", ""))
    assert from_toml(config.read_text(), "")["corpus"] == ["book.txt"]
    code, _, errors = program("evaluate", run)
    assert (code, errors) == (0, "")
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, _, errors = program("evaluate", run)
    assert code == 0, errors
    assert f"book.txt, which {run} was trained on, is read from {project}" in errors


def test_moved_data_are_asked_for_and_found(run, program, project, tmp_path):
    before = perplexity(program("evaluate", run)[1])
    now = tmp_path / "elsewhere" / "novel.txt"
    shutil.move(project / "book.txt", now)
    commands = (
        ("evaluate",),
        ("calibrate",),
        ("doctor",),
        ("prune", "--fractions", "0.5"),
        ("tune-dynamic", "--words", "300", "--segment", "5"),
        ("uncertainty", "--samples", "0", "--bootstrap", "0", "--streams", "2", "--window", "5"),
    )
    for command in commands:
        code, _, errors = program(command[0], run, *command[1:])
        assert code == 1, command
        assert f"'{project}/book.txt', which {run} was trained on" in errors
        assert "--data PATH" in errors
        code, _, errors = program(command[0], run, *command[1:], "--data", now)
        assert code == 0, (command, errors)
    assert perplexity(program("evaluate", run, "--data", now)[1]) == before
    other = tmp_path / "other.txt"
    other.write_text(now.read_text().replace("the", "thou"))
    code, _, errors = program("evaluate", run, "--data", other)
    assert code == 1
    assert "are not those that" in errors


def test_resuming_takes_the_same_text_however_it_is_spelt(run, program, project, tmp_path):
    resume = ("train", "lm", "--resume", "--out", run)
    for spelt in ("book.txt", "./book.txt", project / "book.txt", "../project/book.txt"):
        code, _, errors = program(*resume, "--corpus", spelt)
        assert code == 0, errors
    now = tmp_path / "elsewhere" / "novel.txt"
    shutil.copy(project / "book.txt", now)
    code, _, errors = program(*resume, "--corpus", now)
    assert code == 1, "the old one is still there"
    assert "--corpus is" in errors
    (project / "book.txt").unlink()
    code, _, errors = program(*resume, "--epochs", "2")
    assert code == 1
    assert f"'{project / 'book.txt'}', which the run learns from, is not there" in errors
    assert "say where it is now with --corpus PATH" in errors
    code, _, errors = program(*resume, "--epochs", "2", "--corpus", now)
    assert code == 0, errors
    assert from_toml((run / "config.toml").read_text(), "")["corpus"] == [str(now)]
    now.write_text("Another text. It is not the same text. " * 50)
    code, _, errors = program(*resume, "--epochs", "3")
    assert code == 1
    assert "the training data is not what" in errors


def test_names_of_data_sets_stay_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, key, names in (
        ("lm", "corpus", ("ptb",)),
        ("sentiment", "data", "scale"),
        ("forecast", "data", "births"),
        ("captions", "data", "flickr8k"),
        ("mnist", "images", "digits"),
    ):
        values = {key: names, "data_dir": Path("data")}
        kept = with_whole_paths(TASKS[name], values)
        assert kept == {key: names, "data_dir": tmp_path / "data"}
    kept = with_whole_paths(TASKS["lm"], {"corpus": ("./ptb", "~/a.txt", "")})
    assert kept == {"corpus": (str(tmp_path / "ptb"), str(Path("~/a.txt").expanduser()), "")}
    assert with_whole_paths(TASKS["sentiment"], {"seed": 1}) == {"seed": 1}
    assert data_name(("/home/me/a.txt", "texts/b.txt")) == "a.txt texts/b.txt"


def test_a_data_folder_that_is_gone_gives_way_to_the_one_of_the_environment(
    tmp_path, monkeypatch, capsys
):
    task = TASKS["lm"]
    config = task.resolve({"corpus": ("ptb",), "data_dir": tmp_path / "gone"})
    monkeypatch.delenv("BAYESRNN_DATA", raising=False)
    assert found_again(task, tmp_path, config).data_dir == tmp_path / "gone"
    monkeypatch.setenv("BAYESRNN_DATA", os.devnull)
    assert found_again(task, tmp_path, config).data_dir is None
    assert "is not there; looking in that of BAYESRNN_DATA" in capsys.readouterr().err


def test_data_with_a_name_are_found_by_their_folder(runs, tmp_path):
    run = TASKS["lm"].open_run(runs / "plain")
    with pytest.raises(ConfigError, match="--data-dir PATH"):
        moved(TASKS["mnist"], run, DataOptions(data=("a",)))
    assert moved(TASKS["lm"], run, DataOptions(data_dir=tmp_path)).config.data_dir == tmp_path
    sentiment = TASKS["sentiment"].resolve({"data": "a.csv"})
    with pytest.raises(ConfigError, match="--data has 2 paths"):
        moved(TASKS["sentiment"], replace(run, config=sentiment), DataOptions(data=("a", "b")))
    with pytest.raises(CorpusError, match=r"'a\.csv', which .* is not there"):
        moved(TASKS["sentiment"], replace(run, config=sentiment), DataOptions())


def test_comparisons_call_a_text_by_its_name(run, program, project):
    code, _, _ = program("compare", run, "--out", project / "page.html")
    assert code == 0
    page = (project / "page.html").read_text()
    assert "book.txt" in page
    assert f">{project}" not in page


@pytest.mark.parametrize(
    "words",
    [
        ("train", "lm", "--corpus", "~nosuch/x"),
        ("train", "sentiment", "--data", "~nosuch/x.csv"),
        ("train", "forecast", "--data", "~nosuch/x.csv"),
        ("train", "lm", "--corpus", "ptb", "--data-dir", "~nosuch"),
        ("train", "mnist", "--start-from", "~nosuch/x"),
    ],
)
def test_there_is_no_home_of_nobody(words, program, tmp_path):
    code, _, errors = program(*words, "--out", tmp_path / "run")
    assert code == 1
    assert "~nosuch" in errors
    assert errors.count("\n") == 1


def test_evaluate_refuses_another_home(run, program):
    for option in ("--corpus", "--data"):
        code, _, errors = program("evaluate", run, option, "~nosuch/x")
        assert (code, "~nosuch/x" in errors) == (1, True), errors
    code, _, errors = program("evaluate", run, "--corpus", "a.txt", "--data", "b.txt")
    assert code == 1
    assert "--data is b.txt and --corpus is a.txt" in errors
