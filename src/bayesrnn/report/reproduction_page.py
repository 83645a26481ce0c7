"""Results on Penn Treebank as one page and as one Markdown file."""

from collections.abc import Callable, Sequence

from bayesrnn.report.document import Section, document
from bayesrnn.report.page import run_settings
from bayesrnn.report.reproduction import ReproducedRun, Reproduction
from bayesrnn.report.reproduction_charts import reproduction_charts
from bayesrnn.report.reproduction_tables import (
    epoch_table,
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
    """The tables and what has to be said with them, as a Markdown file.

    It shows the pictures of `reproduction_charts`, which are to be files in the same folder.
    """
    parts = [f"# {_title(found)}\n", f"    {found.command}\n", results_table(found).markdown()]
    for title, lines in _lists(found):
        parts.append(f"## {title}\n\n" + "".join(f"- {markdown_text(line)}\n" for line in lines))
    charts = reproduction_charts(found)
    for title, table in _tables(found):
        pictures = [f"![{title}]({name})\n" for name in _CHARTS.get(title, ()) if name in charts]
        parts += [f"## {title}\n", *pictures, table.markdown()]
    settings = [f"- {markdown_text(_said(run))}\n" for run in found.runs]
    made = f"Written by {markdown_text(found.made_with)}.\n"
    return "\n".join([*parts, f"## Settings\n\n{''.join(settings)}", made])


def reproduction_page(found: Reproduction) -> str:
    """The same as one HTML file, pictures included; it needs no other file."""
    summaries = [run.summary for run in found.runs]
    command = f"<pre><code>{escaped(found.command)}</code></pre>\n"
    charts = reproduction_charts(found)
    sections = [
        Section("Results", results_table(found).html() + command),
        *(Section(title, _html_list(lines)) for title, lines in _lists(found)),
    ]
    for title, table in _tables(found):
        pictures = "".join(charts.get(name, "") for name in _CHARTS.get(title, ()))
        sections.append(Section(title, pictures + table.html()))
    made = f'<p class="note">Written by {escaped(found.made_with)}.</p>\n'
    settings = Section("Settings, and how to run it again", run_settings(summaries) + made)
    return document(_title(found), [*sections, settings])


_CURVES = "Learning curves"
_GAP = "Entropy gap to the reversed test text"
_PRUNING = "Dropping weights"

#: The charts that belong to a table, by its title.
_CHARTS = {
    _CURVES: ("curves.svg",),
    _GAP: ("entropy-gap.svg", "likelihood.svg"),
    _PRUNING: ("pruning.svg",),
}


def _title(found: Reproduction) -> str:
    return f"Penn Treebank, size {found.size}: ours and published"


def _tables(found: Reproduction) -> list[tuple[str, Table]]:
    """Titles and tables beside the results; those for which there are figures."""
    tables = {
        _CURVES: epoch_table(found),
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
