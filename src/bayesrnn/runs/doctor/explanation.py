"""The verdict on a run explained: a reason and what to try for each finding that is not good."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bayesrnn.report.text import counted
from bayesrnn.runs import verdict as verdicts
from bayesrnn.runs.doctor.advice import (
    Move,
    Plan,
    calibrate_command,
    epochs,
    more_networks,
    stronger_prior,
)
from bayesrnn.runs.doctor.examination import Examination
from bayesrnn.runs.doctor.findings import Finding, findings, overfits
from bayesrnn.runs.verdict import Verdict


@dataclass(frozen=True)
class Diagnosis:
    """What is said of a run.

    verdict: the verdict, or why there is none; empty where the task has none.
    explanations: of what is not good in the verdict.
    findings: what else is wrong.
    """

    verdict: str
    explanations: Sequence[Finding]
    findings: Sequence[Finding]


def diagnose(found: Examination) -> Diagnosis:
    """The verdict, what is wrong, and what to try."""
    plan = Plan()
    complaints = findings(found, plan)
    verdict = found.verdict
    explained = [] if verdict is None else _explained(found, verdict, complaints, plan)
    return Diagnosis(_verdict_text(found), explained, complaints)


def _verdict_text(found: Examination) -> str:
    if found.verdict is not None:
        line = found.verdict.line
        return f"{line[0].upper()}{line[1:]}."
    if found.validation is None:
        return ""
    if found.kept_verdict is not None:
        return (
            f"The verdict that this run keeps is on step {found.kept_verdict.step:,}, and this is "
            f"step {found.step:,}, on which there is none: {calibrate_command(found)} gives one, "
            "which replaces it."
        )
    return f"This run keeps no verdict on its uncertainty: {calibrate_command(found)} gives one."


@dataclass(frozen=True)
class Reason:
    """Why a finding of the verdict is bad.

    metric: the finding is about this.
    seen: what that means, given all its metrics.
    moves: what to try.
    causes: complaints that are to be mended before.
    """

    metric: str
    seen: Callable[[dict[str, float], Verdict], str]
    moves: Callable[[Examination, dict[str, float]], Sequence[Move]]
    causes: tuple[str, ...] = ()


def _explained(
    found: Examination, verdict: Verdict, complaints: Sequence[Finding], plan: Plan
) -> list[Finding]:
    made = []
    for finding in verdict.findings:
        if not finding.good:
            known = [reason for reason in REASONS if reason.metric in finding.metrics]
            reason = known[0] if known else _UNKNOWN
            first = [one.title for one in complaints if one.title in reason.causes]
            moves = [*_mend(first), *reason.moves(found, finding.metrics)]
            seen = reason.seen(finding.metrics, verdict)
            made.append(Finding(finding.words, seen, plan.add(moves, _OTHERWISE)))
    if not verdict.enough:
        made.append(_too_few(verdict))
    return made


_OTHERWISE = "what is said below, and then look again"


def _mend(titles: Sequence[str]) -> list[Move]:
    said = " and ".join(f'"{title}"' for title in titles)
    return [Move(f"what is said below of {said}")] if said else []


def _too_few(verdict: Verdict) -> Finding:
    about = counted(verdict.predictions, f"validation {verdict.unit}")
    return Finding(
        f"Too few {verdict.unit}s",
        f"of {about} chance alone can make any of this good or bad; it takes {verdict.needed:,}",
        "more validation data",
    )


def _confidence(metrics: dict[str, float], verdict: Verdict) -> str:
    word = "surer than it may be" if metrics["overconfidence"] > 0 else "less sure than it could be"
    return (
        f"a {verdict.unit} costs {metrics['nll']:.2f} nats, and by its own probabilities it "
        f"expects {metrics['entropy']:.2f}, so it is {word}, even calibrated; up to "
        f"{verdicts.LARGEST_SURPRISE:g} and the error of the measurement can be lived with"
    )


def _probabilities(metrics: dict[str, float], verdict: Verdict) -> str:
    del verdict
    return (
        f"even calibrated, the probability of an answer is on average {metrics['ece']:.1%} away "
        f"from how often such answers are right; up to {verdicts.LARGEST_ERROR:.0%} and what "
        "chance makes can be lived with"
    )


def _intervals(metrics: dict[str, float], verdict: Verdict) -> str:
    del verdict
    word = "narrow" if metrics["coverage_90"] < 0.9 else "wide"
    return (
        f"even calibrated, they are too {word}: {100 * verdicts.LARGEST_MISS:.0f} points off 90%, "
        "or as many as chance makes, can be lived with"
    )


def _fit_better(found: Examination, metrics: dict[str, float]) -> list[Move]:
    """Calibrate on more data; several networks where predictions are too sure."""
    coverage = metrics.get("coverage_90")
    too_sure = metrics.get("overconfidence", 1.0) > 0 if coverage is None else coverage < 0.9
    moves = more_networks(found) if too_sure else []
    if found.calibration is not None and not found.calibration.whole:
        about = counted(found.calibration.fitted.predictions, found.calibration.unit)
        whole = f"{calibrate_command(found)} --whole"
        return [Move(f"{whole}, which fits to all validation data, not to {about}"), *moves]
    return [*moves, Move("more validation data to calibrate on")]


def _familiar(metrics: dict[str, float], verdict: Verdict) -> str:
    del verdict
    if metrics["auroc"] < 0.5:
        said = "it is even surer of what it has never seen than of what is familiar"
    else:
        said = "it doubts what it has never seen hardly more than what is familiar"
    return (
        f"{said}, so its doubts do not warn of anything new; an AUROC of 0.5 is chance, and "
        f"{verdicts.LOWEST_AUROC:g} is the least to live with"
    )


def _unknown_words(metrics: dict[str, float], verdict: Verdict) -> str:
    del verdict
    auroc = metrics["unknown_words_auroc_by_surprise"]
    return (
        f"a text most of whose words it does not know surprises it hardly more than its own (AUROC "
        f"{auroc:.2f}), so that it cannot be told by reading it"
    )


def _no_model(metrics: dict[str, float], verdict: Verdict) -> str:
    del verdict
    constant = "the mean of the training data" if "rmse" in metrics else "the class frequencies"
    return (
        f"it does not beat always saying {constant} by more than chance, so nothing was learnt "
        "that helps on new data, and how sure it is means nothing"
    )


def _learn(found: Examination, metrics: dict[str, float]) -> list[Move]:
    """Less of the prior, and later; longer. More data, where that would make it overfit more."""
    del metrics
    if overfits(found):
        return [Move("more training data")]
    moves = stronger_prior(found, -1)
    if found.tensors and not found.settings.own_optimiser and not found.settings.kl_warmup:
        moves.append(Move("less of the KL at the start (--kl-warmup)", {"kl_warmup": 1}))
    return [*moves, *epochs(+1), Move("more training data")]


_NOT_LEARNT = ("The weights cost more than they bring", "It underfits", "It overfits")
_UNFINISHED = "It had not finished learning"

REASONS = (
    Reason("overconfidence", _confidence, _fit_better, ("It overfits",)),
    Reason("ece", _probabilities, _fit_better, ("It overfits",)),
    Reason("coverage_90", _intervals, _fit_better, ("It overfits", _UNFINISHED)),
    Reason("constant_nll", _no_model, _learn, (*_NOT_LEARNT, _UNFINISHED)),
    Reason("constant_rmse", _no_model, _learn, (*_NOT_LEARNT, _UNFINISHED)),
    Reason("unknown_words_auroc_by_surprise", _unknown_words, _learn, _NOT_LEARNT),
    Reason(
        "auroc",
        _familiar,
        lambda found, metrics: more_networks(found),
        ("sigma did not learn", "It underfits", _UNFINISHED),
    ),
)
_UNKNOWN = Reason("", lambda metrics, verdict: "it is beyond what the task allows", _fit_better)
