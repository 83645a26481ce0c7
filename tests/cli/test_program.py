"""The program from training to comparison, and what it says to mistakes."""

import json
import shutil
import sys
from html.parser import HTMLParser

import pytest

from bayesrnn.training.run_directory import RunDirectory

from ..conftest import model_hash


@pytest.mark.parametrize(
    "extra",
    [
        ["--method", "plain"],
        ["--method", "dropout", "--dropout", "0.3", "--cell", "gru"],
        ["--method", "bbb"],
        ["--method", "bbb", "--cell", "rnn", "--tied", "--prior-per", "weight"],
        ["--method", "bbb", "--prior", "gaussian", "--optimizer", "adam", "--no-antithetic"],
        ["--method", "sharpened", "--cell", "gru"],
        ["--method", "sharpened", "--second-order", "--tied", "--eta-init", "0.001"],
    ],
    ids=lambda extra: "-".join(extra).replace("--", ""),
)
def test_train_evaluate_generate(extra, train_arguments, program, tmp_path):
    run = tmp_path / "run"
    code, _, errors = program(*train_arguments, "--epochs", "1", "--out", run, *extra)
    assert code == 0, errors
    perplexities = {}
    for samples in (0, 3):
        result = tmp_path / "result.json"
        code, out, _ = program("evaluate", run, "--samples", samples, "--json", result)
        found = json.loads(result.read_text())
        assert code == 0
        assert set(found) >= {
            *("perplexity", "nll", "tokens", "samples", "method", "corpus", "split")
        }
        assert f"{found['perplexity']:.2f}" in out
        assert found["samples"] == samples
        assert found["method"] == extra[1]
        perplexities[samples] = found["perplexity"]
    vocabulary = len(RunDirectory(run).read_text("vocabulary.txt").split())
    assert all(1 < value < vocabulary for value in perplexities.values())
    assert (perplexities[0] == perplexities[3]) == (extra[1] == "plain")
    code, out, _ = program("generate", run, "--prompt", "It is a truth", "--words", 12)
    assert code == 0
    assert out.lower().startswith("it is a truth")
    assert len(out.split()) >= 8


def test_evaluation_does_not_depend_on_the_unroll(runs, program, tmp_path):
    run = shutil.copytree(runs / "bbb", tmp_path / "run")
    found = []
    for unroll in (1, 7, 1000):
        program("evaluate", run, "--unroll", unroll, "--json", tmp_path / "result.json")
        found.append(json.loads((tmp_path / "result.json").read_text()))
    assert len({result["tokens"] for result in found}) == 1
    assert found[0]["nll"] == pytest.approx(found[1]["nll"], rel=1e-5)
    assert found[0]["nll"] == pytest.approx(found[2]["nll"], rel=1e-5)


def test_compare_writes_one_page(runs, program, tmp_path):
    copies = [shutil.copytree(runs / m, tmp_path / m) for m in ("plain", "bbb")]
    for run in copies:
        assert program("evaluate", run)[0] == 0
    page = tmp_path / "page.html"
    code, out, _ = program("compare", *copies, "--out", page)
    assert code == 0
    assert "plain" in out
    assert "bbb" in out
    assert max(len(line) for line in out.splitlines()) <= 100
    text = page.read_text()
    HTMLParser().feed(text)
    assert text.count("<svg") >= 1
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")


