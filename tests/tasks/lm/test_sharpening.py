"""Sharpening a run on what it reads: tuned, kept, evaluated, through the program."""

import json
import math

import pytest

from bayesrnn.tasks.lm.sharpening import (
    SharpenedScorer,
    SharpenSettings,
    choose_sharpening,
    keep_sharpening,
    tuned_sharpening,
)
from bayesrnn.tasks.lm.task import TASK, LanguageModelTask
from bayesrnn.untrusted import unsealed

from ...conftest import TINY, model_hash
from .contents import contents

QUICK = ("--words", "120", "--segment", "20")


def rows_of(found):
    return {row["inference"]: row for row in found["rows"]}


@pytest.mark.parametrize("method", ["plain", "dropout", "bbb", "sharpened", "ensemble"])
def test_any_run_can_be_sharpened_and_stays_as_it_was(method, trained, evaluated):
    run = trained(method)
    before = contents(run)
    weights = ("--sharpen-weights", "0.5") if method == "bbb" else ()
    found, out = evaluated(run, "--sharpen", *weights)
    rows = rows_of(found)
    read, bound = rows["sharpened-read"], rows["sharpened-bound"]
    assert found["inference"] == "mean"
    assert read["tokens"] == bound["tokens"] == found["tokens"]
    assert bound["kl"] > 0
    assert bound["standard_error"] > 0
    assert "kl" not in read
    assert bound["sharpening"]["segment"] == bound["unroll"] == 35
    assert f"<= {bound['perplexity']:.2f}" in out
    assert f"{read['perplexity']:.2f}" in out
    assert f"<= {read['perplexity']:.2f}" not in out
    assert "seen the targets" in out
    kept = json.loads((run / "results" / "test-sharpened-bound.json").read_text())
    assert kept["perplexity"] == bound["perplexity"]
    assert contents(run) == before


def test_what_was_read_helps_a_network_that_knows_little(trained, evaluated):
    """Two epochs of a few sentences: the frequencies of words alone are worth something."""
    for method in ("plain", "bbb"):
        found, _ = evaluated(trained(method), "--sharpen")
        rows = rows_of(found)
        assert rows["sharpened-read"]["nll"] < found["nll"]
        assert rows["sharpened-bound"]["nll"] < found["nll"]


def test_without_carry_nothing_is_learnt_from_what_was_read(trained, evaluated):
    found, _ = evaluated(trained("bbb"), "--sharpen", "--sharpen-carry", "0")
    rows = rows_of(found)
    assert rows["sharpened-read"]["nll"] == pytest.approx(found["nll"], rel=1e-5)
    assert rows["sharpened-bound"]["sharpening"]["carry"] == 0
    # Hardly any prior to move in: the bound is the likelihood.
    tight = ("--sharpen-bias", "1e-6", "--sharpen-carry", "0")
    found, _ = evaluated(trained("plain"), "--sharpen", *tight)
    assert rows_of(found)["sharpened-bound"]["nll"] == pytest.approx(found["nll"], rel=1e-5)


def test_settings_are_tuned_kept_and_used(trained, evaluated, program):
    run = trained("bbb")
    code, out, errors = program("tune-sharpening", run, *QUICK)
    assert code == 0, errors
    assert "120 words of valid" in out
    kept = unsealed(json.loads((run / "sharpening.json").read_text()))
    assert set(kept) == {"read", "bound"}
    found, out = evaluated(run, "--sharpen")
    rows = rows_of(found)
    for aim in kept:
        assert rows[f"sharpened-{aim}"]["sharpening"] == kept[aim]
    assert "tuned on valid" in out
    given, _ = evaluated(run, "--sharpen", "--sharpen-segment", "7")
    for aim, row in (("read", "sharpened-read"), ("bound", "sharpened-bound")):
        assert rows_of(given)[row]["sharpening"] == {**kept[aim], "segment": 7}
    # What is said of the best is what that text gives with it.
    trained_run = TASK.open_run(run)
    corpus = trained_run.corpus()
    scorer = SharpenedScorer(trained_run, corpus, corpus.valid[:121])
    bound = scorer(tuned_sharpening(run)["bound"], 1).bound
    assert f"<= {bound.perplexity:.2f}" in program("tune-sharpening", run, *QUICK)[1]


