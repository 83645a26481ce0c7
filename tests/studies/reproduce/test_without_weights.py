"""A reproduction keeps the figures of runs whose weights are gone."""

import json
import re
import shutil

import pytest

from bayesrnn.studies.reproduce import measure as reproduce_results

from .conftest import SPEEDS, command, interrupt_at, markdown_of, remove_weights, values_of


@pytest.fixture
def figures_alone(copied):
    """What a repository would keep of a reproduction: logs, settings and the report."""
    for run in (copied / "plain-seed1", copied / "bbb-seed1"):
        remove_weights(run)
        for part in run.glob("*.json"):
            part.unlink()
        shutil.rmtree(run / "results")
        assert sorted(path.name for path in run.iterdir() if path.name != ".lock") == [
            *("config.toml", "metrics.jsonl", "vocabulary.txt")
        ]
    (copied / "bench.json").unlink()
    return copied


def test_figures_outlive_the_weights(figures_alone, calls, program):
    before = values_of(figures_alone)
    code, _, errors = program(*command(figures_alone))
    assert code == 0
    assert calls == [], "nor is the speed measured again"
    assert errors.count("has no weights any more: its log and what was measured stay") == 2
    after = values_of(figures_alone)
    assert after["runs"] == before["runs"]
    assert after["speeds"] == before["speeds"]
    assert after["not_measured"] == after["missing"] == []
    note = "measured earlier, the weights being gone: plain-seed1, bbb-seed1"
    assert note in markdown_of(figures_alone)


def test_removed_checkpoints_are_removed_weights(copied, calls, program):
    before = values_of(copied)["runs"]
    shutil.rmtree(copied / "bbb-seed1" / "checkpoints")
    code, out, _ = program(*command(copied, "--dry-run"))
    assert code == 0
    assert "keep the figures of bbb-seed1: 2 of 2 epochs done, the weights are gone" in out
    assert "all is done" in out
    assert program(*command(copied))[0] == 0
    assert calls == []
    assert values_of(copied)["runs"] == before


def test_a_seed_is_added_to_figures_without_weights(figures_alone, calls, program):
    before = {run["name"]: run for run in values_of(figures_alone)["runs"]}
    only = ("--methods", "bbb", "--seeds", 2, "--skip", "bench,pruning,entropy")
    assert program(*command(figures_alone, *only))[0] == 0
    assert calls.count("train_run") == 1
    runs = {run["name"]: run for run in values_of(figures_alone)["runs"]}
    assert list(runs) == ["bbb-seed1", "bbb-seed2", "plain-seed1"]
    for name, run in before.items():
        assert runs[name] == run
    figures = [runs[f"bbb-seed{seed}"]["perplexities"]["test-mean"] for seed in (1, 2)]
    row = next(x for x in markdown_of(figures_alone).splitlines() if x.startswith("| bbb |"))
    assert "| 1, 2 |" in row
    assert f"| {sum(figures) / 2:.2f} +- " in row


@pytest.mark.parametrize("change", [{"epoch": 3}, {"valid_perplexity": 9.5}])
def test_another_log_does_not_have_the_figures_of_the_report(figures_alone, program, change):
    log = figures_alone / "plain-seed1" / "metrics.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert records[-1]["epoch"] == 2
    records.append({**records[-1], **change})
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    _, out, _ = program(*command(figures_alone, "--dry-run", "--methods", "plain"))
    assert "train plain-seed1: 0 of 2 epochs done" in out


def test_results_of_the_run_itself_outlive_the_weights_as_well(copied, calls, program):
    before = values_of(copied)["runs"]
    shutil.rmtree(copied / "bbb-seed1" / "checkpoints")
    (copied / "results.json").unlink()
    assert program(*command(copied))[0] == 0
    assert calls == []
    assert values_of(copied)["runs"] == before


def test_speeds_of_an_earlier_report_are_measured_again_with_one_more_method(
    figures_alone, monkeypatch, program
):
    asked = []
    monkeypatch.setattr(
        reproduce_results,
        "bench",
        lambda steps, threads, methods: (
            asked.append(methods) or dict.fromkeys(methods, SPEEDS["plain"])
        ),
    )
    only = ("--methods", "dropout", "--skip", "dynamic,draws,entropy,pruning", "--epochs", 1)
    assert program(*command(figures_alone, *only))[0] == 0
    assert asked == [["plain", "bbb", "dropout"]]


