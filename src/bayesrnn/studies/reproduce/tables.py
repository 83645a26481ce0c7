"""Results on Penn Treebank beside published ones, in tables."""

import statistics
from collections.abc import Sequence

from bayesrnn.report.table import Table
from bayesrnn.report.text import draws_text, number_text, perplexity_text
from bayesrnn.studies.reproduce.published import (
    FIRST_EPOCH,
    GAPS,
    PAPER,
    PRUNED_SHARE,
    SPEEDS,
    Published,
    published_rows,
)
from bayesrnn.studies.reproduce.results import ReproducedRun, Reproduction

#: The columns of perplexities: title, and the name of the perplexity.
COLUMNS = (
    ("val", "valid-mean"),
    ("test", "test-mean"),
    ("val DE", "valid-dynamic"),
    ("test DE", "test-dynamic"),
    ("val draws", "valid-draws"),
    ("test draws", "test-draws"),
)
_NOTES = (
    "perplexity a word, lower is better; val, test: with the mean weights; DE: dynamic evaluation, "
    "from the mean weights; draws: probabilities averaged over that many drawn networks",
    "published: as printed in the source, and not measured here; bound, <=: an upper bound by "
    "networks that have seen the targets, and the KL that pays for it",
)


def results_table(found: Reproduction) -> Table:
    """Our rows, each method followed by what was published of it; then what else was published."""
    rows: list[list[str]] = []
    published = published_rows(found.size)
    sources = list(dict.fromkeys(row.source for row in published))
    methods = dict.fromkeys(run.summary.method for run in found.runs)
    for method in methods:
        for group in _groups([run for run in found.runs if run.summary.method == method]):
            rows += _our_rows(group)
        rows += [_published_row(row, sources) for row in published if row.method == method]
    rows += [_published_row(row, sources) for row in published if row.method not in methods]
    titles = [title for title, _ in COLUMNS]
    header = ["model", "network", "epochs", "seeds", *titles]
    named = [f"{_mark(source, sources)} {source}" for source in sources]
    return Table(header, rows, ("model", "network"), [*_result_notes(found), *named])


def _result_notes(found: Reproduction) -> list[str]:
    notes = list(_NOTES)
    if any(len(group) > 1 for group in _groups(found.runs)):
        notes.append("several seeds: the mean and, after +-, the standard deviation over them")
    if any("valid-mean" not in run.perplexities for run in found.runs):
        notes.append("~: after the best epoch so far, with the text in 20 parts; not exact")
    settings = dict.fromkeys(run.dynamic for run in found.runs if run.dynamic)
    shown = list(settings)
    if len(shown) > 1:
        names = {d: [run.name for run in found.runs if run.dynamic == d] for d in settings}
        shown = [f"{dynamic} ({', '.join(runs)})" for dynamic, runs in names.items()]
    if shown:
        notes.append(f"dynamic evaluation of ours: {'; '.join(shown)}; the paper: sgd, lr 0.1")
    others = {run.summary.method: run.one_network for run in found.runs}
    notes += [
        f"{method}: val, test and DE are not with the mean weights, but with: {network}"
        for method, network in others.items()
        if network != "mean weights"
    ]
    unfinished = [run.name for run in found.runs if not run.finished]
    if unfinished:
        notes.append(f"not finished, figures of the best epoch so far: {', '.join(unfinished)}")
    if found.missing:
        notes.append(f"asked for, and not begun: {', '.join(found.missing)}")
    return notes


def _groups(runs: Sequence[ReproducedRun]) -> list[list[ReproducedRun]]:
    """Finished runs that differ in their seed only, all measured alike; unfinished ones alone."""
    groups: dict[tuple[str, ...], list[ReproducedRun]] = {}
    several_dynamics = len({run.dynamic for run in runs} - {""}) > 1
    for run in runs:
        alone = "" if run.finished else run.name
        dynamic = run.dynamic if several_dynamics else ""
        groups.setdefault((run.settings, str(run.draws), dynamic, alone), []).append(run)
    return list(groups.values())


def _our_rows(group: Sequence[ReproducedRun]) -> list[list[str]]:
    first = group[0]
    summary = first.summary
    unfinished = "" if first.finished else " (unfinished)"
    about = [
        summary.network,
        f"{summary.epochs_done}/{summary.epochs_planned}",
        ", ".join(str(run.seed) for run in group),
    ]
    cells = [_cell(group, name) for _, name in COLUMNS]
    if cells[0] == "-" and len(group) == 1 and summary.best_valid is not None:
        cells[0] = f"~{perplexity_text(summary.best_valid)}"
    rows = [[f"{summary.method}{unfinished}", *about, *cells]]
    if any("test-bound" in run.perplexities for run in group):
        bounds = [_cell(group, f"{split}-bound", "<= ") for split in ("valid", "test")]
        empty = ["-"] * (len(COLUMNS) - 2)
        rows.append([f"{summary.method}, bound{unfinished}", *about, *bounds, *empty])
    return rows


