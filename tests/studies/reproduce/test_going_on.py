"""A reproduction does what is missing, and that alone."""

import json
import shutil
import signal

import pytest

from bayesrnn.errors import RunError, TrainingDivergedError
from bayesrnn.studies.reproduce import measure, run_state
from bayesrnn.studies.reproduce import work as reproduce

from ...conftest import model_hash
from .conftest import SPEEDS, TRAINING, command, interrupt_at, markdown_of, result


def test_a_second_call_does_nothing_again(copied, calls, program):
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    code, out, errors = program(*command(copied))
    assert code == 0
    assert calls == []
    assert "[1/" not in errors
    assert "results.html" in out
    assert f"{result(copied / 'bbb-seed1', 'test-mean')['perplexity']:.2f}" in out
    after = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    changed = {path.name for path in after if after[path] != before.get(path)}
    assert changed <= {"results.md", "results.html", "results.json"}, "which name the folder"


def test_only_what_is_missing_is_done(copied, calls, program):
    (copied / "bbb-seed1" / "results" / "test-dynamic-sgd.json").unlink()
    (copied / "plain-seed1" / "results" / "valid-mean.json").unlink()
    (copied / "plain-seed1" / "entropy.json").unlink()
    code, _, errors = program(*command(copied))
    assert code == 0
    assert calls == ["evaluate", "uncertainty", "dynamic_row"]
    assert "[1/3] evaluate plain-seed1: valid mean" in errors
    assert "[3/3] evaluate bbb-seed1: test dynamic-sgd" in errors
    assert result(copied / "bbb-seed1", "test-dynamic-sgd")["label"].startswith("dynamic sgd")


def test_results_of_other_weights_or_settings_are_measured_again(copied, calls, program):
    folder = copied / "bbb-seed1" / "results"
    changes = {
        "valid-mean": {"step": 1},
        "test-mean": {"streams": 20},
        "valid-samples2": {"seed": 2},
        "test-dynamic-sgd": {"dynamic": {"lr": 0.2, "decay": 0.0, "segment": 5}},
    }
    for name, change in changes.items():
        kept = {**result(copied / "bbb-seed1", name), **change}
        (folder / f"{name}.json").write_text(json.dumps(kept))
    for part, key in (("bbb-seed1/pruning", {"step": 1}), ("bench", {"methods": ["plain"]})):
        path = copied / f"{part}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "key": key}))
    assert program(*command(copied))[0] == 0
    assert calls == ["evaluate"] * 3 + ["dynamic_row", "prune_run", "bench"]
    for name, change in changes.items():
        again = result(copied / "bbb-seed1", name)
        assert all(again[key] != value for key, value in change.items())


def test_a_run_that_is_made_again_is_measured_again(copied, calls, program):
    shutil.rmtree(copied / "bbb-seed1")
    assert program(*command(copied, "--skip", "bench,draws,dynamic"))[0] == 0
    assert calls.count("uncertainty") == calls.count("prune_run") == 1


@pytest.mark.parametrize("change", [{"steps": 7}, {"threads": 3}])
def test_speeds_measured_otherwise_are_measured_again(copied, calls, program, change):
    path = copied / "bench.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "key": {**kept["key"], **change}}))
    assert program(*command(copied))[0] == 0
    assert calls == ["bench"]
    assert json.loads(path.read_text())["key"] == kept["key"]


def test_speeds_of_earlier_methods_do_not_vanish(copied, monkeypatch, program):
    asked = []

    def speeds(steps, threads, methods):
        asked.append((steps, threads, list(methods)))
        return dict.fromkeys(methods, SPEEDS["plain"])

    monkeypatch.setattr(measure, "bench", speeds)
    only = ("--skip", "dynamic,draws,entropy,pruning", "--epochs", 1)
    assert program(*command(copied, "--methods", "dropout", *only))[0] == 0
    assert asked == [(40, 1, ["plain", "bbb", "dropout"])]
    assert program(*command(copied, "--methods", "bbb", *only))[0] == 0
    assert len(asked) == 1, "fewer methods are there already"
    markdown = markdown_of(copied)
    for method in ("plain", "bbb", "dropout"):
        assert f"| {method} | 1.00x |" in markdown


