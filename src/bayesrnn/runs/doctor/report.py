"""What the doctor found, for a terminal, as a page and as JSON."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from bayesrnn.report.axes import even_axis
from bayesrnn.report.chart import Series, line_chart
from bayesrnn.report.page import Section, document, notes, render
from bayesrnn.report.table import Table, titled_text
from bayesrnn.report.text import number_text, printable
from bayesrnn.runs.calibration import Calibration, scaling_words
from bayesrnn.runs.doctor.examination import Examination
from bayesrnn.runs.doctor.explanation import Diagnosis, diagnose
from bayesrnn.runs.doctor.findings import Finding
from bayesrnn.runs.doctor.gradients import MINIBATCHES
from bayesrnn.runs.doctor.posterior import AT_PRIOR, EDGES, TensorReport, overall
from bayesrnn.runs.held_out import PredictionScore
from bayesrnn.runs.verdict import KeptVerdict

_WRONG = "What is wrong, and what to try"

_TENSOR_NOTES = (
    "now/start: sigma over what it started from, its median and the range from 1 to 99%; the start "
    "is built again from configuration and seed",
    "r start, r |mu|: correlation over the weights of log sigma with log sigma at the start, and "
    "with log |mu|; near 1 and 0, widths are those of the random start",
    f"at prior: share of the weights whose own KL is below {AT_PRIOR} nats: about |mu| < 0.45 s "
    "and sigma from 0.7 to 1.3 s; s is the prior's scale as the weight meets it (of a mixture, "
    "between its two; of a fitted prior, the fitted one)",
    "KL: in nats, exact or from one draw, as training charges it, before --kl-weight",
)
_BINS = (
    f"histograms: shares of the weights from 1/{2 ** -EDGES[0]:.0f} to {2 ** EDGES[-1]:.0f} in "
    "steps of a factor 1.41; what lies outside counts in the outer bins; | is at 1"
)
_BARS = " ▁▂▃▄▅▆▇█"


def doctor_text(found: Examination, width: int = 100) -> str:
    """The verdict and findings first, then what they are based on."""
    said = [f"{_title(found)}\n", *_diagnosis(diagnose(found), width)]
    tables = titled_text(doctor_tables(found, in_text=True), width)
    left_out = [_wrapped(f"not measured: {line}", width) for line in found.left_out]
    return "\n".join([*said, tables.rstrip("\n"), *([""] if left_out else []), *left_out])


def doctor_page(found: Examination) -> str:
    """One HTML file."""
    said = diagnose(found)
    sections = [
        *(
            [Section("The verdict", said.verdict, _listed(said.explanations))]
            if said.verdict
            else []
        ),
        Section(_WRONG, _listed(said.findings) if said.findings else _well(said)),
        *(Section(title, table) for title, table in doctor_tables(found)),
    ]
    if found.tensors:
        sections.append(Section("Widths and signal of each tensor", *_charts(found.tensors)))
    if found.left_out:
        sections.append(Section("Not measured", notes(found.left_out)))
    return document(_title(found), sections)


def doctor_json(found: Examination) -> dict[str, Any]:
    """All figures and findings; the histograms with their edges, as powers of 2."""
    values = asdict(found)
    values["path"] = str(found.path)
    nats, course = found.nats, found.course
    values["nats"] |= {
        "gained": nats.gained,
        "charged": nats.charged,
        "free_energy": nats.free_energy,
    }
    values["course"] |= {"last_gain": course.last_gain, "rise": course.rise}
    values["lost_on_validation"] = found.lost
    values["histogram_edges"] = EDGES
    said = diagnose(found)
    values["kept_verdict"] = None if found.kept_verdict is None else _kept(found.kept_verdict)
    values["verdict"] = {
        "text": said.verdict,
        "trusted": None if found.verdict is None else found.verdict.trusted,
        "explanations": [asdict(one) for one in said.explanations],
    }
    values["findings"] = [asdict(finding) for finding in said.findings]
    return values


def _kept(kept: KeptVerdict) -> dict[str, Any]:
    return {"step": kept.step, **kept.verdict.as_json()}


def _title(found: Examination) -> str:
    return f"{found.path.resolve().name} ({found.task}, {found.method}) at step {found.step:,}"


def _diagnosis(said: Diagnosis, width: int) -> list[str]:
    lines = []
    if said.verdict:
        lines.append(textwrap.fill(printable(said.verdict), width, break_on_hyphens=False) + "\n")
    lines += _complaints(said.explanations, width)
    if not said.findings:
        return [*lines, f"{_well(said)}\n"]
    return [*lines, f"{_WRONG}\n", *_complaints(said.findings, width)]


def _well(said: Diagnosis) -> str:
    return f"Nothing{' else' if said.explanations else ''} that is measured here looks wrong."


def _listed(complaints: Sequence[Finding]) -> Markup:
    return render("runs/doctor/findings.html.j2", findings=complaints)


def _complaints(complaints: Sequence[Finding], width: int) -> list[str]:
    return [
        f"- {printable(one.title)}: "
        + _wrapped(f"{one.seen}.", width, indent=len(one.title) + 4).lstrip()
        + "\n"
        + textwrap.indent(_wrapped(f"Try: {one.advice}.", width - 2), "  ")
        + "\n"
        for one in complaints
    ]


def _wrapped(text: str, width: int, indent: int = 0) -> str:
    return textwrap.fill(
        printable(text),
        width,
        initial_indent=" " * indent,
        subsequent_indent="  ",
        break_on_hyphens=False,
    )


def doctor_tables(found: Examination, in_text: bool = False) -> list[tuple[str, Table]]:
    """What the verdict and the findings are based on; for a terminal, histograms as well."""
    made = [("Nats a prediction", _nats(found))]
    if found.tensors:
        made.append(("The posterior by tensor", _posterior(found.tensors)))
        if in_text:
            made.append(("Histograms by tensor", _histograms(found.tensors)))
    made.append(("Training", _training(found)))
    return made


def _nats(found: Examination) -> Table:
    nats, checked = found.nats, found.validation
    rows = [
        ("training data, mean weights", nats.train.mean),
        ("training data, draws", nats.train.draws),
    ]
    if checked is not None:
        if checked.mean_as_trained is not None:
            rows += _scored("validation data, mean weights as trained", checked.mean_as_trained)
        calibrated = "" if found.calibration is None else ", calibrated"
        rows += _scored(f"validation data, mean weights{calibrated}", checked.mean)
        if checked.draws is not None:
            rows += _scored(f"validation data, {checked.samples} draws{calibrated}", checked.draws)
    if nats.base is not None and nats.gained is not None:
        rows += [
            ("best constant prediction, no network", nats.base),
            ("gained on it by draws, training data", nats.gained),
        ]
    if nats.kl is not None and nats.free_energy is not None:
        rows += [
            ("paid: KL in full", nats.kl),
            (f"paid: KL as charged, weight {nats.kl_weight:g}", nats.kl * nats.kl_weight),
            ("free energy: draws, and KL as charged", nats.free_energy),
        ]
    said = [
        f"training data: {nats.train.predictions:,} predictions, one draw for each minibatch; the "
        "best constant is the frequencies of the training targets (of numbers, a normal "
        "distribution)",
    ]
    if checked is not None:
        said.append(
            f"validation data: {checked.mean.predictions:,} predictions. NLL - entropy: above 0 "
            "surer than it may be, below 0 less sure"
        )
    if found.calibration is not None:
        said.append(_calibration_note(found.calibration))
    shown = [[name, number_text(value, 4)] for name, value in rows]
    return Table(["what", "nats"], shown, ("what",), said)


def _calibration_note(calibration: Calibration) -> str:
    """What calibration changed, of the data that it was fitted to."""
    fitted = calibration.fitted
    words = [f"mean weights {fitted.mean_nll:.4f}, calibrated {fitted.mean_nll_fitted:.4f}"]
    if fitted.draws_nll is not None and fitted.draws_nll_fitted is not None:
        words.append(
            f"{fitted.draws} draws {fitted.draws_nll:.4f}, calibrated "
            f"{fitted.draws_nll_fitted:.4f} ({scaling_words(calibration.scaling, fitted.draws)})"
        )
    return f"the {fitted.predictions:,} {calibration.unit}s calibrated on: {'; '.join(words)}"


def _scored(name: str, score: PredictionScore) -> list[tuple[str, float]]:
    rows = [(name, score.nll)]
    if score.overconfidence is not None:
        rows.append((f"{name}: NLL - entropy", score.overconfidence))
    return rows


def _posterior(tensors: Sequence[TensorReport]) -> Table:
    header = ["tensor", "weights", "now/start", "1 to 99%"]
    header += ["r start", "r |mu|", "at prior", "KL", "KL/weight"]
    rows = [[one.name, f"{one.weights:,}", *_widths(one), *_costs(one)] for one in tensors]
    return Table(header, rows, ("tensor",), _TENSOR_NOTES)


def _widths(tensor: TensorReport) -> list[str]:
    of_mean, widths = number_text(tensor.mean_correlation, 2), tensor.widths
    if widths is None:
        return ["-", "-", "-", of_mean]
    low, middle, high = widths.ratio
    of_start = number_text(widths.correlation, 2)
    return [f"{middle:.3g}", f"{low:.3g} to {high:.3g}", of_start, of_mean]


def _costs(tensor: TensorReport) -> list[str]:
    share = "-" if tensor.at_prior is None else f"{tensor.at_prior:.0%}"
    return [share, f"{tensor.kl:,.0f}", f"{tensor.kl / tensor.weights:.3f}"]


def _histograms(tensors: Sequence[TensorReport]) -> Table:
    rows = [
        [one.name, "-" if one.widths is None else _bars(one.widths.histogram), _bars(one.signal)]
        for one in tensors
    ]
    return Table(["tensor", "sigma/start", "|mu|/sigma"], rows, ("tensor",), [_BINS])


def _bars(counts: Sequence[int]) -> str:
    """The counts as bars, the highest as high as a line, with a mark in the middle."""
    most = max(counts)
    bars = "".join(_BARS[math.ceil(count / most * (len(_BARS) - 1))] for count in counts)
    middle = len(counts) // 2
    return f"[{bars[:middle]}|{bars[middle:]}]"


def _training(found: Examination) -> Table:
    course = found.course
    rows = [("epochs finished", f"{course.epochs} of {course.planned}")]
    if course.valid:
        rows += [
            ("best epoch", str(course.best)),
            (f"validation {found.measure}: best, last", f"{_pair(course.valid)}"),
        ]
    if course.clipped is not None:
        rows.append((f"steps clipped at {found.clip:g}", f"{course.clipped:.0%}"))
    if course.norms is not None:
        rows.append(("median norm of the gradient", f"{course.norms:.3g}"))
    if found.lost is not None:
        rows.append(("lost on validation data, of what training gained", f"{found.lost:.0%}"))
    posterior = overall(found.tensors)
    if posterior.at_prior is not None:
        rows.append(("weights at the prior", f"{posterior.at_prior:.0%}"))
    said = []
    if posterior.change is not None and course.epochs:
        pace = math.hypot(*posterior.change) / course.epochs
        rows.append(("epochs for sigma to change by a factor e", _epochs(pace)))
        said.append("epochs for a factor e: at the pace at which sigma has left its start so far")
    for kind, noise in found.gradients.items():
        ratio = noise.signal / noise.noise if noise.noise else math.inf
        rows.append((f"gradient of {kind}: signal / noise", f"{ratio:.3g}"))
        rows.append((f"gradient of {kind}: minibatches to see it", f"{noise.minibatches:,.0f}"))
    if found.gradients:
        said.append(
            f"gradients: of {MINIBATCHES} minibatches with fresh draws at these weights; the norm "
            "of their mean against that of a minibatch's difference from it. As many minibatches "
            f"have to be averaged to see which way to go; an epoch has {found.minibatches:,}"
        )
    return Table(["what", "found"], rows, ("what",), said)


def _pair(valid: Sequence[float]) -> str:
    return f"{min(valid):.5g}, {valid[-1]:.5g}"


def _epochs(pace: float) -> str:
    return f"{1 / pace:.3g}" if pace else "-"


def _charts(tensors: Sequence[TensorReport]) -> list[Markup]:
    widths = {one.name: one.widths.histogram for one in tensors if one.widths is not None}
    signal = {one.name: one.signal for one in tensors}
    shown = {"sigma now / sigma at its start": widths, "|mu| / sigma": signal}
    return [_chart(title, histograms) for title, histograms in shown.items() if histograms]


def _chart(title: str, histograms: Mapping[str, Sequence[int]]) -> Markup:
    middles = [(low + high) / 2 for low, high in pairwise(EDGES)]
    return line_chart(
        [
            Series(name, [(at, n / sum(counts)) for at, n in zip(middles, counts, strict=True)])
            for name, counts in histograms.items()
        ],
        title,
        "power of 2, in bins of half a power; what lies outside counts in the outer bins",
        "share of the weights",
        x=even_axis,
        y=even_axis,
    )
