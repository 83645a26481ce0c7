"""Compare runs: a table for the terminal, and one page with curves."""

import shlex
import textwrap
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from markupsafe import Markup

from bayesrnn.errors import ConfigError, RunError
from bayesrnn.options import from_toml
from bayesrnn.report.axes import even_axis
from bayesrnn.report.chart import Series, line_chart
from bayesrnn.report.in_short import winner_sentence
from bayesrnn.report.page import Section, code, document, render
from bayesrnn.report.table import Table, distinct_names
from bayesrnn.report.text import counted
from bayesrnn.runs.evaluation import CALIBRATED
from bayesrnn.runs.output import columns, write_text
from bayesrnn.runs.summary import RunSummary
from bayesrnn.runs.task import Task

#: Epochs from which on the end of the curves has a picture of its own.
_FEWEST_EPOCHS = 6


def result_columns(tasks: Iterable[Task[Any, Any]]) -> dict[str, tuple[str, str]]:
    """The columns of results on the test set by inference: a title, and a note below the table."""
    own = {name: column for task in tasks for name, column in task.own_inferences.items()}
    return {
        "mean": ("test", ""),
        "samples": ("draws", "test, probabilities averaged over that many draws of the network"),
        CALIBRATED: (
            "calibrated",
            "test, noise and temperature fitted to validation data; in brackets, the draws",
        ),
        **own,
        "bound": ("bound", "test, at most: by networks that saw the targets, and the KL that pays"),
    }


def comparison_table(summaries: Sequence[RunSummary]) -> Table:
    """One line per run, in the order given, with the best on the validation set marked."""
    if not summaries:
        raise RunError("there are no runs to compare; give at least one run directory")
    names = distinct_names(summaries)
    header = ["run", "method", "network", "epochs", "train", "valid"]
    rows = [
        [
            name,
            summary.method,
            summary.network,
            f"{summary.epochs_done}/{summary.epochs_planned}",
            summary.measure.text(summary.best.train if summary.best else None),
            summary.measure.text(summary.best_valid),
        ]
        for name, summary in zip(names, summaries, strict=True)
    ]
    measures = dict.fromkeys(summary.measure.title for summary in summaries)
    notes = [
        f"{', '.join(measures)}; valid: best epoch, with the mean of the weights; "
        f"train: same epoch, {', '.join(dict.fromkeys(s.measure.train for s in summaries))}"
    ]
    for inference, (title, note) in result_columns(summary.task for summary in summaries).items():
        found = [summary.result("test", inference) for summary in summaries]
        if any(found):
            header.append(title)
            for row, summary, result in zip(rows, summaries, found, strict=True):
                shown = summary.measure.text(summary.measure.read(result)) if result else "-"
                counted_draws = inference in ("samples", CALIBRATED) and result
                draws = f" ({result['samples']})" if result and counted_draws else ""
                row.append(shown + draws)
            if note:
                notes.append(f"{title}: {note}")
    units = {summary.unit for summary in summaries}
    header.append("items/s" if len(units) > 1 else f"{units.pop()}/s")
    for row, summary in zip(rows, summaries, strict=True):
        speed = summary.items_per_second
        row.append("-" if speed is None else f"{speed:,.0f}")
    best = _best(summaries)
    if best:
        notes.insert(0, "* best on the validation set")
    notes += [
        *_averaged_notes(names, summaries),
        *_stale_notes(names, summaries),
        *_corpus_notes(names, summaries),
    ]
    column = header.index("valid")
    marked = frozenset((row, column) for row in best)
    return Table(header, rows, ("run", "method", "network"), notes, marked)


def comparable_groups(summaries: Sequence[RunSummary]) -> list[list[int]]:
    """The places of the runs that solve the same problem: same data, same vocabulary."""
    groups: list[list[int]] = []
    for place, summary in enumerate(summaries):
        fitting = [g for g in groups if any(summary.same_problem(summaries[i]) for i in g)]
        others = [group for group in groups if group not in fitting]
        groups = [*others, [*chain(*fitting), place]]
    return sorted(map(sorted, groups))