def test_an_error_of_the_report_does_not_hide_that_of_the_step(copied, monkeypatch, program):
    def fails(words):
        def function(*_):
            raise RunError(words)

        return function

    (copied / "bbb-seed1" / "pruning.json").unlink()
    monkeypatch.setattr(measure, "prune_run", fails("the step failed"))
    monkeypatch.setattr(reproduce, "write_report", fails("the report failed"))
    code, _, errors = program(*command(copied))
    assert code == 1
    assert "the step failed" in errors.splitlines()[-1]
    assert "the results were not written: the report failed" in errors


def test_other_numbers_of_draws_are_other_results(copied, calls, program):
    assert program(*command(copied, "--samples", 3))[0] == 0
    assert calls == ["evaluate", "evaluate", "uncertainty"]
    shown = result(copied / "bbb-seed1", "test-samples3")["perplexity"]
    assert f"{shown:.2f} (3)" in markdown_of(copied)
    calls.clear()
    for fewer in ((), ("--skip", "draws")):
        assert program(*command(copied, *fewer))[0] == 0
        assert calls == [], "what was measured with more draws is not lost"
    gap = json.loads((copied / "bbb-seed1" / "entropy.json").read_text())["found"]
    assert [level["samples"] for level in gap["levels"]] == [0, 1, 2, 3]
    shown = result(copied / "bbb-seed1", "test-samples2")["perplexity"]
    assert f"{shown:.2f} (2)" in markdown_of(copied)


def test_another_seed_is_one_more_run(copied, calls, program):
    for run in ("plain-seed1", "bbb-seed1"):
        (copied / run / "pruning.json").unlink()
    code, _, errors = program(*command(copied, *TRAINING, "--seeds", "1,2"))
    assert code == 0
    assert calls.count("train_run") == 2
    assert "train plain-seed2: 0 of 2 epochs done" in errors
    markdown = markdown_of(copied)
    assert "+-" in markdown
    assert "left out: pruning\n" in markdown, "entropy gaps of seed 1 are there"


def test_a_step_that_fails_does_not_stop_the_others(copied, monkeypatch, program, calls):
    def diverges(*_):
        raise TrainingDivergedError("the loss became nan")

    (copied / "bbb-seed1" / "pruning.json").unlink()
    (copied / "plain-seed1" / "results" / "test-dynamic-sgd.json").unlink()
    monkeypatch.setattr(measure, "dynamic_row", diverges)
    monkeypatch.setattr(run_state, "train_run", diverges)
    code, _, errors = program(*command(copied, "--methods", "plain,dropout,bbb"))
    assert code == 1
    assert calls == ["prune_run", "bench"]
    assert errors.count("left out: its training failed") == 3  # all that is measured
    last = errors.splitlines()[-1]
    for words in (
        *("2 of the steps failed", "evaluate plain-seed1: test dynamic-sgd: the loss became nan"),
        *("train dropout-seed1", "--skip", "go on with: bayesrnn reproduce ptb"),
    ):
        assert words in last
    assert (copied / "bbb-seed1" / "pruning.json").exists()


def test_text_that_a_finished_run_does_not_find_is_told_at_once(copied, calls, program, tmp_path):
    config = copied / "plain-seed1" / "config.toml"
    config.write_text(f'data_dir = "{tmp_path}"\n' + config.read_text())
    code, _, errors = program(*command(copied))
    assert code == 1
    assert calls == []
    assert f"bayesrnn train lm --resume --out {copied / 'plain-seed1'} --data-dir" in errors


def test_a_run_with_other_settings_is_used_and_told(copied, calls, program):
    code, _, errors = program(*command(copied, "--epochs", 3))
    assert code == 0
    assert calls == []
    assert "bbb-seed1 keeps its own settings: epochs 2 (asked for: 3)" in errors
    markdown = markdown_of(copied)
    assert "epochs 2 (asked for: 3)" in markdown


def test_the_plan_says_what_is_done(copied, calls, program):
    (copied / "bbb-seed1" / "results" / "test-mean.json").unlink()
    code, out, _ = program(*command(copied, "--dry-run", "--seeds", "1,2"))
    assert code == 0
    assert calls == []
    done = [line.split(None, 1)[1] for line in out.splitlines() if line.startswith("done")]
    assert "train bbb-seed1: 2 of 2 epochs done" in done
    assert "entropy gap of bbb-seed1" in done
    to_do = "\n".join(line for line in out.splitlines() if line.startswith("to do"))
    assert "evaluate bbb-seed1: test mean" in to_do
    assert "train bbb-seed2: 0 of 2 epochs done" in to_do
    assert not (copied / "bbb-seed2").exists()


