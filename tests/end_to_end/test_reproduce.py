"""The whole of `bayesrnn reproduce ptb`, on a made-up corpus of a few thousand words."""

import json
import os
import random
import re
import shutil
import signal
from importlib.util import find_spec

import pytest

from bayesrnn.cli import main
from bayesrnn.data import corpora
from bayesrnn.errors import RunError, TrainingDivergedError
from bayesrnn.methods import METHODS
from bayesrnn.tasks import recipes, reproduce, reproduce_results, reproduce_runs
from bayesrnn.tasks.reproduce_options import PtbOptions
from bayesrnn.tasks.reproduce_report import gather
from bayesrnn.training import Trainer

from .conftest import model_hash

SPEEDS = {
    name: {"ratio": ratio, "memory_ratio": 1.25, "seconds": 1.0, "megabytes": 1.0}
    for name, ratio in (("plain", 1.0), ("bbb", 0.8125))
}
FIGURES = [f"{split}-{way}" for split in ("valid", "test") for way in ("mean", "draws", "dynamic")]

#: What does the work: nothing of it may be called where all is done.
WORK = (
    (reproduce_runs, "train_language_model"),
    (reproduce_results, "evaluate"),
    (reproduce_results, "dynamic_row"),
    (reproduce_results, "uncertainty"),
    (reproduce_results, "prune_run"),
    (reproduce_results, "bench"),
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


@pytest.fixture(scope="module")
def small_world(tmp_path_factory):
    """A ptb folder, a tiny network for `tiny`, and a benchmark of speed that is only a table."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "ptb").mkdir()
    for split, lines in (("train", 300), ("valid", 30), ("test", 30)):
        (folder / "ptb" / f"ptb.{split}.txt").write_text(text(lines, split))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAYESRNN_DATA", str(folder))
        known = corpora._Published("ptb/ptb.{}.txt", (3300, 330, 330), 31)
        patch.setitem(corpora._PUBLISHED, "ptb", known)
        patch.setitem(recipes.SIZES, "tiny", recipes.Size(hidden=8, layers=1))
        patch.setattr(reproduce_results, "bench", lambda *_: SPEEDS)
        yield folder


@pytest.fixture(scope="module")
def finished(small_world, tmp_path_factory):
    """A folder in which plain and bbb are done; nobody may change it."""
    folder = tmp_path_factory.mktemp("reproduction") / "done"
    assert main(command(folder)) == 0
    return folder


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
    return json.loads((run / "results" / f"{name}.json").read_text())


def test_files_hold_the_figures_of_the_results(finished):
    markdown = (finished / "results.md").read_text()
    page = (finished / "results.html").read_text()
    ways = {
        "plain-seed1": ("mean", "dynamic-sgd"),
        "bbb-seed1": ("mean", "samples2", "dynamic-sgd"),
    }
    for run, inferences in ways.items():
        names = [f"{split}-{way}" for split in ("valid", "test") for way in inferences]
        there = sorted(path.stem for path in (finished / run / "results").iterdir())
        assert there == sorted(names)
        for name in names:
            kept = result(finished / run, name)
            assert kept["streams"] == 1
            assert f"{kept['perplexity']:.2f}" in markdown
            assert f"{kept['perplexity']:.2f}" in page
    gap = json.loads((finished / "bbb-seed1" / "entropy.json").read_text())["found"]
    assert [level["samples"] for level in gap["levels"]] == [0, 1, 2]
    assert list(gap["levels"][0]["shifts"]) == ["reversed"]
    for level in gap["levels"]:
        assert f"{level['shifts']['reversed']['gap']:.3f}" in markdown
    pruning = json.loads((finished / "bbb-seed1" / "pruning.json").read_text())["found"]
    at_80 = next(p for p in pruning["curves"]["signal-to-noise"] if p["fraction"] == 0.8)
    assert f"{at_80['perplexity']:.2f}" in markdown
    assert f"{pruning['quality']['dropped'] / pruning['weights']:.1%}" in markdown
    pruning = json.loads((finished / "plain-seed1" / "pruning.json").read_text())["found"]
    curve = {p["fraction"]: p["perplexity"] for p in pruning["curves"]["magnitude"]}
    assert f"| plain-seed1 | {curve[0]:.2f} | - | {curve[0.8]:.2f} |" in markdown
    assert "0.81x" in markdown
    assert "published: BRNN" in markdown
    assert "hidden 8 (published: 650)" in markdown
    assert "bayesrnn reproduce ptb --size tiny" in markdown
    shown = re.findall(r"!\[.*\]\((.*)\)", markdown)
    assert len(shown) == 4
    for name in shown:
        assert "bbb-seed1" in (finished / name).read_text()


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


def test_figures_of_other_weights_are_not_shown(copied):
    kept = result(copied / "bbb-seed1", "test-mean")
    changed = json.dumps({**kept, "step": kept["step"] - 1})
    (copied / "bbb-seed1" / "results" / "test-mean.json").write_text(changed)
    for part in ("pruning", "entropy"):
        path = copied / "bbb-seed1" / f"{part}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "key": {"step": 1}}))
    request = PtbOptions("tiny", "plain,bbb", out=copied, samples=2, epochs=2).request()
    plain, bbb = gather(request, "").runs
    assert {*FIGURES} - {*bbb.figures} == {"test-mean"}
    assert bbb.figures["valid-mean"] == result(copied / "bbb-seed1", "valid-mean")["perplexity"]
    assert (bbb.gaps, bbb.pruning) == ((), None)
    assert plain.gaps


def test_figures_of_a_text_in_parts_are_not_shown(copied):
    kept = result(copied / "bbb-seed1", "test-mean")
    changed = json.dumps({**kept, "streams": 20})
    (copied / "bbb-seed1" / "results" / "test-mean.json").write_text(changed)
    request = PtbOptions("tiny", "bbb", out=copied, samples=2, epochs=2).request()
    bbb, _ = gather(request, "").runs
    assert {*FIGURES} - {*bbb.figures} == {"test-mean"}


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

    monkeypatch.setattr(reproduce_results, "bench", speeds)
    only = ("--skip", "dynamic,draws,entropy,pruning", "--epochs", 1)
    assert program(*command(copied, "--methods", "dropout", *only))[0] == 0
    assert asked == [(40, 1, ["plain", "bbb", "dropout"])]
    assert program(*command(copied, "--methods", "bbb", *only))[0] == 0
    assert len(asked) == 1, "fewer methods are there already"
    markdown = (copied / "results.md").read_text()
    for method in ("plain", "bbb", "dropout"):
        assert f"| {method} | 1.00x |" in markdown


def test_an_error_of_the_report_does_not_hide_that_of_the_step(copied, monkeypatch, program):
    def fails(words):
        def function(*_):
            raise RunError(words)

        return function

    (copied / "bbb-seed1" / "pruning.json").unlink()
    monkeypatch.setattr(reproduce_results, "prune_run", fails("the step failed"))
    monkeypatch.setattr(reproduce, "write_report", fails("the report failed"))
    code, _, errors = program(*command(copied))
    assert code == 1
    assert "the step failed" in errors.splitlines()[-1]
    assert "the results were not written: the report failed" in errors


def test_other_numbers_of_draws_are_other_results(copied, calls, program):
    assert program(*command(copied, "--samples", 3))[0] == 0
    assert calls == ["evaluate", "evaluate", "uncertainty"]
    shown = result(copied / "bbb-seed1", "test-samples3")["perplexity"]
    assert f"{shown:.2f} (3)" in (copied / "results.md").read_text()
    calls.clear()
    for fewer in ((), ("--skip", "draws")):
        assert program(*command(copied, *fewer))[0] == 0
        assert calls == [], "what was measured with more draws is not lost"
    gap = json.loads((copied / "bbb-seed1" / "entropy.json").read_text())["found"]
    assert [level["samples"] for level in gap["levels"]] == [0, 1, 2, 3]
    shown = result(copied / "bbb-seed1", "test-samples2")["perplexity"]
    assert f"{shown:.2f} (2)" in (copied / "results.md").read_text()


def test_another_seed_is_one_more_run(copied, calls, program):
    for run in ("plain-seed1", "bbb-seed1"):
        (copied / run / "pruning.json").unlink()
    code, _, errors = program(*command(copied, "--seeds", "1,2", "--skip", "pruning,entropy"))
    assert code == 0
    assert calls.count("train_language_model") == 2
    assert "train plain-seed2: 0 of 2 epochs done" in errors
    markdown = (copied / "results.md").read_text()
    assert "+-" in markdown
    assert "left out: pruning\n" in markdown, "entropy gaps of seed 1 are there"


def test_earlier_runs_of_the_same_folder_are_shown_as_well(copied, program):
    shutil.copytree(copied / "bbb-seed1", copied / "bbb-seed2")  # not a run of seed 2
    (copied / "bbb-seed3").mkdir()
    only = ("--methods", "dropout", "--skip", "bench,dynamic,draws,entropy,pruning")
    assert program(*command(copied, *only, "--epochs", 1))[0] == 0
    values = json.loads((copied / "results.json").read_text())
    shown = {run["name"]: run for run in values["runs"]}
    assert list(shown) == ["dropout-seed1", "plain-seed1", "bbb-seed1"]
    assert shown["bbb-seed1"]["unlike_asked"] == []
    kept = result(copied / "bbb-seed1", "test-mean")["perplexity"]
    assert shown["bbb-seed1"]["perplexities"]["test-mean"] == kept
    assert values["not_measured"] == [], "the earlier runs have it all"


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_as_asked_for(copied, program):
    run = copied / "plain-seed1"
    remove_weights(run)
    (run / "metrics.jsonl").unlink()
    only = ("--methods", "plain", "--skip", "bench,dynamic,draws,entropy,pruning")
    code, _, errors = program(*command(copied, *only, "--epochs", 3))
    assert code == 0
    assert "train plain-seed1: 0 of 3 epochs done" in errors
    assert "epochs = 3" in (run / "config.toml").read_text()


def remove_weights(run):
    for name in ("last", "best"):
        (run / name).unlink()
    shutil.rmtree(run / "checkpoints")


def values_of(folder):
    return json.loads((folder / "results.json").read_text())


def markdown_of(folder):
    return (folder / "results.md").read_text()


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
    assert calls.count("train_language_model") == 1
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
    assert calls == ["train_language_model", "evaluate", "evaluate"]
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


def test_a_step_that_fails_does_not_stop_the_others(copied, monkeypatch, program, calls):
    def diverges(*_):
        raise TrainingDivergedError("the loss became nan")

    (copied / "bbb-seed1" / "pruning.json").unlink()
    (copied / "plain-seed1" / "results" / "test-dynamic-sgd.json").unlink()
    monkeypatch.setattr(reproduce_results, "dynamic_row", diverges)
    monkeypatch.setattr(reproduce_runs, "train_language_model", diverges)
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
    markdown = (copied / "results.md").read_text()
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


def interrupt_at(monkeypatch, number):
    """Ctrl-C in the `number`-th step of training that is made from now on."""
    step, made = Trainer.step, []

    def counted(self):
        made.append(1)
        if len(made) == number:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self)

    monkeypatch.setattr(Trainer, "step", counted)


def test_an_interrupted_run_goes_on(finished, tmp_path, monkeypatch, program, calls):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        interrupt_at(patch, 6)
        code, _, errors = program(*command(out))
    assert code == 128 + signal.SIGINT
    assert "go on with: bayesrnn reproduce ptb --size tiny" in errors.splitlines()[-1]
    markdown = (out / "results.md").read_text()
    assert "plain (unfinished)" in markdown
    assert "| 1/2 |" in markdown
    assert "not begun: bbb-seed1" in markdown
    calls.clear()
    code, _, errors = program(*command(out))
    assert code == 0
    assert "continue plain-seed1: 1 of 2 epochs done" in errors
    assert calls.count("train_language_model") == 2
    for run in ("plain-seed1", "bbb-seed1"):
        assert model_hash(out / run) == model_hash(finished / run)
    assert "unfinished" not in (out / "results.md").read_text()


def test_ctrl_c_while_measuring_says_how_to_go_on(copied, monkeypatch, program):
    def stopped(*_):
        raise KeyboardInterrupt

    (copied / "bbb-seed1" / "pruning.json").unlink()
    monkeypatch.setattr(reproduce_results, "prune_run", stopped)
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
    assert calls.count("train_language_model") == 1
    assert "epochs = 2" in (run / "config.toml").read_text()


def test_without_training_unfinished_runs_are_measured_and_marked(tmp_path, monkeypatch, program):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        interrupt_at(patch, 6)
        program(*command(out))
    code, _, _ = program(*command(out, "--skip", "training,bench,entropy,pruning,dynamic"))
    assert code == 0
    markdown = (out / "results.md").read_text()
    assert "plain (unfinished)" in markdown
    assert f"{result(out / 'plain-seed1', 'test-mean')['perplexity']:.2f}" in markdown
    assert not (out / "plain-seed1" / "results" / "test-dynamic-sgd.json").exists()
    assert not (out / "bbb-seed1").exists()


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


def test_a_bound_stands_in_a_row_of_its_own(small_world, tmp_path, program, calls):
    out = tmp_path / "out"
    parts = ("--methods", "sharpened", "--skip", "bench,entropy,pruning,draws")
    assert program(*command(out, *parts))[0] == 0
    assert calls.count("evaluate") == 2, "one call gives all rows but the dynamic one"
    bound = result(out / "sharpened-seed1", "test-bound")["perplexity"]
    markdown = (out / "results.md").read_text()
    assert f"\\<= {bound:.2f}" in markdown
    calls.clear()
    assert program(*command(out, *parts))[0] == 0
    assert calls == []


def test_any_method_can_be_named(small_world, tmp_path, program):
    """Those with several networks, or draws, are averaged; the rest has none to average."""
    methods = [name for name in METHODS if name not in ("plain", "bbb", "sharpened")]
    if find_spec("ivon") is None:
        methods.remove("ivon")
    skip = ("--skip", "bench,dynamic,entropy", "--epochs", 1)
    code, out, _ = program(*command(tmp_path / "out", "--methods", ",".join(methods), *skip))
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if "lstm 1x8" in line}
    assert list(rows) == methods
    assert "not in the paper" in (tmp_path / "out" / "results.md").read_text()
    assert "(5)" in rows["ensemble"], "its five members"
    assert "1/1" in rows["dropout"]
    assert "5/5" in rows["ensemble"], "a round for each member"
