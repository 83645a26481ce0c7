"""The calibration of a run: kept in its folder, used by every command that predicts."""

import json
import math
import shutil
from dataclasses import replace

import pytest
import torch

from bayesrnn.runs import calibrate as calibrating
from bayesrnn.runs.calibration import (
    Calibration,
    read_calibration,
    scaling_words,
    write_calibration,
)
from bayesrnn.runs.verdict import (
    Finding,
    Verdict,
    classes_findings,
    draws_finding,
    numbers_findings,
    unfamiliar_finding,
    unknown_words_finding,
    word_findings,
)
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.uncertainty.fitting import FittedScaling
from bayesrnn.uncertainty.scaling import Scaling

SCALING = Scaling(noise=0.7, temperature=0.9, mean_temperature=1.2)


def made(step=3, draws_fitted=4.0, mean_fitted=4.1):
    fitted = FittedScaling(SCALING, 10, 100, 4.2, mean_fitted, 4.3, draws_fitted)
    return Calibration(step=step, samples=10, seed=1, unit="word", fitted=fitted)


@pytest.fixture
def run(runs, tmp_path):
    """A run with a posterior, which a test may change; it is calibrated to `SCALING`."""
    folder = shutil.copytree(runs / "bbb", tmp_path / "run", symlinks=True)
    write_calibration(folder, made(TASK.open_run(folder).step))
    return folder


def test_there_and_back(tmp_path):
    assert read_calibration(tmp_path) is None
    write_calibration(tmp_path, made())
    assert read_calibration(tmp_path) == made()
    whole = replace(made(), whole=True)
    write_calibration(tmp_path, whole)
    assert read_calibration(tmp_path) == whole
    of_one = made().for_one_network()
    write_calibration(tmp_path, of_one)
    assert read_calibration(tmp_path) == of_one
    assert of_one.scaling == Scaling(temperature=1.2, mean_temperature=1.2)
    assert of_one.best_samples == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"noise": 0}', "null"])
def test_a_damaged_file_is_refused(run, program, text):
    (run / "calibration.json").write_text(text)
    code, _, errors = program("evaluate", run)
    assert code == 1
    assert "calibration.json is damaged" in errors


def test_the_better_inference_is_the_best_unless_it_is_not_worth_it():
    assert made().best_samples == 10
    assert made(draws_fitted=4.0999).best_samples == 0
    assert made(draws_fitted=4.2).best_samples == 0
    assert scaling_words(SCALING, 10) == "noise x 0.70, temperature 0.90"
    assert scaling_words(SCALING, 0) == "temperature 1.20"


def test_every_command_that_draws_uses_it_and_says_so(run, program):
    given = ("--json", "-", "--samples", 2)
    for command in (("inspect", run, "--text", "it is a truth"), ("evaluate", run)):
        found = []
        for more in ((), ("--uncalibrated",)):
            code, out, errors = program(*command, *given, *more)
            assert code == 0, errors
            assert ("noise x 0.70" in errors + out) == (not more)
            found.append(json.loads(out)["perplexity"])
        assert found[0] != found[1]
    code, out, errors = program("compare", run)
    assert code == 0, errors
    assert "calibrated" in out


def test_a_pruned_network_has_the_temperature_of_its_mean_weights(run, program, tmp_path):
    out = tmp_path / "pruned.safetensors"
    code, _, errors = program("prune", run, "--fraction", "0.5", "--out", out)
    assert code == 0, errors
    loaded = TASK.open_run(out, for_inference=True)
    assert loaded.calibrated().scaling == Scaling(temperature=1.2, mean_temperature=1.2)
    code, said, errors = program("evaluate", out)
    assert code == 0, errors
    assert "temperature 1.20" in said
    assert "noise" not in said
    code, _, errors = program("calibrate", out)
    assert code == 1
    assert "is a file" in errors


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("out of memory")])
def test_training_is_done_whatever_happens_afterwards(
    error, monkeypatch, train_arguments, program, tmp_path
):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(calibrating, "fit_scaling", fail)
    arguments = [word for word in train_arguments if word != "--no-calibrate"]
    code, _, errors = program(*arguments, "--epochs", 1, "--out", tmp_path / "run")
    assert code == 0
    assert "not calibrated" in errors
    assert f"bayesrnn calibrate {tmp_path / 'run'}" in errors
    assert not (tmp_path / "run" / "calibration.json").exists()


