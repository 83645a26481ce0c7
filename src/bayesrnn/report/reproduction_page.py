"""Results on Penn Treebank as one page and as one Markdown file."""

from collections.abc import Callable, Sequence

from bayesrnn.report.axes import draw_axis, even_axis, share_axis, value_axis
from bayesrnn.report.charts import Series, line_chart
from bayesrnn.report.document import Section, document
from bayesrnn.report.page import curves, run_settings
from bayesrnn.report.published import PRUNED_SHARE
from bayesrnn.report.reproduction import GapLevel, ReproducedRun, Reproduction
from bayesrnn.report.reproduction_tables import (
    first_epoch_table,
    gap_table,
    pruning_table,
    results_table,
    speed_table,
)
from bayesrnn.report.tables import Table, markdown_text
from bayesrnn.report.words import escaped

_DIFFERS = "What differs from the published set-up"
_NOT_SO = "Runs with other settings than asked for"


def reproduction_markdown(found: Reproduction) -> str:
    """The tables and what has to be said with them, as a Markdown file."""
    parts = [f"# {_title(found)}\n", f"    {found.command}\n", results_table(found).markdown()]
    for title, lines in _lists(found):
        parts.append(f"## {title}\n\n" + "".join(f"- {markdown_text(line)}\n" for line in lines))
    parts += [f"## {title}\n\n{table.markdown()}" for title, table in _tables(found)]
    settings = [f"- {markdown_text(_said(run))}\n" for run in found.runs]
    return "\n".join([*parts, f"## Settings\n\n{''.join(settings)}"])


def reproduction_page(found: Reproduction) -> str:
    """The same as one HTML file with charts; it needs no other file."""
    summaries = [run.summary for run in found.runs]
    command = f"<pre><code>{escaped(found.command)}</code></pre>\n"
    charts = {_GAP: _gap_charts(found.runs), _PRUNING: _pruning_chart(found.runs)}
    sections = [
        Section("Results", results_table(found).html() + command),
        *(Section(title, _html_list(lines)) for title, lines in _lists(found)),
        Section("Learning curves", curves(summaries)),
        *(Section(title, table.html() + charts.get(title, "")) for title, table in _tables(found)),
        Section("Settings, and how to run it again", run_settings(summaries)),
    ]
    return document(_title(found), sections)


_GAP = "Entropy gap to the reversed test text"
_PRUNING = "Dropping weights"


def _title(found: Reproduction) -> str:
    return f"Penn Treebank, size {found.size}: ours and published"


def _tables(found: Reproduction) -> list[tuple[str, Table]]:
    """Titles and tables beside the results; those for which there are figures."""
    tables = {
        "After one epoch": first_epoch_table(found),
        _GAP: gap_table(found),
        _PRUNING: pruning_table(found),
        "Speed of training": speed_table(found),
    }
    return [(title, table) for title, table in tables.items() if table is not None]


def _lists(found: Reproduction) -> list[tuple[str, list[str]]]:
    """Titles and lines; those for which there is something to say."""
    departures = _same_said(found.runs, lambda run: run.departures)
    asked = _same_said(found.runs, lambda run: run.asked)
    skipped = [f"left out: {', '.join(found.skipped)}"] if found.skipped else []
    lists = [(_DIFFERS, departures), (_NOT_SO, asked), ("Not measured", skipped)]
    return [(title, lines) for title, lines in lists if lines]


def _same_said(
    runs: Sequence[ReproducedRun], lines: Callable[[ReproducedRun], tuple[str, ...]]
) -> list[str]:
    """One line for the runs of which the same is to be said."""
    names: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        if lines(run):
            names.setdefault(lines(run), []).append(run.name)
    return [f"{', '.join(who)}: {'; '.join(said)}" for said, who in names.items()]


def _said(run: ReproducedRun) -> str:
    summary = run.summary
    done = f"{summary.epochs_done} of {run.epochs} epochs done"
    return f"{run.name}: {summary.method}, {summary.network}, {summary.settings}; {done}"


def _html_list(lines: Sequence[str]) -> str:
    return f"<ul>\n{''.join(f'<li>{escaped(line)}</li>' for line in lines)}\n</ul>\n"


def _gap_charts(runs: Sequence[ReproducedRun]) -> str:
    """The gap and the likelihood, both against the number of draws."""

    def chart(title: str, label: str, figure: Callable[[GapLevel], float]) -> str:
        return line_chart(
            [Series(run.name, _by_draws(run.gaps, figure)) for run in runs],
            title,
            "draws",
            label,
            x=draw_axis,
            y=even_axis,
            empty="no figures",
            height=320,
        )

    return chart("Entropy gap, reversed test text", "gap (nats)", lambda level: level.gap) + chart(
        "Negative log-likelihood, test text", "NLL (nats)", lambda level: level.nll
    )


def _by_draws(
    levels: Sequence[GapLevel], figure: Callable[[GapLevel], float]
) -> list[tuple[float, float | None]]:
    """A point for each number of draws; the mean weights (0) are joined to none."""
    points: list[tuple[float, float | None]] = []
    for level in levels:
        points.append((level.samples, figure(level)))
        if level.samples == 0:
            points.append((0, None))
    return points


def _pruning_chart(runs: Sequence[ReproducedRun]) -> str:
    """Perplexity by the share that is dropped; hollow marks are 1% above the full network."""
    pruned = [(run.name, run.pruning) for run in runs if run.pruning is not None]
    values = [v for _, found in pruned for v in found.by_ratio.values() if v is not None]
    if not values:
        return ""
    series = [Series(name, list(found.by_ratio.items())) for name, found in pruned]
    series += [Series(name, [found.within], dashed=True) for name, found in pruned]
    edge = [(PRUNED_SHARE, min(values)), (PRUNED_SHARE, max(values))]
    return line_chart(
        [*series, Series(f"{PRUNED_SHARE:.0%} dropped", edge)],
        "Perplexity without the weights of lowest |mean| / sigma, validation text",
        "share of the weights dropped",
        "perplexity",
        x=share_axis,
        y=value_axis,
        solid="by share",
        dashed="+1%",
        empty="no figures",
    )
