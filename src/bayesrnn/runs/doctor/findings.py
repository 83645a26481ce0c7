"""What is wrong with a run, and what to try: a rule for each complaint."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bayesrnn.runs.doctor.advice import (
    FULL_RATE,
    Move,
    Plan,
    averaged_parameters,
    calibrate_command,
    dropout_rates,
    epochs,
    faster_widths,
    fitted_prior,
    stronger_prior,
)
from bayesrnn.runs.doctor.examination import Examination
from bayesrnn.runs.doctor.posterior import overall

#: sigma has not learnt if the logarithm of its change differs this little between weights, and it
#: still follows its start this closely, unless that was the same for all weights.
_SAME_CHANGE, _AS_AT_START = 0.2, 0.8
_MOST_WEIGHTS, _FEW_WEIGHTS = 0.8, 0.2
#: Shares of what was gained on training data that are lost on new data.
_MUCH_LOST, _LITTLE_LOST = 0.2, 0.1
#: Nats a prediction between training and validation data that are no overfitting, however little
#: was gained.
_SMALL_GAP = 0.03
_MOSTLY_CLIPPED = 0.5
#: Nats a prediction.
_WORSE, _UNSURE = 0.002, 0.05
_NOISE_NEAR_1 = (0.7, 1.4)
#: Shares of the validation measure.
_STILL_FALLING, _RISEN = 0.01, 0.02


@dataclass(frozen=True)
class Finding:
    """What is wrong, in figures, and what to try."""

    title: str
    seen: str
    advice: str


@dataclass(frozen=True)
class Rule:
    """A complaint.

    seen: what an examination shows of it, in figures; None where all is well or not known.
    moves: what to try, given the examination.
    so_that: what they are for.
    otherwise: the advice where nothing is left to try that does not undo what is said before.
    """

    title: str
    seen: Callable[[Examination], str | None]
    moves: Callable[[Examination], Sequence[Move]]
    so_that: str = ""
    otherwise: str = "what is said above, and then look again"


def findings(examination: Examination, plan: Plan | None = None) -> list[Finding]:
    """All complaints, the gravest first; what they advise is added to the plan."""
    plan = plan or Plan()
    found = []
    for rule in RULES:
        seen = rule.seen(examination)
        if seen:
            advice = plan.add(rule.moves(examination), rule.otherwise) + rule.so_that
            found.append(Finding(rule.title, seen, advice))
    return found


def _sigma_stays(found: Examination) -> str | None:
    posterior = overall(found.tensors)
    if posterior.change is None or posterior.change[1] >= _SAME_CHANGE:
        return None
    if posterior.start_correlation is not None and posterior.start_correlation < _AS_AT_START:
        return None
    factor = math.exp(posterior.change[0])
    said = [f"it is its start times {factor:.2f}, and nearly the same for every weight"]
    correlations = {"its start": posterior.start_correlation, "|mu|": posterior.mean_correlation}
    for name, value in correlations.items():
        said += [] if value is None else [f"correlation with {name} {value + 0.0:.2f}"]
    return "; ".join(said)


def _sigma_moves(found: Examination) -> list[Move]:
    faster = faster_widths(found)
    if faster:
        return faster
    rate = found.settings.options.get("sigma_lr", FULL_RATE)
    full = f"(--sigma-lr is {rate:g} already, about as fast as widths can go)"
    if _rising(found):
        return [Move(f"a lower --lr with more --epochs {full}", {"lr": -1, "epochs": 1})]
    return [Move(f"more --epochs {full}", {"epochs": 1})]


def _overpaid(found: Examination) -> str | None:
    charged, gained = found.nats.charged, found.nats.gained
    if charged is None or gained is None or charged <= gained:
        return None
    most = max(found.tensors, key=lambda tensor: tensor.kl)
    share = most.kl / sum(tensor.kl for tensor in found.tensors)
    constant = "always saying the frequencies"
    if found.nats.numbers:
        constant = "always saying the mean, and how far numbers are from it"
    return (
        f"the KL as charged is {charged:.3g} nats a prediction ({share:.0%} of it in {most.name}), "
        f"and the weights gain {gained:.3g} over {constant}: by its own objective, no network "
        "would be better"
    )


def _overpaid_moves(found: Examination) -> list[Move]:
    prior, faster = fitted_prior(found), faster_widths(found)
    smaller = Move("a smaller network")
    if prior or faster:
        words = "--prior fitted, which charges for signal-to-noise alone" if prior else ""
        widths = "widths that learn (--sigma-lr 1)" if faster else ""
        changes = {name: way for move in (*prior, *faster) for name, way in move.changes.items()}
        # Where the KL costs too much, no later complaint is to raise its weight.
        return [Move(", with ".join(filter(None, (words, widths))), {**changes, "kl_weight": -1})]
    if overfits(found):
        return [smaller]
    return [*([] if _rising(found) else epochs(+1)), *stronger_prior(found, -1), smaller]


def _underfits(found: Examination) -> str | None:
    at_prior, lost = overall(found.tensors).at_prior, found.lost
    if at_prior is None or lost is None or at_prior < _MOST_WEIGHTS or lost > _LITTLE_LOST:
        return None
    return (
        f"{at_prior:.0%} of the weights are at the prior, and new data are predicted nearly as "
        f"well as training data ({_lost_text(lost)})"
    )


def _underfit_moves(found: Examination) -> list[Move]:
    return [*stronger_prior(found, -1), *([] if _rising(found) else epochs(+1))]


def overfits(found: Examination) -> str | None:
    """Whether much of what was gained on training data is lost on new data, in figures."""
    lost, at_prior = found.lost, overall(found.tensors).at_prior
    if lost is None or lost < _MUCH_LOST or found.gap < _SMALL_GAP:
        return None
    if at_prior is None or at_prior > _FEW_WEIGHTS:
        return _lost_text(lost)
    return f"{_lost_text(lost)}; only {at_prior:.0%} of the weights are at the prior"


def _lost_text(lost: float) -> str:
    return f"{lost:.0%} of what was gained on training data is lost on validation data"


def _overfit_moves(found: Examination) -> list[Move]:
    moves = []
    if not (_overpaid(found) and "kl_weight" in found.settings.options):
        moves += stronger_prior(found, +1)
    moves += [*fitted_prior(found), *dropout_rates(found, +1)]
    if not found.tensors and not found.settings.own_optimiser:
        moves.append(Move("a larger --weight-decay"))
    return [*moves, *([] if _falling(found) else epochs(-1)), Move("a smaller network")]


def _clipped(found: Examination) -> str | None:
    share = found.course.clipped
    if share is None or share < _MOSTLY_CLIPPED:
        return None
    return (
        f"{share:.0%} of the logged steps were clipped at {found.clip:g}; the median norm is "
        f"{found.course.norms:.3g}. Such steps are equally long however small the loss becomes"
    )


def _worse_draws(found: Examination) -> str | None:
    checked = found.validation
    if checked is None or checked.draws is None:
        return None
    worse = checked.draws.nll - checked.mean.nll
    if worse < _WORSE:
        return None
    calibrated = "" if found.calibration is None else ", both calibrated"
    return (
        f"averaged over {checked.samples} draws a prediction costs {checked.draws.nll:.4f} nats, "
        f"and {checked.mean.nll:.4f} with the mean weights{calibrated}"
    )


def _worse_moves(found: Examination) -> list[Move]:
    calibration, checked = found.calibration, found.validation
    if calibration is None:
        return [Move(f"{calibrate_command(found)} fits the noise of draws")]
    best = calibration.best_samples
    if not best:
        return [Move("predicting with the mean weights, as commands do without --samples")]
    gain = calibration.fitted.mean_nll_fitted - (calibration.fitted.draws_nll_fitted or 0.0)
    about = f"{calibration.fitted.predictions:,} {calibration.unit}s that it was calibrated on"
    better = f"on the {about}, {best} draws were better by {gain:.4f} nats"
    if checked is not None and checked.samples < best:
        return [Move(f"more draws (--samples {best}); {better}")]
    return [Move(f"predicting with the mean weights (--samples 0); {better}, maybe by chance")]


def _unsure(found: Examination) -> str | None:
    """Of a run without a verdict, which has looked for the same with more care."""
    checked = found.validation
    if checked is None or (found.verdict and found.calibration):
        return None
    best = checked.mean
    if checked.draws is not None and checked.draws.nll < best.nll:
        best = checked.draws
    if best.overconfidence is None or abs(best.overconfidence) < _UNSURE:
        return None
    which = "mean weights" if best is checked.mean else "average of draws"
    calibrated = "" if found.calibration is None else "calibrated "
    word = "surer than they may be" if best.overconfidence > 0 else "less sure than they could be"
    return f"{calibrated}predictions of the {which} are {abs(best.overconfidence):.2f} nats {word}"


def _unsure_moves(found: Examination) -> list[Move]:
    if found.calibration is None:
        return [Move(f"{calibrate_command(found)} fits a temperature")]
    if not found.calibration.whole:
        whole = f"{calibrate_command(found)} --whole"
        return [Move(f"{whole}, which fits to all validation data, not to a part")]
    return [Move("more validation data"), Move("another method: no temperature fits this one")]


def _fitted_noise(found: Examination) -> str | None:
    if found.calibration is None:
        return None
    factor, (low, high) = found.calibration.scaling.noise, _NOISE_NEAR_1
    if low <= factor <= high:
        return None
    wide = "wider" if factor < 1 else "narrower"
    return (
        f"validation data want {factor:.2f} times the noise, and calibrated draws have it: as "
        f"trained, draws are {wide} than data say"
    )


def _noise_moves(found: Examination) -> list[Move]:
    if _sigma_stays(found):
        return [Move("widths that learn, as advised above")]
    faster = faster_widths(found)
    if faster or found.calibration is None:
        return faster
    wider = -1 if found.calibration.scaling.noise < 1 else 1
    # More of the KL makes a posterior wider; a narrower prior makes it narrower.
    prior = wider if "kl_weight" in found.settings.options else -wider
    return [*(stronger_prior(found, prior) if found.tensors else []), *dropout_rates(found, wider)]


def _clip_moves(found: Examination) -> list[Move]:
    slower = Move("a lower --lr together with a larger --clip", {"lr": -1, "clip": 1})
    return [slower, *averaged_parameters(found, ", which smooth equal steps")]


def _falling(found: Examination) -> str | None:
    course, gain = found.course, found.course.last_gain
    if gain is None or course.best != course.epochs or gain < _STILL_FALLING:
        return None
    return f"the {found.measure} fell by {gain:.1%} in epoch {course.epochs}, the last, and best"


def _falling_moves(found: Examination) -> list[Move]:
    done, planned = found.course.epochs, found.course.planned
    if done == planned:
        return epochs(+1)
    resume = f"bayesrnn train {found.task} --resume --out {found.path}"
    return [Move(f"go on, these are {done} of {planned} epochs: {resume}", {"epochs": 1})]


def _rising(found: Examination) -> str | None:
    course, rise = found.course, found.course.rise
    if rise is None or course.best is None or rise < _RISEN:
        return None
    return (
        f"the validation {found.measure} has risen by {rise:.1%} since its lowest; the best epoch "
        f"was {course.best} of {course.epochs}"
    )


def _rising_moves(found: Examination) -> list[Move]:
    settings, earlier = found.settings, []
    if settings.hold_epochs > 1 and settings.decay < 1:
        earlier = [Move(f"an earlier decay (--hold-epochs below {settings.hold_epochs})")]
    return [*epochs(-1), *earlier, *averaged_parameters(found, "")]


RULES = (
    Rule(
        "sigma did not learn",
        _sigma_stays,
        _sigma_moves,
        so_that=", so that widths learn. Until they do, draws, mutual information and pruning by "
        "|mu| / sigma show the random start, and --sigma-scale acts like a dropout rate",
    ),
    Rule("The weights cost more than they bring", _overpaid, _overpaid_moves),
    Rule("It underfits", _underfits, _underfit_moves),
    Rule("It overfits", overfits, _overfit_moves),
    Rule("Draws are worse than the mean weights", _worse_draws, _worse_moves),
    Rule("It does not know how sure it may be", _unsure, _unsure_moves),
    Rule(
        "The noise of draws is not what the data say",
        _fitted_noise,
        _noise_moves,
        otherwise="nothing more: calibrated predictions have the noise that suits them",
    ),
    Rule("Most steps are clipped", _clipped, _clip_moves),
    Rule("It had not finished learning", _falling, _falling_moves),
    Rule("It got worse after its best epoch", _rising, _rising_moves),
)
