"""The verdict on a run: one line in plain words, whether its uncertainty can be trusted."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from bayesrnn.errors import RunError
from bayesrnn.progress import say
from bayesrnn.random import seeded
from bayesrnn.report.text import counted
from bayesrnn.runs.calibration import WORTH, Calibration
from bayesrnn.training.run_directory import RunDirectory
from bayesrnn.uncertainty.detection import auroc_error, detection
from bayesrnn.uncertainty.metrics import score_probabilities

VERDICT_FILE: Final = "verdict.json"


@dataclass(frozen=True)
class Finding:
    """One thing that was measured: in words, as numbers by name, and whether it is good enough.

    caveat: what can be trusted only as `bayesrnn uncertainty` tells it.
    """

    words: str
    metrics: dict[str, float]
    good: bool = True
    caveat: str = ""


#: Predictions that a verdict needs. Below, chance alone can make any finding good or bad. Words of
#: a text depend on each other, and each says less.
_ENOUGH = 100
_ENOUGH_WORDS = 1000


@dataclass(frozen=True)
class Verdict:
    """What was found of a calibrated run on validation data: `predictions`, each of a `unit`."""

    findings: tuple[Finding, ...]
    predictions: int
    unit: str

    @property
    def needed(self) -> int:
        """The predictions that it takes to tell."""
        return _ENOUGH_WORDS if self.unit == "word" else _ENOUGH

    @property
    def enough(self) -> bool:
        """Whether there are enough predictions to tell."""
        return self.predictions >= self.needed

    @property
    def trusted(self) -> bool:
        """Whether everything is good enough, and more than chance."""
        return self.enough and all(finding.good for finding in self.findings)

    @property
    def line(self) -> str:
        """The verdict in one line."""
        return self._line("", "")

    def text(self, path: Path) -> str:
        """The verdict in one line, with what to do next where it is bad, or has a caveat."""
        return self._line(
            f": bayesrnn doctor {path}", f": bayesrnn uncertainty {path} --shift FILE"
        )

    def _line(self, if_bad: str, by_caveat: str) -> str:
        said = "; ".join(finding.words for finding in self.findings)
        if self.trusted:
            end = "trust its uncertainty on data like these"
        elif all(finding.good for finding in self.findings):
            end = "too few to tell whether its uncertainty can be trusted"
        else:
            end = f"do not trust its uncertainty{if_bad}"
        caveats = "".join(f"; {one.caveat}{by_caveat}" for one in self.findings if one.caveat)
        about = counted(self.predictions, f"validation {self.unit}")
        return f"verdict (on {about}): {said}; {end}{caveats}"

    def as_json(self) -> dict[str, Any]:
        """The values for a JSON file."""
        metrics = {n: value for finding in self.findings for n, value in finding.metrics.items()}
        return {"trusted": self.trusted, "metrics": metrics, **asdict(self)}


def write_verdict(path: Path, verdict: Verdict, step: int) -> None:
    """Keep it in the folder of the run."""
    values = {"step": step, "text": verdict.text(path), **verdict.as_json()}
    RunDirectory(path).write_sealed(VERDICT_FILE, values)


def read_verdict_text(path: Path) -> str | None:
    """The verdict that is kept in the folder of a run; None if there is none to read."""
    try:
        text = RunDirectory(path).read_sealed(VERDICT_FILE)["text"]
    except (RunError, ValueError, KeyError, TypeError):
        _say_not_used(path)
        return None
    return str(text)


def _say_not_used(path: Path) -> None:
    if (path / VERDICT_FILE).exists():
        say(f"note: {path / VERDICT_FILE} is damaged, and not used; run `bayesrnn calibrate` again")


class KeptVerdict(NamedTuple):
    """A verdict, and the step of the checkpoint that it is on."""

    step: int
    verdict: Verdict


def read_verdict(path: Path) -> KeptVerdict | None:
    """The verdict in the folder of a run, on whichever checkpoint; None: there is none to read."""
    try:
        values = RunDirectory(path).read_sealed(VERDICT_FILE)
        findings = tuple(
            Finding(
                words=str(one["words"]),
                metrics={name: float(value) for name, value in one["metrics"].items()},
                good=bool(one["good"]),
            )
            for one in values["findings"]
        )
        verdict = Verdict(findings, int(values["predictions"]), str(values["unit"]))
        return KeptVerdict(int(values["step"]), verdict)
    except (RunError, ValueError, KeyError, TypeError, AttributeError):
        _say_not_used(path)
        return None


def draws_finding(calibration: Calibration, perplexity: bool = False) -> Finding:
    """Whether draws predict better than the mean weights, both calibrated.

    In nats, or as a share of the `perplexity`.
    """
    fitted = calibration.fitted
    if fitted.draws_nll_fitted is None:
        return Finding("a single network, which has no uncertainty of its weights", {})
    gain = fitted.mean_nll_fitted - fitted.draws_nll_fitted
    amount = f"{1 - math.exp(-abs(gain)):.1%}" if perplexity else f"{abs(gain):.3f} nats"
    words = f"draws beat the mean by {amount}"
    if not calibration.best_samples:
        worse = f": {amount} worse" if gain < -WORTH else ""
        words = f"draws do not beat the mean{worse}"
    return Finding(words, {"draws_gain_nats": gain})


#: Nats by which a word is more surprising than expected, and an AUROC, that can be lived with.
LARGEST_SURPRISE = 0.1
LOWEST_AUROC = 0.6


def word_findings(
    nll: Sequence[Tensor],
    entropy: Sequence[Tensor],
    regular: Tensor,
    shifted: Tensor,
    unfamiliar: str,
) -> list[Finding]:
    """Of predicted words: whether they are as surprising as expected, and shifted ones more so.

    A network that expects as much surprise as it gets has an NLL equal to the entropy of its
    predictions.

    nll, entropy: in nats, of the words of each of several pieces of text. A piece is surprising as
        a whole, so chance is told from the differences between pieces.
    regular, shifted: entropies of windows of text, of which the latter are `unfamiliar`.
    """
    expected, found = torch.cat(list(entropy)).double(), torch.cat(list(nll)).double()
    surprise = (found - expected).mean().item()
    chance = _error_of_mean([own - hoped for own, hoped in zip(nll, entropy, strict=True)])
    which = "over" if surprise > 0 else "under"
    return [
        Finding(
            f"{abs(surprise):.2f} +- {chance:.2f} nats a word {which}-confident",
            {
                "nll": found.mean().item(),
                "entropy": expected.mean().item(),
                "overconfidence": surprise,
                "overconfidence_error": chance,
            },
            abs(surprise) <= LARGEST_SURPRISE + chance,
        ),
        unfamiliar_finding(regular, shifted, unfamiliar),
    ]


def _error_of_mean(pieces: Sequence[Tensor]) -> float:
    """The standard error of the mean over all values, where those of a piece go together."""
    values = torch.cat(list(pieces)).double()
    mean = values.mean()
    off = torch.stack([(piece.double() - mean).sum() for piece in pieces])
    number = len(pieces)
    spread = off.square().sum() * number / max(1, number - 1)
    return (spread.sqrt() / len(values)).item()


def unfamiliar_finding(
    regular: Tensor, shifted: Tensor, unfamiliar: str, score: str = "entropy"
) -> Finding:
    """Whether a `score` of doubt tells `unfamiliar` inputs from regular ones.

    A score that is right more often than not may miss the AUROC that is asked for by two standard
    errors: that is chance.
    """
    auroc = detection(regular, shifted, seeded(0), bootstrap=0).auroc.value
    error = auroc_error(auroc, len(regular), len(shifted))
    good = auroc > 0.5 and auroc + 2 * error >= LOWEST_AUROC
    return Finding(
        f"{unfamiliar} is {'' if good else 'not '}told from familiar by {score}: "
        f"AUROC {auroc:.2f} +- {error:.2f}",
        {"auroc": auroc, "auroc_error": error},
        good,
    )


def unknown_words_finding(windows: Mapping[str, tuple[Tensor, Tensor]]) -> Finding:
    """Whether text of mostly unknown words is noticed, and by which scores it is not.

    A network that comes to expect unknown words is sure of them, and its text looks familiar by
    entropy and information. It is judged by the surprise; that the others fail is told.

    windows: of regular text and of text of unknown words, by the name of a score; "surprise" is
        one.
    """
    named = "text of mostly unknown words"
    found = {name: unfamiliar_finding(*both, named, name) for name, both in windows.items()}
    surprise = found.pop("surprise")
    misled = {name: own.metrics["auroc"] for name, own in found.items() if not own.good}
    words, caveat = surprise.words, ""
    if misled:
        words += ", by " + " and ".join(f"{name} {auroc:.2f}" for name, auroc in misled.items())
        caveat = f"judge texts with unknown words by surprise, not by {' or '.join(misled)}"
    metrics = {
        f"unknown_words_{metric}_by_{name.replace(' ', '_')}": value
        for name, own in {"surprise": surprise, **found}.items()
        for metric, value in own.metrics.items()
    }
    return Finding(words, metrics, surprise.good, caveat)


#: A calibration error, and a distance of the share of truths inside of 90% intervals from 90%,
#: that can be lived with.
LARGEST_ERROR = 0.05
LARGEST_MISS = 0.05


def classes_findings(probabilities: Tensor, truths: Tensor, trained_on: Tensor) -> list[Finding]:
    """Of predicted classes: the calibration error, and the NLL against always the same answer.

    That answer is the frequencies of the classes that the network was `trained_on`, each counted
    once more, so that none is impossible.

    probabilities: float64 [examples, classes].
    """
    found, examples = score_probabilities(probabilities, truths), torch.arange(len(truths))
    counts = trained_on.bincount(minlength=probabilities.shape[1]).double() + 1
    frequencies = (counts / counts.sum())[truths]
    gains = probabilities[examples, truths].log() - frequencies.log()
    nll, constant, better = found.nll, -frequencies.log().mean().item(), _is_positive(gains)
    compared = f"{nll:.3f} nats against {constant:.3f} for no model"
    if not better:
        compared = (
            f"no better than no model: {nll:.3f} nats, and the class frequencies {constant:.3f}"
        )
    # Chance alone makes an error of about this, even where every probability is right.
    chance = 1 / math.sqrt(len(truths))
    return [
        Finding(
            f"calibration error {found.ece:.1%}",
            {"ece": found.ece},
            found.ece <= LARGEST_ERROR + chance,
        ),
        Finding(compared, {"nll": nll, "constant_nll": constant}, better),
    ]


def numbers_findings(coverage: float, errors: Tensor, constant_errors: Tensor) -> list[Finding]:
    """Of predicted numbers: how many truths the 90% intervals hold, and the error.

    Wide intervals around one number for everything hold what they say, too.

    errors, constant_errors: truth minus prediction, and minus the mean of the training data.
    """
    # Intervals that are right miss 90% by more than two standard errors in one case out of twenty.
    chance = 2 * math.sqrt(0.9 * 0.1 / len(errors))
    missed = abs(coverage - 0.9) - 1e-9  # 0.84 is not a float
    rmse, constant = (each.square().mean().sqrt().item() for each in (errors, constant_errors))
    better = _is_positive(constant_errors.square() - errors.square())
    compared = f"RMSE {rmse:.4g} against {constant:.4g} for no model"
    if not better:
        compared = f"no better than no model: RMSE {rmse:.4g}, and always the mean {constant:.4g}"
    return [
        Finding(
            f"90% intervals hold {coverage:.0%}",
            {"coverage_90": coverage},
            missed <= max(LARGEST_MISS, chance),
        ),
        Finding(compared, {"rmse": rmse, "constant_rmse": constant}, better),
    ]


def _is_positive(gains: Tensor) -> bool:
    """Whether the mean of what single examples gain is above 0 by more than two standard errors."""
    return gains.mean().item() > 2 * gains.std(correction=0).item() / math.sqrt(len(gains))