def _best(summaries: Sequence[RunSummary]) -> set[int]:
    """The best run of every group in which there is a choice."""
    best = set()
    for group in comparable_groups(summaries):
        values = {run: v for run in group if (v := summaries[run].best_valid) is not None}
        if len(values) > 1:
            best |= {run for run, value in values.items() if value == min(values.values())}
    return best


def _corpus_notes(names: Sequence[str], summaries: Sequence[RunSummary]) -> list[str]:
    groups = comparable_groups(summaries)
    if len(groups) == 1:
        return []
    parts = [
        f"{summaries[group[0]].data} ({', '.join(names[i] for i in group)})" for group in groups
    ]
    return [
        "the runs are on different data or vocabularies, and can be compared only within one: "
        f"{'; '.join(parts)}"
    ]


def _averaged_notes(names: Sequence[str], summaries: Sequence[RunSummary]) -> list[str]:
    """The runs whose best epoch is that of averaged parameters."""
    averaged = [
        name
        for name, summary in zip(names, summaries, strict=True)
        if summary.best and summary.best.averaged
    ]
    return [f"parameters averaged over steps: {', '.join(averaged)}"] if averaged else []


def _stale_notes(names: Sequence[str], summaries: Sequence[RunSummary]) -> list[str]:
    """Results that were found at another moment than the best epoch of today."""
    inferences = result_columns(summary.task for summary in summaries)
    stale = [
        name
        for name, summary in zip(names, summaries, strict=True)
        for result in (summary.result("test", inference) for inference in inferences)
        if result and summary.best and result.get("step", summary.best.step) != summary.best.step
    ]
    if not stale:
        return []
    return [
        f"not measured at the best epoch: test of {', '.join(dict.fromkeys(stale))}; "
        "run `bayesrnn evaluate` again"
    ]


def compare(
    summaries: Sequence[RunSummary], out: Path | None = None, sections: Sequence[Section] = ()
) -> str:
    """The comparison as text; with `out` also as a page, or the chart alone if it ends in .svg."""
    tasks = dict.fromkeys(summary.task for summary in summaries)
    own = [found for task in tasks if (found := task.compare(summaries)) is not None]
    if out is not None:
        chart = out.suffix.lower() == ".svg"
        if chart and len(comparable_groups(summaries)) > 1:
            raise ConfigError(
                f"--out is {out}, but these runs are on different data or vocabularies and do not "
                "belong in one chart; give runs of one kind, or an .html file"
            )
        sections = [*(Section(one.title, one.table.html()) for one in own), *sections]
        said = [one.sentence for one in own if one.sentence]
        text = curves(summaries) if chart else comparison_page(summaries, sections, said)
        write_text(text, out)
    tables = [comparison_table(summaries), *(one.table for one in own)]
    lines = [*winners(summaries), *(one.sentence for one in own if one.sentence)]
    said = [textwrap.fill(line, columns()) for line in lines]
    return "\n".join([*(f"{line}\n" for line in said), *(table.text() for table in tables)])


def winners(summaries: Sequence[RunSummary]) -> list[str]:
    """For each kind of runs that can be compared: which one won, and by how much."""
    names, groups, said = distinct_names(summaries), comparable_groups(summaries), []
    for group in groups:
        ranked = sorted((v, i) for i in group if (v := summaries[i].best_valid) is not None)
        if len(ranked) < 2:
            continue
        (value, first), (second, other) = ranked[:2]
        measure, where = summaries[first].measure, f"On {summaries[first].data}, "
        sentence = winner_sentence(
            *(names[first], value, names[other], second),
            f"validation {measure.title}",
            measure.digits,
        )
        tested = [
            summaries[i].measure.read(summaries[i].result("test", "mean") or {})
            for i in (first, other)
        ]
        if None not in tested:
            sentence += f"; on the test set {' against '.join(map(measure.text, tested))}"
        alone = sum(summaries[i].method == summaries[first].method for i in group) == 1
        caution = " Another seed may change that." if alone else ""
        said.append(f"{where if len(groups) > 1 else ''}{sentence}.{caution}")
    return said