def test_an_interrupted_run_goes_on(finished, tmp_path, monkeypatch, program, calls):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        interrupt_at(patch, 6)
        code, _, errors = program(*command(out, *TRAINING))
    assert code == 128 + signal.SIGINT
    assert "go on with: bayesrnn reproduce ptb --size tiny" in errors.splitlines()[-1]
    markdown = markdown_of(out)
    assert "plain (unfinished)" in markdown
    assert "| 1/2 |" in markdown
    assert "not begun: bbb-seed1" in markdown
    calls.clear()
    code, _, errors = program(*command(out, *TRAINING))
    assert code == 0
    assert "continue plain-seed1: 1 of 2 epochs done" in errors
    assert calls.count("train_run") == 2
    for run in ("plain-seed1", "bbb-seed1"):
        assert model_hash(out / run) == model_hash(finished / run)
    assert "unfinished" not in markdown_of(out)


def test_ctrl_c_while_measuring_says_how_to_go_on(copied, monkeypatch, program):
    def stopped(*_):
        raise KeyboardInterrupt

    (copied / "bbb-seed1" / "pruning.json").unlink()
    monkeypatch.setattr(measure, "prune_run", stopped)
    code, _, errors = program(*command(copied))
    assert code == 128 + signal.SIGINT
    assert "stopped at [1/1] dropping weights of bbb-seed1" in errors
    assert "go on with: bayesrnn reproduce ptb" in errors


def test_an_unfinished_run_is_continued_with_its_own_settings(copied, program, calls):
    """Here, a kill came between the last line of the log and the last checkpoint."""
    run = copied / "plain-seed1"
    steps = sorted(int(path.name) for path in (run / "checkpoints").iterdir())
    shutil.rmtree(run / "checkpoints" / str(steps[-1]))
    (run / "last").write_text(f"{steps[0]}\n")
    (run / "best").write_text(f"{steps[0]}\n")
    code, out, _ = program(*command(copied, "--epochs", 5, "--dry-run"))
    assert "continue plain-seed1: 2 of 2 epochs done, with other settings" in out
    code, _, _ = program(*command(copied, "--epochs", 5))
    assert code == 0
    assert calls.count("train_run") == 1
    assert "epochs = 2" in (run / "config.toml").read_text()


def test_mistakes_are_told_in_one_line(
    small_world, finished, copied, tmp_path, program, monkeypatch
):
    (tmp_path / "file").write_text("")
    (copied / "bbb-seed3").write_text("")
    shutil.copytree(copied / "bbb-seed1", copied / "plain-seed2")
    shutil.copytree(copied / "plain-seed1", copied / "plain-seed4")
    (copied / "bbb-seed1" / "entropy.json").write_text("{")
    for arguments, words in (
        ((tmp_path / "file",), "is a file"),
        ((tmp_path / "no", "--methods", "magic"), "--methods has magic"),
        ((tmp_path / "no", "--seeds", "x"), "--seeds is 'x'"),
        ((tmp_path / "no", "--skip", "training"), "has none of the runs"),
        ((copied, "--seeds", "3"), "bbb-seed3 is a file"),
        ((copied, "--seeds", "2"), "is a run with method bbb, where one with plain is to be"),
        ((copied, "--size", "small"), "is a run with size tiny, where one with small is to be"),
        ((copied, "--seeds", "4"), "is a run with seed 1, where one with 4 is to be"),
        ((copied,), "entropy.json is damaged; remove it"),
    ):
        code, _, errors = program(*command(*arguments))
        assert code == 1
        assert words in errors
        assert len(errors.splitlines()) == 1
    monkeypatch.setenv("BAYESRNN_DATA", str(tmp_path))
    code, _, errors = program(*command(tmp_path / "no", "--dry-run"))
    assert code == 1
    assert "the data set 'ptb' was not found" in errors
    assert not (tmp_path / "no").exists()