def test_a_config_given_back_repeats_the_run(train_arguments, program, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    program(*train_arguments, "--epochs", "1", "--out", first, "--seed", "7")
    code, _, errors = program("train", "lm", "--config", first / "config.toml", "--out", second)
    assert code == 0, errors
    assert model_hash(first) == model_hash(second)


def test_generation_is_repeatable_and_obeys_its_options(runs, program):
    def text(*options):
        code, out, _ = program("generate", runs / "bbb", "--words", "30", *options)
        assert code == 0
        return out

    assert text("--seed", "3") == text("--seed", "3")
    assert text("--seed", "3") != text("--seed", "4")
    assert text("--temperature", "0", "--seed", "3") == text("--top-k", "1", "--seed", "4")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "plain", "--dropout", "0.5"], ["plain", "no option --dropout"]),
        (["--method", "dropout", "--kl-weight", "1"], ["--kl-weight", "bbb"]),
        (["--method", "dropout", "--dropout", "1.5"], ["--dropout", "1.5"]),
        (["--epochs", "0"], ["--epochs", "0"]),
        (["--lr", "-1"], ["--lr", "-1"]),
        (["--optimizer", "lbfgs"], ["--optimizer", "adam"]),
        (["--optimizer", "muon"], ["--optimizer", "adam"]),
        (["--method", "plain", "--kl-weighting", "geometric"], ["--kl-weighting", "bbb"]),
        (["--batch-size", "100000"], ["--batch-size", "--unroll"]),
        (["--corpus", "no-such-thing"], ["no-such-thing", "pride-and-prejudice"]),
        (["--corpus", "ptb", "--data-dir", "."], ["ptb", "looked for"]),
        (["--device", "cuda"], ["cuda", "cpu"]),
        (["--config", "missing.toml"], ["missing.toml"]),
        (["--prior-sigma1", "0"], ["sigma1", "above 0"]),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("--") else "",
)
def test_mistakes_get_one_clear_line(options, words, train_arguments, program, tmp_path):
    code, _, errors = program(*train_arguments, "--out", tmp_path / "run", *options)
    assert code == 1
    assert errors.count("\n") == 1
    assert "Traceback" not in errors
    for word in words:
        assert word in errors


def test_a_config_with_wrong_entries_is_refused(program, tmp_path):
    for text, word in (
        ('epochs = "ten"', "whole number"),
        ("speed = 3", "speed"),
        ('method = "magic"', "magic"),
        ("epochs = ", "TOML"),
        ("[options]\ndropout = 0.5", "dropout"),
        ('[options]\nprior = "foo"', "--prior"),
        ("options = 3", "table"),
    ):
        config = tmp_path / "config.toml"
        config.write_text(text)
        code, _, errors = program("train", "lm", "--config", config, "--out", tmp_path / "run")
        assert code == 1
        assert word in errors
        assert errors.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_an_unknown_choice_is_refused_by_the_parser(program):
    code, _, errors = program("train", "lm", "--method", "magic")
    assert code == 2
    assert "magic" in errors
    assert "'dropout'" in errors


@pytest.mark.parametrize("word", ["magic", "None"])
def test_not_given_is_no_choice(program, word):
    code, _, errors = program("train", "lm", "--prior-per", word, "--corpus", "nowhere.txt")
    assert code == 2
    _, said = errors.split("Expected one of")
    assert "'column'" in said
    assert "'None'" not in said


def test_help_names_every_option_and_command(program):
    code, out, _ = program("--help")
    assert code == 0
    for command in ("train", "evaluate", "generate", "compare", "quickstart", "bench"):
        assert command in out
    _, out, _ = program("train", "lm", "--help")
    for option in ("--corpus", "--method", "--size", "--epochs", "--out", "--seed", "--config"):
        assert option in out
    for option in ("--device", "--threads", "--resume", "--dropout", "--prior-per"):
        assert option in out


def test_a_run_is_not_overwritten(runs, train_arguments, program, tmp_path):
    run = shutil.copytree(runs / "bbb", tmp_path / "run")
    before = model_hash(run)
    code, _, errors = program(*train_arguments, "--epochs", "1", "--out", run)
    assert code == 1
    assert "--resume" in errors
    assert model_hash(run) == before


def test_evaluating_something_else_is_refused(program, tmp_path):
    code, _, errors = program("evaluate", tmp_path)
    assert code == 1
    assert "config.toml" in errors


def test_tensorboard_gets_the_curves(train_arguments, program, tmp_path):
    pytest.importorskip("tensorboard")
    run = tmp_path / "run"
    code, _, errors = program(*train_arguments, "--epochs", "1", "--tensorboard", "--out", run)
    assert code == 0, errors
    files = list((run / "tensorboard").iterdir())
    assert len(files) == 1
    assert b"epoch/valid_perplexity" in files[0].read_bytes()


def test_a_missing_extra_is_named(train_arguments, program, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    code, _, errors = program(*train_arguments, "--tensorboard", "--out", tmp_path / "run")
    assert code == 1
    assert "bayesrnn[tensorboard]" in errors
