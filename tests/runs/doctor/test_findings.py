"""Every rule, where it has to speak and where it has to be silent."""

from dataclasses import replace
from itertools import product

import pytest

from bayesrnn.runs.doctor.findings import RULES, findings

from .examinations import (
    DROPOUT,
    IVON,
    PAPER,
    TUNED,
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


def with_options(settings, **changes):
    return replace(settings, options={**settings.options, **changes})


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


@pytest.mark.parametrize(("rate", "said"), [(0.0, "--sigma-lr 1,"), (0.1, "--sigma-lr 1,")])
def test_widths_that_learn_slowly_need_a_larger_rate(rate, said):
    settings = with_options(PAPER, sigma_lr=rate)
    (found,) = findings(examination(tensors=(tensor(sd=0.05),), settings=settings))
    assert found.advice.startswith(said)


def test_widths_at_their_full_rate_need_time():
    (found,) = findings(examination(tensors=(tensor(sd=0.05),), settings=TUNED))
    assert found.advice.startswith("more --epochs (--sigma-lr is 1 already")
    rose = course(valid=(50.0, 55.0, 60.0), best=1)
    found, rising = findings(examination(tensors=(tensor(sd=0.05),), settings=TUNED, course=rose))
    assert found.advice.startswith("a lower --lr with more --epochs")
    assert rising.advice == "an earlier decay (--hold-epochs below 11)"


def test_the_tensor_that_costs_most_is_named_and_what_is_set_already_is_not_advised():
    cheap, expensive = tensor(name="bias"), replace(tensor(name="embedding"), kl=1500.0)
    overpaid = {"tensors": (cheap, expensive), "nats": nats(kl_weight=1.0)}
    (found,) = findings(examination(**overpaid, settings=TUNED))
    assert "(75% of it in embedding)" in found.seen
    assert found.advice == "more --epochs, a lower --kl-weight, or a smaller network"
    (found,) = findings(examination(**overpaid, settings=with_options(TUNED, sigma_lr=0.0)))
    assert found.advice == "widths that learn (--sigma-lr 1)"
    (found,) = findings(examination(**overpaid, settings=with_options(PAPER, sigma_lr=1.0)))
    assert found.advice == "--prior fitted, which charges for signal-to-noise alone"


@pytest.mark.parametrize(("numbers", "said"), [(False, "the frequencies:"), (True, "the mean,")])
def test_what_no_network_would_say_depends_on_what_is_predicted(numbers, said):
    overpaid = replace(nats(kl_weight=1.0), numbers=numbers)
    (found,) = findings(examination(nats=overpaid))
    assert f"over always saying {said}" in found.seen


def test_where_the_divergence_costs_too_much_its_weight_is_not_to_rise():
    sick = {"nats": nats(mean=3.0, draws=3.1, kl_weight=1.0), "tensors": (tensor(at_prior=0.01),)}
    overpaid, overfits = findings(examination(**sick))
    assert "--prior fitted" in overpaid.advice
    assert overfits.advice == (
        "a prior that fits itself (--prior fitted), fewer --epochs, or a smaller network"
    )
    overpaid, overfits = findings(examination(**sick, settings=TUNED))
    assert overpaid.advice == "a smaller network"
    assert overfits.advice == "fewer --epochs, or a smaller network"


NOISY = calibration(noise=0.5)


@pytest.mark.parametrize(
    ("found", "advice"),
    [
        (examination(calibration=NOISY), "--sigma-lr 1"),
        (examination(calibration=NOISY, settings=TUNED), "a lower --kl-weight"),
        (
            examination(calibration=calibration(noise=2.0), settings=TUNED),
            "a larger --kl-weight",
        ),
        (examination(calibration=NOISY, settings=IVON), "a smaller --prior-sigma"),
        (without_posterior(calibration=NOISY), "a lower rate of dropout (--dropout)"),
    ],
)
def test_the_noise_of_draws_is_changed_by_what_the_method_has(found, advice):
    assert [one.advice for one in findings(found)] == [advice]


@pytest.mark.parametrize(
    ("settings", "averages"), [(PAPER, True), (TUNED, False), (IVON, False), (DROPOUT, True)]
)
def test_an_average_is_advised_where_there_is_none_and_can_be_one(settings, averages):
    clipped = course(clipped=0.93, valid=(50.0, 55.0, 60.0), best=1)
    for one in findings(examination(course=clipped, settings=settings)):
        assert ("--average 0.99" in one.advice) == averages


#: Words that no two complaints may both say of a run.
OPPOSITES = (
    ("larger --kl-weight", "lower --kl-weight"),
    ("larger --prior-sigma", "smaller --prior-sigma"),
    ("more --epochs", "fewer --epochs"),
    ("higher rate of dropout", "lower rate of dropout"),
)


@pytest.mark.parametrize("settings", [PAPER, TUNED, DROPOUT, IVON])
@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
def test_no_advice_contradicts_another(settings, noise):
    """Over all that can be found together."""
    fell, rose = course(valid=(90.0, 66.0, 60.0)), course(valid=(50.0, 55.0, 60.0), best=1)
    tensors = (), (tensor(sd=0.05, at_prior=0.95),), (tensor(at_prior=0.01),)
    losses = [nats(mean=mean, kl_weight=weight) for mean in (3.0, 3.8) for weight in (0.2, 1.0)]
    for of, loss, way in product(tensors, losses, (course(), fell, rose)):
        kl = {"kl": loss.kl if of else None}
        found = examination(
            tensors=of,
            nats=replace(loss, **kl),
            course=way,
            settings=settings,
            calibration=calibration(noise=noise),
        )
        said = " ".join(one.advice for one in findings(found))
        for pair in OPPOSITES:
            assert not all(words in said for words in pair), said


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
    assert found.advice == "predicting with the mean weights, as commands do without --samples"
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
