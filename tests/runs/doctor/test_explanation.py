"""The verdict on a run, explained."""

from dataclasses import replace

import pytest
import torch

from bayesrnn.runs.doctor.explanation import REASONS, diagnose
from bayesrnn.runs.doctor.findings import RULES
from bayesrnn.runs.verdict import (
    Finding,
    classes_findings,
    numbers_findings,
    unfamiliar_finding,
    unknown_words_finding,
    word_findings,
)

from .examinations import (
    PAPER,
    TUNED,
    calibration,
    course,
    examination,
    nats,
    tensor,
    validation,
    verdict,
    without_posterior,
)


def of_words(surprise):
    nll = [torch.full((3,), 4.0)] * 4
    doubts = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    return word_findings(nll, [one - surprise for one in nll], *doubts, unfamiliar="noise")[0]


def of_classes(probability):
    """Two classes, of which the first is right; so sure of it."""
    probabilities = torch.tensor([[probability, 1 - probability]] * 900).double()
    return classes_findings(probabilities, torch.zeros(900).long(), torch.tensor([0, 0, 0, 1]))


def of_doubts(*shifted):
    return unfamiliar_finding(torch.tensor([2.0, 3.0]), torch.tensor(shifted), "noise")


def of_numbers(coverage, errors=1.0):
    return numbers_findings(coverage, torch.full((400,), errors), torch.ones(400) * 2)


#: A bad finding, what is said of it, and what to try.
CASES = {
    "over-confident": (
        of_words(0.3),
        "a word costs 4.00 nats, and by its own probabilities it expects 3.70, so it is surer",
        "bayesrnn calibrate runs/mine --whole, which fits to all validation data, not to 4,000 "
        "words, or an ensemble, whose members differ more (--method ensemble --base bbb)",
    ),
    "under-confident": (
        of_words(-0.3),
        "it expects 4.30, so it is less sure than it could be, even calibrated",
        "bayesrnn calibrate runs/mine --whole, which fits to all validation data, not to 4,000 "
        "words",
    ),
    "calibration error": (
        of_classes(0.7)[0],
        "on average 30.0% away from how often such answers are right; up to 5%",
        "--whole",
    ),
    "classes": (
        of_classes(0.5)[1],
        "it does not beat always saying the class frequencies by more than chance",
        "a lower --kl-weight, less of the KL at the start (--kl-warmup), more --epochs, or more "
        "training data",
    ),
    "narrow intervals": (of_numbers(0.67)[0], "too narrow: 5 points off 90%", "an ensemble"),
    "wide intervals": (of_numbers(1.0)[0], "too wide", "bayesrnn calibrate runs/mine --whole"),
    "numbers": (
        of_numbers(0.9, errors=2.0)[1],
        "it does not beat always saying the mean of the training data by more",
        "more --epochs",
    ),
    "doubts the wrong way round": (
        of_doubts(1.0, 1.5),
        "it is even surer of what it has never seen",
        "an ensemble, whose members differ more (--method ensemble --base bbb)",
    ),
    "doubts by chance": (
        of_doubts(2.5, 2.5),
        "hardly more than what is familiar, so its doubts do not warn",
        "an ensemble",
    ),
    "unknown words": (
        unknown_words_finding({"surprise": (torch.tensor([2.0, 3.0]), torch.tensor([2.0, 3.0]))}),
        "surprises it hardly more than its own (AUROC 0.50)",
        "more training data",
    ),
    "of a task of one's own": (
        Finding("it sings out of tune", {"pitch": 3.0}, good=False),
        "beyond what the task allows",
        "--whole",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_finding_that_is_not_good_is_explained(name):
    bad, seen, advice = CASES[name]
    assert not bad.good
    good = Finding("draws beat the mean by 1.2%", {"draws_gain_nats": 0.012})
    said = diagnose(examination(calibration=calibration(), kept_verdict=verdict(good, bad)))
    assert said.verdict.startswith("Verdict (on 2,000 validation words): draws beat the mean by")
    assert said.verdict.endswith("; do not trust its uncertainty.")
    (found,) = said.explanations
    assert found.title == bad.words
    assert seen in found.seen
    assert advice in found.advice


def test_a_verdict_that_is_good_needs_no_explanation():
    kept = verdict(of_words(0.05))
    said = diagnose(examination(calibration=calibration(), kept_verdict=kept))
    assert said.verdict.endswith("trust its uncertainty on data like these.")
    assert not said.explanations
    assert not said.findings


def test_too_few_predictions_are_said_to_be_the_reason():
    kept = verdict(of_numbers(0.9)[0], predictions=40, unit="text")
    (found,) = diagnose(examination(kept_verdict=kept)).explanations
    assert found.title == "Too few texts"
    assert "of 40 validation texts" in found.seen
    assert "it takes 100" in found.seen
    assert found.advice == "more validation data"


def test_a_verdict_on_another_step_or_none_is_said_so():
    other = examination(kept_verdict=verdict(of_words(0.3), step=120), checkpoint="last")
    said = diagnose(other)
    assert not said.explanations
    assert said.verdict == (
        "The verdict that this run keeps is on step 120, and this is step 300, on which there is "
        "none: bayesrnn calibrate runs/mine --checkpoint last gives one, which replaces it."
    )
    assert diagnose(examination()).verdict == (
        "This run keeps no verdict on its uncertainty: bayesrnn calibrate runs/mine gives one."
    )
    assert diagnose(examination(validation=None)).verdict == ""


def test_a_trusted_run_is_not_told_that_it_does_not_know_how_sure_it_may_be():
    """The verdict allows 0.1 nats on many pieces of text, and doctor measures others."""
    unsure = examination(validation=validation(draws_entropy=3.95), calibration=calibration())
    assert [one.title for one in diagnose(unsure).findings]
    trusted = replace(unsure, kept_verdict=verdict(of_words(0.05)))
    assert not diagnose(trusted).findings
    as_trained = replace(trusted, calibration=None)
    assert [one.title for one in diagnose(as_trained).findings]


def test_causes_are_named_and_not_contradicted():
    titles = [rule.title for rule in RULES]
    assert all(cause in titles for reason in REASONS for cause in reason.causes)
    fell = course(valid=(90.0, 66.0, 60.0))
    kept = verdict(of_doubts(1.0, 1.5))
    (found,) = diagnose(examination(course=fell, kept_verdict=kept)).explanations
    assert found.advice.startswith('what is said below of "It had not finished learning", or an')
    for settings in (PAPER, TUNED):
        sick = examination(nats=nats(mean=3.0), tensors=(tensor(at_prior=0.01),), settings=settings)
        sick = replace(sick, kept_verdict=verdict(of_classes(0.5)[1], unit="text"))
        (found,) = diagnose(sick).explanations
        assert found.advice == 'what is said below of "It overfits", or more training data'


def test_what_a_run_has_already_is_not_advised():
    kept = verdict(of_words(0.3))
    whole = examination(calibration=calibration(whole=True), method="ensemble", kept_verdict=kept)
    (found,) = diagnose(whole).explanations
    assert found.advice == "more --members, or more validation data to calibrate on"
    plain = without_posterior(kept_verdict=verdict(of_classes(0.5)[1]))
    (found,) = diagnose(plain).explanations
    assert "KL" not in found.advice
    warm = examination(settings=replace(TUNED, kl_warmup=8.0), kept_verdict=plain.kept_verdict)
    (found,) = diagnose(warm).explanations
    assert "--kl-warmup" not in found.advice
