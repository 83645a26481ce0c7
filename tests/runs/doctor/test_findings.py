"""Every rule, where it has to speak and where it has to be silent."""

from dataclasses import replace

import pytest

from bayesrnn.runs.doctor.findings import RULES, findings

from .examinations import (
    calibration,
    course,
    examination,
    nats,
    tensor,
    validation,
    without_posterior,
)

#: For each rule what makes it speak, what it then says, and what is just not enough.
CASES = {
    "sigma did not learn": (
        {"tensors": (tensor(sd=0.05, mean=0.14, mean_correlation=0.0, start=0.99),)},
        ["start times 1.15", "with its start 0.99", "with |mu| 0.00", "--sigma-lr 1,"],
        {"tensors": (tensor(sd=0.3, mean=0.14),)},
    ),
    "The weights cost more than they bring": (
        {"nats": nats(kl=4.0, kl_weight=1.0)},
        ["4 nats", "100% of it in output.weight", "gain 2.1", "--prior fitted"],
        {"nats": nats(kl=4.0, kl_weight=0.5)},
    ),
    "It underfits": (
        {"tensors": (tensor(at_prior=0.95),)},
        ["95% of the weights are at the prior", "lower --kl-weight"],
        {"tensors": (tensor(at_prior=0.95),), "nats": nats(mean=3.6)},
    ),
    "It overfits": (
        {"tensors": (tensor(at_prior=0.01),), "nats": nats(mean=3.0)},
        ["30% of what was gained", "only 1% of the weights", "larger --kl-weight"],
        {"nats": nats(mean=3.7)},
    ),
    "Draws are worse than the mean weights": (
        {"validation": validation(draws=3.95)},
        ["10 draws", "3.9500", "3.9000", "bayesrnn calibrate runs/mine"],
        {"validation": validation(draws=3.901)},
    ),
    "It does not know how sure it may be": (
        {"validation": validation(draws_entropy=4.0)},
        ["average of draws", "0.12 nats less sure", "calibrate"],
        {"validation": validation(mean_entropy=2.0)},
    ),
    "The noise of draws is not what the data say": (
        {"calibration": calibration(noise=0.5)},
        ["0.50 times", "wider", "--sigma-lr"],
        {"calibration": calibration(noise=0.9)},
    ),
    "Most steps are clipped": (
        {"course": course(clipped=0.93)},
        ["93% of the logged steps", "at 5", "larger --clip"],
        {"course": course(clipped=None)},
    ),
    "It had not finished learning": (
        {"course": course(valid=(90.0, 66.0, 60.0))},
        ["9.1% in epoch 3", "more --epochs"],
        {"course": course(valid=(90.0, 66.0, 60.0), best=2)},
    ),
    "It got worse after its best epoch": (
        {"course": course(valid=(50.0, 55.0, 60.0), best=1)},
        ["risen by 20.0%", "1 of 3", "fewer --epochs"],
        {"course": course(valid=(60.0, 59.5, 60.0), best=2)},
    ),
}


def titles(found):
    return [one.title for one in findings(found)]


def test_each_rule_has_a_case():
    assert [rule.title for rule in RULES] == list(CASES)


@pytest.mark.parametrize("title", CASES)
def test_a_rule_speaks_only_where_it_should(title):
    wrong, said, well = CASES[title]
    (found,) = findings(examination(**wrong))
    assert found.title == title
    for words in said:
        assert words in f"{found.seen} {found.advice}"
    assert titles(examination(**well)) == []


def test_widths_that_had_a_rate_of_their_own_need_a_larger_one():
    (found,) = findings(examination(tensors=(tensor(sd=0.05),), sigma_lr=0.1))
    assert "a larger --sigma-lr" in found.advice


def test_the_tensor_that_costs_most_is_named_and_what_is_set_already_is_not_advised():
    cheap, expensive = tensor(name="bias"), replace(tensor(name="embedding"), kl=1500.0)
    (found,) = findings(
        examination(
            tensors=(cheap, expensive), nats=nats(kl_weight=1.0), prior="fitted", sigma_lr=1.0
        )
    )
    assert "(75% of it in embedding)" in found.seen
    assert "--prior fitted" not in found.advice
    assert "--kl-weight" in found.advice


def test_training_that_was_stopped_is_to_go_on():
    (found,) = findings(examination(course=course(valid=(90.0, 60.0), best=2)))
    assert found.title == "It had not finished learning"
    assert "2 of 3 epochs: bayesrnn train lm --resume --out runs/mine" in found.advice


def test_widths_that_have_left_their_start_have_learnt_however_little_they_changed():
    assert titles(examination(tensors=(tensor(sd=0.15, start=0.5),))) == []
    assert titles(examination(tensors=(tensor(sd=0.15, start=None),))) == ["sigma did not learn"]


def test_a_network_that_has_learnt_next_to_nothing_does_not_overfit():
    barely = nats(mean=5.99, draws=5.99, kl=None)
    worse = validation(mean=6.01, draws=6.0, mean_entropy=6.0, draws_entropy=6.0)
    assert titles(without_posterior(nats=barely, validation=worse)) == []


def test_a_calibrated_run_is_not_told_to_calibrate():
    worse = validation(draws=3.95)
    (found,) = findings(examination(validation=worse, calibration=calibration(draws_fitted=4.0)))
    assert "both calibrated" in found.seen
    assert "calibrate " not in found.advice
    assert "the mean weights, with which commands predict" in found.advice
    (found,) = findings(examination(validation=worse, calibration=calibration()))
    assert "(--samples 0); on the 4,000 words that it was calibrated on, 10 draws" in found.advice
    few = examination(validation=replace(worse, samples=2), calibration=calibration())
    assert "more draws (--samples 10)" in findings(few)[0].advice


@pytest.mark.parametrize(("whole", "said"), [(False, "runs/mine --whole"), (True, "more valid")])
def test_a_temperature_that_does_not_fit_is_fitted_to_all_data(whole, said):
    unsure = validation(draws_entropy=4.0)
    (found,) = findings(examination(validation=unsure, calibration=calibration(whole=whole)))
    assert found.seen.startswith("calibrated predictions of the average of draws")
    assert said in found.advice


def test_another_checkpoint_is_calibrated_by_name():
    (found,) = findings(examination(validation=validation(draws=3.95), checkpoint="last"))
    assert found.advice.startswith("bayesrnn calibrate runs/mine --checkpoint last ")


def test_overfitting_is_told_by_the_weights_as_trained():
    """A temperature takes a part of the loss on new data away, and leaves training data alone."""
    as_trained = replace(validation().mean, nll=4.4)
    checked = replace(validation(), mean_as_trained=as_trained)
    assert examination(validation=checked).gap == pytest.approx(4.4 - 3.8)
    assert titles(examination(validation=checked)) == ["It overfits"]


def test_of_a_healthy_run_there_is_nothing_to_say():
    assert titles(examination()) == []
    assert titles(without_posterior()) == []


def test_what_is_not_known_is_no_complaint():
    empty = course(valid=(), best=None, clipped=None, norms=None)
    bare = without_posterior(nats=nats(base=None, kl=None), validation=None, course=empty)
    assert titles(bare) == []


def test_overfitting_without_a_posterior_is_not_blamed_on_the_prior():
    (found,) = findings(without_posterior(nats=nats(mean=3.0, kl=None)))
    assert found.title == "It overfits"
    assert "prior" not in found.seen + found.advice