def comparison_page(
    summaries: Sequence[RunSummary],
    sections: Sequence[Section] = (),
    said: Sequence[str] = (),
) -> str:
    """The runs side by side: who won, table, curves, `sections`, settings, how to run them again.

    Runs that cannot be compared with each other have charts of their own.

    said: further sentences for the top.
    """
    groups = [[summaries[i] for i in group] for group in comparable_groups(summaries)]
    charts = [chart for group in groups for chart in (curves(group), end_of_curves(group)) if chart]
    lines = [*winners(summaries), *said]
    parts = [
        *([Section("In short", *lines)] if lines else []),
        Section("Results", comparison_table(summaries)),
        Section("Learning curves", *charts),
        *sections,
        Section("Settings, and how to run it again", run_settings(summaries)),
    ]
    corpora = ", ".join(dict.fromkeys(summary.data for summary in summaries))
    return document(f"{counted(len(summaries), 'run')} on {corpora}", parts)


def curves(summaries: Sequence[RunSummary]) -> Markup:
    """Perplexity or error by epoch as one SVG picture: validation solid, train dashed.

    The runs have to solve the same problem.
    """
    corpora = ", ".join(dict.fromkeys(summary.data for summary in summaries))
    series = [
        Series(name, [(point.epoch, getattr(point, split)) for point in summary.points], dashed)
        for name, summary in zip(distinct_names(summaries), summaries, strict=True)
        for split, dashed in (("valid", False), ("train", True))
    ]
    shown = summaries[0].measure.title if summaries else "perplexity"
    title = f"{shown[0].upper()}{shown[1:]} by epoch: {corpora}"
    return line_chart(series, title, "epoch", shown)


def end_of_curves(summaries: Sequence[RunSummary]) -> Markup | None:
    """The second half of the validation curves, where runs differ by less than in the first.

    Nothing for a single run, or for a few epochs.
    """
    epochs = max((len(summary.points) for summary in summaries), default=0)
    if len(summaries) < 2 or epochs < _FEWEST_EPOCHS:
        return None
    series = [
        Series(name, [(p.epoch, p.valid) for p in summary.points if p.epoch > epochs / 2])
        for name, summary in zip(distinct_names(summaries), summaries, strict=True)
    ]
    shown = summaries[0].measure.title
    title = f"Validation {shown}, the end of the curves"
    return line_chart(series, title, "epoch", shown, y=even_axis, height=320)


def run_settings(summaries: Sequence[RunSummary]) -> Markup:
    """What each run was trained with, and the command that trains it again, as HTML."""
    runs = []
    for name, summary in zip(distinct_names(summaries), summaries, strict=True):
        config = str(summary.path / "config.toml")
        again = ["--config", config, "--out", f"{summary.path}-again"]
        best = (
            f"best validation {summary.measure.title} {summary.measure.text(summary.best_valid)} "
            f"at epoch {summary.best_epoch}{' (averaged)' if summary.best.averaged else ''}"
            if summary.best
            else "no epoch with a validation metric yet"
        )
        runs.append(
            {
                "name": name,
                "about": f"{summary.data}, {summary.method}, {summary.network}, "
                f"{summary.settings}; {best}",
                "changed": _changed_rate(summary),
                "command": code([shlex.join(["bayesrnn", "train", summary.task.name, *again])]),
                "config": code(summary.config_text.splitlines()),
            }
        )
    return render("runs/run_settings.html.j2", runs=runs)


def _changed_rate(summary: RunSummary) -> str:
    """What the command to train again cannot repeat: a rate that was changed on the way."""
    start = from_toml(summary.config_text, f"{summary.path}/config.toml").get("lr_from")
    if not isinstance(start, int) or start <= 0:
        return ""
    return (
        f"The learning rate was changed in epoch {start + 1}, when the run was resumed; what it "
        "was before is not in config.toml, so this command does not repeat the run:"
    )