def test_figures_of_runs_that_are_not_shown_are_not_lost(figures_alone, tmp_path, program, calls):
    before = {run["name"]: run for run in values_of(figures_alone)["runs"]}
    (figures_alone / "bbb-seed1").rename(tmp_path / "aside")
    assert program(*command(figures_alone, "--methods", "plain"))[0] == 0
    assert [run["name"] for run in values_of(figures_alone)["runs"]] == ["plain-seed1"]
    (tmp_path / "aside").rename(figures_alone / "bbb-seed1")
    assert program(*command(figures_alone))[0] == 0
    assert {run["name"]: run for run in values_of(figures_alone)["runs"]} == before
    assert calls == []


def test_a_folder_of_another_size_is_refused_and_left_as_it_is(figures_alone, program):
    before = (figures_alone / "results.json").read_bytes()
    code, _, errors = program(*command(figures_alone, "--size", "small", "--methods", "dropout"))
    assert code == 1
    assert "has the results of size tiny, and size small was asked for" in errors
    assert (figures_alone / "results.json").read_bytes() == before


def test_a_run_may_be_a_link_to_a_folder_of_another_name(copied, tmp_path, program, calls):
    before = values_of(copied)["runs"]
    (copied / "bbb-seed1").rename(tmp_path / "mine")
    (copied / "bbb-seed1").symlink_to(tmp_path / "mine")
    assert program(*command(copied))[0] == 0
    assert values_of(copied)["runs"] == before
    remove_weights(tmp_path / "mine")
    assert program(*command(copied))[0] == 0
    assert values_of(copied)["runs"] == before
    assert calls == []


def test_a_seed_written_otherwise_is_not_shown_twice(figures_alone, program):
    (figures_alone / "bbb-seed01").mkdir()
    assert program(*command(figures_alone, "--methods", "plain"))[0] == 0
    names = [run["name"] for run in values_of(figures_alone)["runs"]]
    assert names == ["plain-seed1", "bbb-seed1"]


def test_an_unfinished_run_without_weights_is_shown_and_trained_anew(
    tmp_path, monkeypatch, program, calls, small_world
):
    out = tmp_path / "out"
    skip = "bench,entropy,pruning,dynamic,draws"
    with monkeypatch.context() as patch:
        interrupt_at(patch, 6)
        program(*command(out, "--methods", "plain"))
    program(*command(out, "--methods", "plain", "--skip", f"training,{skip}"))
    before = values_of(out)["runs"]
    assert before[0]["epochs_done"] == 1
    assert before[0]["perplexities"]["test-mean"]
    shutil.rmtree(out / "plain-seed1" / "checkpoints")
    calls.clear()
    code, _, _ = program(*command(out, "--methods", "plain", "--skip", f"training,{skip}"))
    assert code == 0
    assert values_of(out)["runs"] == before
    assert "plain (unfinished)" in markdown_of(out)
    assert calls == []
    # As many epochs as were done: the new weights have the step of those that were measured.
    code, _, errors = program(*command(out, "--methods", "plain", "--skip", skip, "--epochs", 1))
    assert code == 0
    assert "plain-seed1 has no weights to go on from: it is trained from the start" in errors
    assert "keeps its own settings" not in errors
    assert "train plain-seed1: 0 of 1 epochs done, anew" in errors
    assert calls == ["train_run", "evaluate", "evaluate"]
    (after,) = values_of(out)["runs"]
    assert (after["epochs"], after["epochs_done"]) == (1, 1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: "[]",
        lambda text: text.replace('"draws"', '"drawn"'),
        lambda text: text.replace('"ratio"', '"ratios"'),
        lambda text: re.sub('"test-mean": .*', '"test-mean": "many",', text),
    ],
)
def test_a_damaged_report_is_told_in_one_line_before_the_work(
    figures_alone, program, calls, damage
):
    report = figures_alone / "results.json"
    report.write_text(damaged := damage(report.read_text()))
    code, _, errors = program(*command(figures_alone, "--seeds", "1,2"))
    assert code == 1
    assert calls == []
    assert "results.json is damaged; give back a whole copy, or remove it" in errors
    assert "Traceback" not in errors
    assert report.read_text() == damaged


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_as_asked_for(copied, program):
    run = copied / "plain-seed1"
    remove_weights(run)
    (run / "metrics.jsonl").unlink()
    only = ("--methods", "plain", "--skip", "bench,dynamic,draws,entropy,pruning")
    code, _, errors = program(*command(copied, *only, "--epochs", 3))
    assert code == 0
    assert "train plain-seed1: 0 of 3 epochs done" in errors
    assert "epochs = 3" in (run / "config.toml").read_text()