def test_tuning_can_be_of_the_bias_or_of_independent_segments_alone(trained, program):
    run = trained("plain")
    assert program("tune-sharpening", run, *QUICK, "--bias-only", "--independent")[0] == 0
    found = tuned_sharpening(run)
    assert set(found) == {"bound"}
    assert found["bound"].weights == found["bound"].carry == 0
    kept = choose_sharpening(run, TASK.evaluate_options(sharpen=True))
    assert kept["bound"] == found["bound"]
    assert kept["read"] == SharpenSettings()
    # What is tuned anew takes the place of what there was; the other aim stays.
    other = SharpenSettings(weights=0.25, source="tuned on valid")
    keep_sharpening(run, {"read": other, "bound": other})
    assert program("tune-sharpening", run, *QUICK, "--bias-only", "--independent")[0] == 0
    assert tuned_sharpening(run) == {"read": other, "bound": found["bound"]}


def test_tuning_never_reads_the_test_text(trained, program, monkeypatch):
    run = trained("plain")

    def found(change_test):
        load = LanguageModelTask.open_run

        def changed(*arguments):
            model = load(*arguments)
            corpus = model.corpus()
            corpus.test.fill_(change_test)
            monkeypatch.setattr(type(model), "corpus", lambda self: corpus)
            return model

        with monkeypatch.context() as patch:
            patch.setattr(LanguageModelTask, "open_run", changed)
            return program("tune-sharpening", run, *QUICK, "--bias-only")

    assert found(0) == found(1)


def test_tuning_keeps_nothing_that_does_not_help(trained, program, monkeypatch):
    run = trained("plain")
    hopeless = {"read": math.inf, "bound": math.inf}
    monkeypatch.setattr("bayesrnn.tasks.lm.tune_sharpening._score", lambda *_: hopeless)
    code, out, _ = program("tune-sharpening", run, *QUICK)
    assert code == 0
    assert "nothing is kept" in out
    assert not (run / "sharpening.json").exists()


def test_the_form_that_shrinks_is_trained_resumed_and_bounded(tiny_text, program, tmp_path):
    """What it learns is in the checkpoints, and both bounds are shown."""
    schedule = ("--hold-epochs", "1", "--decay", "0.5", "--epochs")
    shrinking = ("--method", "sharpened", "--form", "shrinking", "--sharpen-names", "*bias*")
    given = ("train", "lm", "--corpus", tiny_text, *TINY, *shrinking, "--sigma0", "0.1")
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    assert program(*given, *schedule, 2, "--out", whole)[0] == 0
    assert program(*given, *schedule, 1, "--out", halves)[0] == 0
    assert program("train", "lm", "--resume", "--out", halves, "--epochs", 2)[0] == 0
    assert model_hash(whole) == model_hash(halves)
    net = TASK.open_run(whole).net
    assert net.shrinking.seen.item() > 0
    assert all(tau.item() != pytest.approx(2 * math.log(0.1)) for tau in net.tau_parameters())
    records = map(json.loads, (whole / "metrics.jsonl").read_text().splitlines())
    logged = [record for record in records if record["kind"] == "train"]
    assert logged[-1]["sigma0.output.bias"] > 0
    code, _, errors = program("evaluate", whole, "--sharpen", "--json", tmp_path / "found.json")
    assert code == 0, errors
    rows = rows_of(json.loads((tmp_path / "found.json").read_text()))
    assert list(rows) == ["mean", "samples10", "bound", "sharpened-read", "sharpened-bound"]
    page = tmp_path / "page.html"
    assert program("compare", whole, "--out", page)[0] == 0
    assert "shrinking form" in page.read_text()


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        ("evaluate", ["--sharpen-bias", "0.1"], ["--sharpen-bias", "add it"]),
        ("evaluate", ["--sharpen", "--sharpen-carry", "2"], ["--sharpen-carry", "2"]),
        ("evaluate", ["--sharpen", "--sharpen-bias", "0"], ["--sharpen-bias", "0"]),
        (
            "evaluate",
            ["--sharpen", "--sharpen-weights", "900", "--sharpen-segment", "5"],
            ["sharpening diverged", "--sharpen-weights"],
        ),
        ("tune-sharpening", ["--words", "10"], ["--words is 10", "70"]),
    ],
    ids=str,
)
def test_mistakes_get_one_clear_line(command, options, words, trained, program):
    code, _, errors = program(command, trained("plain"), *options)
    assert code == 1
    assert errors.count("\n") == 1
    for word in words:
        assert word in errors


def test_damaged_settings_are_refused(trained, program):
    run = trained("plain")
    for text in ("{", "[1]", '{"bound": {"bias": 1}}', '{"bound": 3}'):
        (run / "sharpening.json").write_text(text)
        code, _, errors = program("evaluate", run, "--sharpen")
        assert code == 1
        assert "sharpening.json is damaged" in errors
