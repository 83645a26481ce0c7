"""Results on Penn Treebank as charts, as a Markdown file and as a page."""

from collections.abc import Callable, Sequence

from markupsafe import Markup

from bayesrnn.report.axes import share_axis, value_axis
from bayesrnn.report.chart import Series, draws_chart, line_chart
from bayesrnn.report.page import Section, code, document, notes
from bayesrnn.report.table import Table, markdown_lines
from bayesrnn.runs.compare import curves, run_settings
from bayesrnn.studies.reproduce.published import PRUNED_SHARE
from bayesrnn.studies.reproduce.results import GapLevel, ReproducedRun, Reproduction
from bayesrnn.studies.reproduce.tables import (
    epoch_table,
    first_epoch_table,
    gap_table,
    pruning_table,
    results_table,
    speed_table,
)


def reproduction_charts(found: Reproduction) -> dict[str, Markup]:
    """SVG pictures by the name of their file; those for which something was measured."""
    runs = found.runs
    charts: dict[str, Markup] = {}
    if any(run.summary.points for run in runs):
        charts["curves.svg"] = curves([run.summary for run in runs])
    if any(run.gaps for run in runs):
        title = "Entropy gap, reversed test text"
        charts["entropy-gap.svg"] = _by_draws(runs, title, "gap (nats)", lambda level: level.gap)
        title = "Negative log-likelihood, test text"
        charts["likelihood.svg"] = _by_draws(runs, title, "NLL (nats)", lambda level: level.nll)
    if any(run.pruning is not None for run in runs):
        charts["pruning.svg"] = _pruning(runs)
    return charts


def _by_draws(
    runs: Sequence[ReproducedRun], title: str, label: str, metric: Callable[[GapLevel], float]
) -> Markup:
    """A metric against the number of draws."""
    lines = [
        Series.by_draws(run.name, ((level.samples, metric(level)) for level in run.gaps))
        for run in runs
    ]
    return draws_chart(lines, title, y_label=label, height=320)


def _pruning(runs: Sequence[ReproducedRun]) -> Markup:
    """Perplexity by the share that is dropped; hollow marks are 1% above the full network.

    Weights are ranked by |mean| / sigma, or by their size where there is no sigma.
    """
    pruned = [(run.name, run.pruning) for run in runs if run.pruning is not None]
    values = [v for _, found in pruned for v in found.curve.values() if v is not None]
    series = [Series(name, list(found.curve.items())) for name, found in pruned]
    series += [Series(name, [found.within], dashed=True) for name, found in pruned]
    edge = [(PRUNED_SHARE, one(values)) for one in (min, max) if values]
    return line_chart(
        [*series, Series(f"{PRUNED_SHARE:.0%} dropped", edge)],
        "Perplexity without the lowest-ranked weights, validation text",
        "share of the weights dropped",
        "perplexity",
        x=share_axis,
        y=value_axis,
        solid="by share",
        dashed="+1%",
        empty="nothing measured",
    )


def reproduction_markdown(found: Reproduction) -> str:
    """The tables, charts and notes as a Markdown file.

    It shows the pictures of `reproduction_charts`, which are to be files in the same folder.
    """
    parts = [f"# {_title(found)}\n", f"    {found.command}\n", results_table(found).markdown()]
    for title, lines in _lists(found):
        items = [f"{markdown_lines(line, '- ')}\n" for line in lines]
        parts.append(f"## {title}\n\n{''.join(items)}")
    charts = reproduction_charts(found)
    for title, table, names in _tables(found):
        pictures = [f"![{title}]({name})\n" for name in names if name in charts]
        parts += [f"## {title}\n", *pictures, table.markdown()]
    settings = [f"{markdown_lines(_settings_text(run), '- ')}\n" for run in found.runs]
    made = f"{markdown_lines(f'Written by {found.made_with}.')}\n"
    return "\n".join([*parts, f"## Settings\n\n{''.join(settings)}", made])


def reproduction_page(found: Reproduction) -> str:
    """The same as one HTML file, pictures included; it needs no other file."""
    charts = reproduction_charts(found)
    made = notes([f"Written by {found.made_with}."])
    sections = [Section("Results", results_table(found), code([found.command]))]
    sections += [Section(title, lines) for title, lines in _lists(found)]
    for title, table, names in _tables(found):
        pictures = [charts[name] for name in names if name in charts]
        sections.append(Section(title, *pictures, table))
    settings = run_settings([run.summary for run in found.runs])
    sections.append(Section("Settings, and how to run it again", settings, made))
    return document(_title(found), sections)


def _title(found: Reproduction) -> str:
    return f"Penn Treebank, size {found.size}: ours and published"


def _tables(found: Reproduction) -> list[tuple[str, Table, tuple[str, ...]]]:
    """Titles, tables and the charts above them; those for which something was measured."""
    gap_charts = ("entropy-gap.svg", "likelihood.svg")
    tables: list[tuple[str, Table, tuple[str, ...]]] = [
        ("Learning curves", epoch_table(found), ("curves.svg",)),
        ("After one epoch", first_epoch_table(found), ()),
        ("Entropy gap to the reversed test text", gap_table(found), gap_charts),
        ("Dropping weights", pruning_table(found), ("pruning.svg",)),
        ("Speed of training", speed_table(found), ()),
    ]
    return [one for one in tables if one[1].rows]


def _lists(found: Reproduction) -> list[tuple[str, list[str]]]:
    """Titles and lines; those for which there is something to say."""
    published = _grouped(found.runs, lambda run: run.unlike_published)
    asked = _grouped(found.runs, lambda run: run.unlike_asked)
    lists = [
        ("What differs from the published set-up", published),
        ("Runs with other settings than asked for", asked),
        ("Not measured", [f"left out: {', '.join(found.skipped)}"] * bool(found.skipped)),
    ]
    return [(title, lines) for title, lines in lists if lines]


def _grouped(
    runs: Sequence[ReproducedRun], lines: Callable[[ReproducedRun], tuple[str, ...]]
) -> list[str]:
    """A line for each group of runs that have the same lines."""
    names: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        if lines(run):
            names.setdefault(lines(run), []).append(run.name)
    return [f"{', '.join(who)}: {'; '.join(same)}" for same, who in names.items()]


def _settings_text(run: ReproducedRun) -> str:
    summary = run.summary
    done = f"{summary.epochs_done} of {summary.epochs_planned} epochs done"
    return f"{run.name}: {summary.method}, {summary.network}, {summary.settings}; {done}"