def test_a_run_that_is_trained_and_calibrated_says_its_verdict_again(
    train_arguments, program, tmp_path, monkeypatch
):
    arguments = [word for word in train_arguments if word != "--no-calibrate"]
    given = (*arguments, "--epochs", 1, "--out", tmp_path / "run")
    code, _, errors = program(*given)
    assert code == 0, errors
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())["text"]
    assert verdict in errors
    monkeypatch.setattr(calibrating, "fit_scaling", None)  # is not called again
    code, _, errors = program(*given, "--resume")
    assert code == 0, errors
    assert verdict in errors


def test_the_verdict_in_words(tmp_path):
    words = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.5, 4.0])
    nll = [torch.tensor([4.0, 4.0]), torch.tensor([5.0])]
    found = word_findings(nll, [own - 0.02 for own in nll], *words, unfamiliar="noise")
    assert [one.words for one in found] == [
        "0.02 +- 0.00 nats a word over-confident",
        "noise is told from familiar by entropy: AUROC 0.83 +- 0.22",
    ]
    good = Verdict((draws_finding(made(), perplexity=True), *found), 2000, "word")
    assert good.trusted
    share = 1 - math.exp(-0.1)
    assert good.text(tmp_path).startswith(
        f"verdict (on 2,000 validation words): draws beat the mean by {share:.1%}; 0.02 +-"
    )
    assert good.as_json()["metrics"]["auroc"] == pytest.approx(5 / 6)
    errors = torch.ones(400), torch.tensor([2.0, 1.5]).repeat(200)
    findings = draws_finding(made(draws_fitted=4.2)), *numbers_findings(0.67, *errors)
    bad = Verdict(findings, 2000, "text")
    assert not bad.trusted
    assert "draws do not beat the mean: 0.100 nats worse; 90% intervals hold 67%" in bad.text(
        tmp_path
    )
    assert f"do not trust its uncertainty: bayesrnn doctor {tmp_path}" in bad.text(tmp_path)


def test_the_scores_that_take_unknown_words_for_familiar_are_named(tmp_path):
    low, high = torch.arange(50.0), torch.arange(50.0) + 100
    windows = {"surprise": (low, high), "entropy": (low, high), "information": (high, low)}
    found = unknown_words_finding(windows)
    assert found.good
    assert found.words == (
        "text of mostly unknown words is told from familiar by surprise: AUROC 1.00 +- 0.00, by "
        "information 0.00"
    )
    assert found.metrics["unknown_words_auroc_by_information"] == 0
    said = Verdict((found,), 2000, "word").text(tmp_path)
    assert said.endswith(
        "; trust its uncertainty on data like these; judge texts with unknown words by surprise, "
        f"not by information: bayesrnn uncertainty {tmp_path} --shift FILE"
    )
    assert unknown_words_finding({**windows, "information": (low, high)}).caveat == ""
    assert not unknown_words_finding({"surprise": (high, low)}).good


def test_surprise_that_differs_from_piece_to_piece_may_be_chance():
    """The error of the mean against that of means of whole pieces, by hand."""
    windows = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    entropy = [torch.zeros(3)] * 4
    surprise = torch.tensor([0.5, -0.1, 0.3, -0.1])
    nll = [torch.tensor([value - 1, value, value + 1]) for value in surprise.tolist()]
    found, _ = word_findings(nll, entropy, *windows, unfamiliar="noise")
    assert found.metrics["overconfidence"] == pytest.approx(0.15)
    assert found.metrics["overconfidence_error"] == pytest.approx(surprise.std().item() / 2)
    assert found.good, "0.15 with an error of 0.15"
    nll = [torch.full((3,), 0.15)] * 4
    found, _ = word_findings(nll, entropy, *windows, unfamiliar="noise")
    assert not found.good, "0.15 everywhere"


def test_numbers_no_better_than_their_mean_are_told_so():
    intervals, error = numbers_findings(0.9, torch.ones(4), torch.tensor([-3.0, 1.0, 3.0, 1.0]))
    assert intervals.good
    assert error.good is False, "squares that differ by 8, 0, 8, 0: 4 on average, +- 2 each way"
    assert error.words == "no better than no model: RMSE 1, and always the mean 2.236"
    _, error = numbers_findings(0.9, torch.ones(4), torch.tensor([-3.0, 3.0, 3.0, 1.0]))
    assert error.good, "6 on average, and twice 1.73"
    assert error.words == "RMSE 1 against 2.646 for no model"
    assert error.metrics == pytest.approx({"rmse": 1, "constant_rmse": math.sqrt(7)})
    intervals, _ = numbers_findings(0.84, torch.ones(400), torch.ones(400))
    assert not intervals.good


