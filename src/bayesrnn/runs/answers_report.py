"""The uncertainty of runs with one answer for each example: tables, a page, JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import sqrt
from typing import Any

from bayesrnn.report.axes import even_axis, share_axis
from bayesrnn.report.chart import Reference, Series, line_chart
from bayesrnn.report.in_short import telling_sentence, winner_sentence
from bayesrnn.report.page import Section, document, entries
from bayesrnn.report.table import Table, distinct_names, titled_text
from bayesrnn.report.text import counted, draws_text, interval_text, number_text
from bayesrnn.runs.answers import AnswerLevel, AnswerUncertainty
from bayesrnn.uncertainty.selective import RiskCoverage

_SHARES = (1.0, 0.9, 0.7, 0.5)

_LABEL_NOTES = (
    "lower is better in every column; error: share of wrong answers; NLL: of the label, in nats; "
    "ECE: distance of confidence and accuracy, over 15 bins of equal width; Brier: squared "
    "distance of the probabilities from the label, 0 to 2",
)
_NUMBER_NOTES = (
    "RMSE and NLL: lower is better; n% holds: the share of truths inside that interval, which "
    "should be n%",
)
_WITHHOLDING_NOTES = (
    "by column: the {risk} of the share of answers that is given when the most doubtful ones by "
    "that score are withheld; area: its mean over every number of answers given; lower is better",
)
_SCORES = {
    "H": "entropy of the prediction",
    "MI": "the part of the entropy on which draws disagree",
    "1-p": "one minus the probability of the answer",
    "deviation": "standard deviation of the prediction",
    "epistemic": "standard deviation between draws",
    "unknown": "share of words that are unknown",
}
_SHIFT_NOTES = (
    "AUROC: chance that a shifted input is more doubtful than a regular one, 0.5 is guessing, 1 is "
    "best; AUPR: average precision, guessing gives the share of shifted inputs; FPR95: share of "
    "regular inputs taken for shifted where 95% of the shifted are found, lower is better; in "
    "brackets: 95% of the bootstrap resamples",
)
_RELIABILITY = (
    "Answers are sorted by their confidence, and each bin shows how many were right. On the dotted "
    "diagonal both agree; below it the run is too sure. The most draws of each run."
)
_RISK = (
    "From right to left, more and more of the doubtful answers are withheld; the faster a line "
    "falls, the better the run knows its errors. The most draws of each run, by its first score."
)


def answers_text(runs: Sequence[AnswerUncertainty]) -> str:
    """The tables for a terminal."""
    return titled_text(answers_tables(runs))


def answers_tables(runs: Sequence[AnswerUncertainty]) -> list[tuple[str, Table]]:
    """Titles and tables: quality, withholding, shifted inputs."""
    noun = runs[0].noun
    return [
        (f"Answers for regular {noun}s", _quality_table(runs)),
        ("Withholding doubtful answers", _withholding_table(runs)),
        (f"Telling shifted from regular {noun}s", _shift_table(runs)),
    ]


def answers_page(runs: Sequence[AnswerUncertainty]) -> str:
    """One HTML file: the tables, reliability, risk against coverage, settings."""
    quality, withholding, shifts = answers_tables(runs)
    labelled = [run for run in runs if not run.squared]
    sections = [
        Section("In short", in_short(runs)),
        Section(*quality, *([_RELIABILITY, _reliability_chart(labelled)] if labelled else [])),
        Section(*withholding, _RISK, _risk_chart(runs)),
        Section(*shifts),
        Section("Settings", entries(_settings(runs))),
    ]
    data = ", ".join(dict.fromkeys(run.data for run in runs))
    return document(f"Uncertainty of {counted(len(runs), 'run')} on {data}", sections)


def in_short(runs: Sequence[AnswerUncertainty]) -> list[str]:
    """Which run answers best, and tells each kind of shifted inputs best, by its most draws."""
    last = [(name, run.levels[-1]) for name, run in zip(distinct_names(runs), runs, strict=True)]
    title = next(iter(last[0][1].metrics))
    ranked = sorted((level.metrics[title], name) for name, level in last if title in level.metrics)
    lines = [f"{name}: {title} {number_text(value, 4)}." for value, name in ranked[:1]]
    if len(ranked) > 1:
        (value, name), (second, other) = ranked[:2]
        lines = [f"{winner_sentence(name, value, other, second, title, 4)}."]
    for shift in dict.fromkeys(shift for _, level in last for shift in level.shifts):
        found = [
            (name, max((one.detection.auroc for one in scores.values()), default=None))
            for name, level in last
            if (scores := level.shifts.get(shift))
        ]
        told = [(name, auroc) for name, auroc in found if auroc is not None]
        if told:
            noun = f"{runs[0].noun}s"
            regular = f"regular {noun}, by its best score"
            lines.append(telling_sentence(told, f"{shift} {noun}", regular))
    return lines


def answers_json(runs: Sequence[AnswerUncertainty]) -> list[dict[str, Any]]:
    """The same as values for a JSON file."""
    return [{**asdict(run), "path": str(run.path)} for run in runs]


def _rows(runs: Sequence[AnswerUncertainty]) -> Iterator[tuple[str, AnswerUncertainty, Any]]:
    for name, run in zip(distinct_names(runs), runs, strict=True):
        for level in run.levels:
            yield name, run, level


def _quality_table(runs: Sequence[AnswerUncertainty]) -> Table:
    titles = list(dict.fromkeys(title for _, _, level in _rows(runs) for title in level.metrics))
    rows = [
        [
            name,
            draws_text(level.samples),
            *(number_text(level.metrics.get(title), 4) for title in titles),
        ]
        for name, _, level in _rows(runs)
    ]
    notes = _NUMBER_NOTES if runs[0].squared else _LABEL_NOTES
    return Table(["run", "draws", *titles], rows, ("run",), notes)


def _withholding_table(runs: Sequence[AnswerUncertainty]) -> Table:
    risk = "RMSE" if runs[0].squared else "error"
    header = ["run", "draws", "by", *(f"{share:.0%}" for share in _SHARES), "area"]
    rows = [
        [
            name,
            draws_text(level.samples),
            score,
            *(number_text(_risk(found, share, run.squared), 4) for share in _SHARES),
            number_text(found.area, 4),
        ]
        for name, run, level in _rows(runs)
        for score, found in level.withholding.items()
    ]
    notes = [note.format(risk=risk) for note in _WITHHOLDING_NOTES]
    return Table(header, rows, ("run", "by"), [*notes, _score_note(runs)])


def _shift_table(runs: Sequence[AnswerUncertainty]) -> Table:
    header = ["run", "draws", "shift", "by", "regular", "shifted", "AUROC", "AUPR", "FPR95"]
    rows = [
        [
            name,
            draws_text(level.samples),
            shift,
            score,
            number_text(found.regular),
            number_text(found.shifted),
            interval_text(*found.detection.auroc),
            number_text(found.detection.aupr.value),
            number_text(found.detection.fpr95.value),
        ]
        for name, run in zip(distinct_names(runs), runs, strict=True)
        for level in run.levels[-1:]
        for shift, by_score in level.shifts.items()
        for score, found in by_score.items()
    ]
    return Table(header, rows, ("run", "shift", "by"), [_score_note(runs), *_SHIFT_NOTES])


def _score_note(runs: Sequence[AnswerUncertainty]) -> str:
    used = {score for _, _, level in _rows(runs) for score in level.withholding}
    return "; ".join(f"{score}: {meaning}" for score, meaning in _SCORES.items() if score in used)


def _risk(found: RiskCoverage, share: float, squared: bool) -> float | None:
    pairs = zip(found.coverage, found.risk, strict=True)
    risk = next((risk for coverage, risk in pairs if coverage >= share - 1e-9), None)
    return sqrt(risk) if risk is not None and squared else risk


def _reliability_chart(runs: Sequence[AnswerUncertainty]) -> Any:
    def points(level: AnswerLevel) -> list[tuple[float, float | None]]:
        found = level.reliability
        return list(zip(found.confidence, found.accuracy, strict=True)) if found else []

    return line_chart(
        [Series(name, points(run.levels[-1])) for name, run in _named(runs)],
        "Reliability",
        "confidence",
        "accuracy",
        x=share_axis,
        y=share_axis,
        references=[Reference("calibrated", 0, 1)],
        empty="no answers",
    )


def _risk_chart(runs: Sequence[AnswerUncertainty]) -> Any:
    def points(level: AnswerLevel) -> list[tuple[float, float | None]]:
        first = next(iter(level.withholding.values()))
        return list(zip(first.coverage, first.risk, strict=True))

    return line_chart(
        [Series(name, points(run.levels[-1])) for name, run in _named(runs)],
        "Risk and coverage",
        "share of answers given (coverage)",
        "mean squared error" if runs[0].squared else "share of wrong answers (risk)",
        x=share_axis,
        y=even_axis,
        empty="no answers",
    )


def _named(runs: Sequence[AnswerUncertainty]) -> Iterator[tuple[str, AnswerUncertainty]]:
    return zip(distinct_names(runs), runs, strict=True)


def _settings(runs: Sequence[AnswerUncertainty]) -> Iterator[tuple[str, str, str]]:
    """The name of each run, what it is, and how it was measured."""
    for name, run in _named(runs):
        draws = ", ".join(str(level.samples or "mean network") for level in run.levels)
        sizes = ", ".join(
            f"{size:,} {shift or run.split}" for shift, size in run.levels[0].sizes.items()
        )
        yield (
            name,
            f"{run.data}, {run.method}, {run.settings}",
            f"{run.path} at step {run.step:,}; {run.noun}s: {sizes}; draws: {draws}; seed "
            f"{run.seed} of the measurement; {run.bootstrap:,} resamples",
        )
