"""What the report of a reproduction shows."""

import json
import re
import shutil

from bayesrnn.methods import METHODS
from bayesrnn.studies.reproduce.options import PtbOptions
from bayesrnn.studies.reproduce.report import gather

from .conftest import TRAINING, command, interrupt_at, markdown_of, result, values_of

PERPLEXITIES = [
    f"{split}-{inference}"
    for split in ("valid", "test")
    for inference in ("mean", "draws", "dynamic")
]


def test_files_show_the_results(finished):
    markdown = markdown_of(finished)
    page = (finished / "results.html").read_text()
    shown = {
        "plain-seed1": ("mean", "dynamic-sgd"),
        "bbb-seed1": ("mean", "samples2", "dynamic-sgd"),
    }
    for run, inferences in shown.items():
        names = [f"{split}-{inference}" for split in ("valid", "test") for inference in inferences]
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
    pictures = re.findall(r"!\[.*\]\((.*)\)", markdown)
    assert len(pictures) == 4
    for name in pictures:
        assert "bbb-seed1" in (finished / name).read_text()


def test_results_of_other_weights_are_not_shown(copied):
    kept = result(copied / "bbb-seed1", "test-mean")
    changed = json.dumps({**kept, "step": kept["step"] - 1})
    (copied / "bbb-seed1" / "results" / "test-mean.json").write_text(changed)
    for part in ("pruning", "entropy"):
        path = copied / "bbb-seed1" / f"{part}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "key": {"step": 1}}))
    options = PtbOptions("tiny", "plain,bbb", out=copied, samples=2, epochs=2)
    plain, bbb = gather(options).runs
    assert {*PERPLEXITIES} - {*bbb.perplexities} == {"test-mean"}
    assert (
        bbb.perplexities["valid-mean"] == result(copied / "bbb-seed1", "valid-mean")["perplexity"]
    )
    assert (bbb.gaps, bbb.pruning) == ((), None)
    assert plain.gaps


def test_results_of_a_text_in_parts_are_not_shown(copied):
    kept = result(copied / "bbb-seed1", "test-mean")
    changed = json.dumps({**kept, "streams": 20})
    (copied / "bbb-seed1" / "results" / "test-mean.json").write_text(changed)
    options = PtbOptions("tiny", "bbb", out=copied, samples=2, epochs=2)
    bbb, _ = gather(options).runs
    assert {*PERPLEXITIES} - {*bbb.perplexities} == {"test-mean"}


def test_earlier_runs_of_the_same_folder_are_shown_as_well(copied, program):
    shutil.copytree(copied / "bbb-seed1", copied / "bbb-seed2")  # not a run of seed 2
    (copied / "bbb-seed3").mkdir()
    only = ("--methods", "dropout", "--epochs", 1)
    assert program(*command(copied, *TRAINING, *only))[0] == 0
    values = values_of(copied)
    shown = {run["name"]: run for run in values["runs"]}
    assert list(shown) == ["dropout-seed1", "plain-seed1", "bbb-seed1"]
    assert shown["bbb-seed1"]["unlike_asked"] == []
    kept = result(copied / "bbb-seed1", "test-mean")["perplexity"]
    assert shown["bbb-seed1"]["perplexities"]["test-mean"] == kept
    assert values["not_measured"] == [], "the earlier runs have it all"


def test_a_bound_stands_in_a_row_of_its_own(small_world, tmp_path, program, calls):
    out = tmp_path / "out"
    parts = ("--methods", "sharpened", "--skip", "bench,entropy,pruning,draws")
    assert program(*command(out, *parts))[0] == 0
    assert calls.count("evaluate") == 2, "one call gives all rows but the dynamic one"
    bound = result(out / "sharpened-seed1", "test-bound")["perplexity"]
    markdown = markdown_of(out)
    assert f"\\<= {bound:.2f}" in markdown
    calls.clear()
    assert program(*command(out, *parts))[0] == 0
    assert calls == []


def test_any_method_can_be_named(small_world, tmp_path, program):
    """Those with several networks, or draws, are averaged; the rest has none to average."""
    every = ("--methods", ",".join(METHODS), "--dry-run")
    code, out, _ = program(*command(tmp_path / "out", *every))
    assert code == 0
    assert all(f"train {method}-seed1: 0 of" in out for method in METHODS)
    methods = ["dropout", "sgld", "ensemble"]
    skip = ("--skip", "bench,dynamic,entropy", "--epochs", 1)
    code, out, _ = program(*command(tmp_path / "out", "--methods", ",".join(methods), *skip))
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if "lstm 1x8" in line}
    assert list(rows) == methods
    assert "not in the paper" in markdown_of(tmp_path / "out")
    assert "(5)" in rows["ensemble"], "its five members"
    assert "1/1" in rows["dropout"]
    assert "5/5" in rows["ensemble"], "a round for each member"


def test_without_training_unfinished_runs_are_measured_and_marked(
    small_world, tmp_path, monkeypatch, program
):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        interrupt_at(patch, 6)
        program(*command(out))
    code, _, _ = program(*command(out, "--skip", "training,bench,entropy,pruning,dynamic"))
    assert code == 0
    markdown = markdown_of(out)
    assert "plain (unfinished)" in markdown
    assert f"{result(out / 'plain-seed1', 'test-mean')['perplexity']:.2f}" in markdown
    assert not (out / "plain-seed1" / "results" / "test-dynamic-sgd.json").exists()
    assert not (out / "bbb-seed1").exists()
