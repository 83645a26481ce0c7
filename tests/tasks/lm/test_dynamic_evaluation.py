"""The rows of a sharpened run, and dynamic evaluation, through the program."""

import json

import pytest
import torch

from bayesrnn.tasks.lm.task import LanguageModelTask
from bayesrnn.untrusted import unsealed

from .contents import contents


def test_a_sharpened_run_has_three_rows(trained, evaluated):
    run = trained("sharpened")
    found, out = evaluated(run, "--split", "valid")
    mean, averaged, bound = found["rows"]
    assert (mean["inference"], averaged["inference"]) == ("mean", "samples10")
    assert found["perplexity"] == mean["perplexity"]
    assert bound["inference"] == "bound"
    assert bound["kl"] > 0
    assert bound["nll"] > bound["kl"]
    for label in ("phi mean", "phi averaged over 10 draws", "sharpened bound, NLL + KL"):
        assert label in out
    assert "upper bound" in out
    assert "seen the targets" in out
    assert f"<= {bound['perplexity']:.2f}" in out
    kept = json.loads((run / "results" / "valid-bound.json").read_text())
    assert kept["perplexity"] == bound["perplexity"]
    three, _ = evaluated(run, "--split", "valid", "--samples", "3")
    assert [row["samples"] for row in three["rows"]] == [0, 3, 0]
    assert three["perplexity"] == three["rows"][1]["perplexity"]