def refused_intervals(coverage, texts, times=2000):
    """The share of verdicts that refuse 90% intervals which in truth hold `coverage`."""
    generator = torch.Generator().manual_seed(texts)
    held = torch.rand(times, texts, generator=generator) < coverage
    errors = torch.ones(texts)
    found = [numbers_findings(own, errors, errors)[0] for own in held.double().mean(1).tolist()]
    return sum(not one.good for one in found) / times


@pytest.mark.parametrize("texts", [100, 150, 400])
def test_right_intervals_are_seldom_refused_and_wrong_ones_always(texts):
    assert refused_intervals(0.9, texts) < 0.05
    assert refused_intervals(0.67, texts) > 0.999


def refused_scores(auroc, inputs, times=300):
    """The share of verdicts that refuse a score whose AUROC is in truth this."""
    generator = torch.Generator().manual_seed(inputs)
    apart = torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(auroc)) * math.sqrt(2)
    regular, shifted = torch.randn(2, times, inputs, generator=generator)
    pairs = zip(regular, shifted + apart, strict=True)
    return sum(not unfamiliar_finding(*pair, "noise").good for pair in pairs) / times


def test_a_score_that_just_tells_is_seldom_refused_and_one_that_misleads_always():
    assert refused_scores(0.6, 100) < 0.06
    assert refused_scores(0.5, 400) > 0.9
    for inputs in (20, 100):
        assert refused_scores(0.3, inputs) > 0.98
    found = unfamiliar_finding(torch.tensor([2.0, 3.0]), torch.tensor([1.0, 2.5]), "noise")
    assert found.words == "noise is not told from familiar by entropy: AUROC 0.25 +- 0.28"
    assert found.metrics == pytest.approx({"auroc": 0.25, "auroc_error": 0.2763}, abs=1e-4)


def test_a_classifier_no_better_than_no_model_is_told_so():
    trained_on = torch.tensor([0, 0, 0, 1])  # with one more of each, frequencies of 2/3 and 1/3
    truths = torch.tensor([0, 0, 1, 1])
    ece, nll = classes_findings(torch.full((4, 2), 0.5).double(), truths, trained_on)
    assert ece.good
    assert ece.metrics["ece"] == pytest.approx(0)
    assert not nll.good, "two gain what the other two lose"
    constant = -(math.log(2 / 3) + math.log(1 / 3)) / 2
    assert nll.metrics == pytest.approx({"nll": math.log(2), "constant_nll": constant})
    assert nll.words == "no better than no model: 0.693 nats, and the class frequencies 0.752"
    sure = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]]).double()
    _, nll = classes_findings(sure, truths, trained_on)
    assert nll.good
    assert nll.words == "0.105 nats against 0.752 for no model"
    many = sure.repeat(100, 1)
    ece, nll = classes_findings(many, 1 - truths.repeat(100), trained_on)
    assert not ece.good
    assert not nll.good


@pytest.mark.parametrize(
    ("predictions", "unit", "enough"),
    [(99, "text", False), (100, "text", True), (999, "word", False), (1000, "word", True)],
)
def test_few_predictions_do_not_tell(tmp_path, predictions, unit, enough):
    found = Verdict((Finding("all is well", {}),), predictions, unit)
    assert found.trusted == enough
    said = found.text(tmp_path)
    assert said.startswith(f"verdict (on {predictions:,} validation {unit}s): all is well; ")
    assert ("too few to tell whether its uncertainty can be trusted" in said) == (not enough)
    bad = Verdict((Finding("something is wrong", {}, good=False),), predictions, unit)
    assert "do not trust its uncertainty" in bad.text(tmp_path)


def test_a_calibration_says_whether_all_validation_data_were_fitted_to(run, program):
    for options, whole in (((), False), (("--whole",), True)):
        code, _, errors = program("calibrate", run, "--samples", "1", "--device", "cpu", *options)
        assert code == 0, errors
        fitted = read_calibration(run)
        data = TASK.load(TASK.open_run(run).config)
        assert fitted.whole == (whole or len(data.valid) - 1 == fitted.fitted.predictions)