def _cell(group: Sequence[ReproducedRun], name: str, sign: str = "") -> str:
    """The mean over the runs that have the perplexity, with its spread."""
    values = [run.perplexities[name] for run in group if name in run.perplexities]
    if not values:
        return "-"
    spread = f" +- {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    partly = f" [{len(values)} of {len(group)}]" if len(values) < len(group) else ""
    draws = f" ({group[0].draws})" if name.endswith("-draws") else ""
    return f"{sign}{perplexity_text(statistics.fmean(values))}{spread}{draws}{partly}"


def _published_row(row: Published, sources: Sequence[str]) -> list[str]:
    sign = "<= " * row.at_most
    cells = [
        f"{sign}{row.perplexities[name]}" if name in row.perplexities else "-"
        for _, name in COLUMNS
    ]
    label = f"published: {row.model} {_mark(row.source, sources)}"
    return [label, row.network, "-", "-", *cells]


def _mark(source: str, sources: Sequence[str]) -> str:
    return f"[{sources.index(source) + 1}]"


def epoch_table(found: Reproduction) -> Table:
    """Validation perplexity after each epoch, a column for each run."""
    columns = {
        run.name: {point.epoch: point.valid for point in run.summary.points} for run in found.runs
    }
    epochs = sorted({epoch for column in columns.values() for epoch in column})
    rows = [
        [str(epoch), *(perplexity_text(column.get(epoch)) for column in columns.values())]
        for epoch in epochs
    ]
    notes = ["perplexity on the validation text in 20 parts, with the mean weights"]
    header = ["epoch", *columns]
    return Table(header, rows, notes=notes)


def first_epoch_table(found: Reproduction) -> Table:
    """Perplexity after one epoch beside the paper's, which is for medium size only."""
    rows = [
        [
            run.name,
            perplexity_text(run.summary.points[0].valid),
            f"{FIRST_EPOCH[run.summary.method]:g}" if run.summary.method in FIRST_EPOCH else "-",
        ]
        for run in found.runs
        if found.size == "medium" and run.summary.points and run.summary.points[0].epoch == 1
    ]
    notes = ["ours: on the validation text, with the mean weights; the paper names no text"]
    header = ["run", "after epoch 1", "published"]
    return Table(header, rows, ("run",), notes)


def gap_table(found: Reproduction) -> Table:
    """The entropy gap to the reversed test text."""
    rows = [
        [
            run.name,
            draws_text(level.samples),
            number_text(level.nll),
            number_text(level.nll - level.entropy),
            number_text(level.gap),
            number_text(level.scaled_gap),
            GAPS.get((run.summary.method, level.samples), "-"),
        ]
        for run in found.runs
        for level in run.gaps
    ]
    notes = [
        "test text, nats a word; NLL-H: above 0 the run is too sure of itself; gap: mean entropy "
        "of the prediction on the reversed text minus that on the text itself, wider is better",
        "a flatter model widens the gap for free: gap at T is the gap with the temperature that "
        f"suits the validation text best; published: {PAPER.partition(',')[0]}, medium size",
    ]
    header = ["run", "draws", "NLL", "NLL-H", "gap", "gap at T", "gap, published"]
    return Table(header, rows, ("run",), notes)


def pruning_table(found: Reproduction) -> Table:
    """What dropping four fifths of the weights costs, and how many cost 1%."""
    rows = [
        [
            run.name,
            perplexity_text(run.pruning.curve.get(0.0)),
            perplexity_text(run.pruning.by_ratio.get(PRUNED_SHARE)),
            perplexity_text(run.pruning.by_magnitude.get(PRUNED_SHARE)),
            f"{run.pruning.within[0]:.1%}",
        ]
        for run in found.runs
        if run.pruning is not None
    ]
    share = f"{PRUNED_SHARE:.0%}"
    header = ["run", "all weights", f"{share} dropped", f"{share} by magnitude", "share within 1%"]
    notes = [
        "perplexity on the validation text in 20 parts; dropped: lowest |mean| / sigma first, or "
        "smallest weights first; within 1%: the largest share that costs at most 1% in perplexity, "
        "by magnitude where there is no sigma",
        f"published: about {share} can go with little loss ({PAPER.partition(',')[0]}, medium)",
    ]
    return Table(header, rows, ("run",), notes)


def speed_table(found: Reproduction) -> Table:
    """Training speed against plain training."""
    rows = [
        [
            method,
            f"{speed.ratio:.2f}x",
            f"{speed.memory_ratio:.2f}x",
            f"{SPEEDS[method]:g}x" if method in SPEEDS else "-",
        ]
        for method, speed in found.speeds.items()
    ]
    notes = [
        "training at medium size on the processor, against plain training on the same machine in "
        "the same run"
    ]
    header = ["method", "speed", "memory", "speed, published"]
    return Table(header, rows, ("method",), notes)