def test_the_log_of_a_sharpened_run_has_its_own_metrics(trained_once):
    lines = (trained_once("sharpened") / "metrics.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if record["kind"] == "train"]
    assert records
    for record in records:
        assert record["eta_rms"] > 0
        assert 0 <= record["eta_negative_share"] <= 1
        assert record["kl_per_word"] > 0
        assert record["minibatch_kl_per_word"] > 0


@pytest.mark.parametrize("method", ["plain", "dropout", "bbb", "sharpened"])
def test_dynamic_evaluation_learns_and_leaves_the_run_as_it_was(method, trained, evaluated):
    run = trained(method)
    before = contents(run)
    static, _ = evaluated(run)
    for rule in ("sgd", "rms"):
        settings = ("--dynamic-lr", "0.02") if rule == "sgd" else ("--dynamic-lr", "0.0005")
        found, out = evaluated(run, "--dynamic", rule, *settings)
        assert found["inference"] == f"dynamic-{rule}"
        assert found["perplexity"] < static["perplexity"]
        assert found["tokens"] == static["tokens"]
        assert f"dynamic {rule}" in out
    assert contents(run) == before
    assert evaluated(run)[0] == static


def test_dynamic_alone_means_sgd(trained, evaluated, program):
    run = trained("plain")
    found, out = evaluated(run, "--dynamic")
    assert found["dynamic"] == {"lr": 0.1, "decay": 0.0, "segment": 5}
    assert "default" in out
    code, out, _ = program("evaluate", "--dynamic", run)
    assert code == 0
    assert f"{found['perplexity']:.2f}" in out


def test_tuning_is_on_the_validation_text_and_is_used_afterwards(trained, evaluated, program):
    run = trained("bbb")
    code, out, _ = program("tune-dynamic", run, "--segment", "20", "--words", "300")
    assert code == 0
    assert "300 words of valid" in out
    kept = json.loads((run / "dynamic.json").read_text())["sgd"]
    assert kept["segment"] == 20
    found, out = evaluated(run, "--dynamic")
    assert found["dynamic"] == {name: kept[name] for name in ("lr", "decay", "segment")}
    assert "tuned on valid" in out
    given, _ = evaluated(run, "--dynamic", "--dynamic-lr", "0.001", "--dynamic-segment", "7")
    assert given["dynamic"] == {"lr": 0.001, "decay": 0.0, "segment": 7}
    code, out, _ = program("tune-dynamic", run, "--rule", "rms", "--words", "200")
    assert code == 0
    both = unsealed(json.loads((run / "dynamic.json").read_text()))
    assert set(both) == {"sgd", "rms"}
    assert both["sgd"] == kept
    label = evaluated(run, "--dynamic", "rms")[0]["label"]
    assert label.endswith("(tuned on valid)")
    # Kept by a version with another formula, so the numbers mean something else.
    del both["rms"]["formula"]
    (run / "dynamic.json").write_text(json.dumps(both))
    label = evaluated(run, "--dynamic", "rms")[0]["label"]
    assert label.endswith("(tuned on valid by an earlier version; tune again)")


def test_tuning_never_reads_the_test_text(trained, program, tiny_text, monkeypatch):
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
            return program("tune-dynamic", run, "--words", "60")

    assert found(0) == found(1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--dynamic-lr", "0.1"], ["--dynamic"]),
        (["--dynamic", "--dynamic-lr", "-1"], ["lr", "-1"]),
        (["--dynamic", "rms", "--dynamic-decay", "2"], ["decay", "2"]),
        (["--dynamic", "--dynamic-segment", "0"], ["segment", "0"]),
        (["--dynamic", "--dynamic-lr", "1e9"], ["diverged", "--dynamic-lr"]),
        (["--dynamic", "--dynamic-lr", "1e300"], ["--dynamic-lr", "1e+300", "at most"]),
        (["--dynamic", "--dynamic-decay", "0.1"], ["--dynamic-decay", "rms"]),
        (["--dynamic", "rms", "--dynamic-segment", "-1"], ["--dynamic-segment", "-1"]),
        (["--dynamic", "rms", "--dynamic-segment", "100000"], ["--dynamic-segment", "shorter"]),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("--dynamic") else "",
)
def test_mistakes_get_one_clear_line(options, words, trained, program):
    code, _, errors = program("evaluate", trained("plain"), *options)
    assert code == 1
    assert errors.count("\n") == 1
    for word in words:
        assert word in errors


def test_a_word_that_is_no_rule_is_named(trained, program):
    code, _, errors = program("evaluate", trained("plain"), "--dynamic", "foo")
    assert code == 2
    assert "foo" in errors
    assert "sgd" in errors


def test_tuning_keeps_nothing_that_does_not_help(trained, program, monkeypatch):
    from bayesrnn.tasks.lm import dynamic_settings as dynamic

    run = trained("plain")
    monkeypatch.setattr(dynamic, "dynamic_log_probs", lambda *_: torch.full((100,), -50.0))
    code, out, _ = program("tune-dynamic", run, "--words", "100")
    assert code == 0
    assert "nothing is kept" in out
    assert not (run / "dynamic.json").exists()
    code, _, errors = program("tune-dynamic", run, "--words", "3")
    assert code == 1
    assert "--words is 3" in errors


def test_what_is_shown_while_training_has_the_price_in_it(train_arguments, program, tmp_path):
    """However little the KL of sharpening weighs in the loss, metrics are shown with all of it."""
    options = ("--eta-init", "0.05", "--eta-lr", "0", "--sharpen-kl-weight", "0")
    run = tmp_path / "run"
    program(*train_arguments, "--epochs", "1", "--method", "sharpened", "--out", run, *options)
    (*_, record) = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    vocabulary = len((run / "vocabulary.txt").read_text().split())
    assert record["train_perplexity"] > vocabulary


def test_damaged_settings_are_refused(trained, program):
    run = trained("plain")
    fitting = '{"sgd": {"lr": %s, "decay": 0.0, "segment": %s}}'
    for text in ("{", "[1]", '{"sgd": {"lr": 1}}', fitting % ('"x"', 5), fitting % (0.1, '"5"')):
        (run / "dynamic.json").write_text(text)
        code, _, errors = program("evaluate", run, "--dynamic")
        assert code == 1
        assert "dynamic.json is damaged" in errors
