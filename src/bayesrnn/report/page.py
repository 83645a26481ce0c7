"""The page that compares runs."""

import shlex
from collections.abc import Sequence

from bayesrnn.report.charts import Series, line_chart
from bayesrnn.report.document import Section, document
from bayesrnn.report.summaries import RunSummary
from bayesrnn.report.tables import comparable_groups, comparison_table, distinct_names
from bayesrnn.report.words import escaped


def comparison_page(summaries: Sequence[RunSummary], sections: Sequence[Section] = ()) -> str:
    """The runs side by side: table, learning curves, `sections`, settings, how to run them again.

    Runs that cannot be compared with each other have charts of their own.
    """
    table = comparison_table(summaries).html()
    groups = comparable_groups(summaries)
    parts = [
        Section("Results", table),
        Section("Learning curves", "".join(curves([summaries[i] for i in g]) for g in groups)),
        *sections,
        Section("Settings, and how to run it again", run_settings(summaries)),
    ]
    corpora = ", ".join(dict.fromkeys(summary.data for summary in summaries))
    runs = "1 run" if len(summaries) == 1 else f"{len(summaries)} runs"
    return document(f"{runs} on {corpora}", parts)


def curves(summaries: Sequence[RunSummary]) -> str:
    """Perplexity or error by epoch as one SVG picture: validation solid, train dashed.

    The runs have to solve the same problem.
    """
    corpora = ", ".join(dict.fromkeys(summary.data for summary in summaries))
    series = [
        Series(name, [(point.epoch, getattr(point, split)) for point in summary.points], dashed)
        for name, summary in zip(distinct_names(summaries), summaries, strict=True)
        for split, dashed in (("valid", False), ("train", True))
    ]
    shown = summaries[0].measure.shown if summaries else "perplexity"
    title = f"{shown[0].upper()}{shown[1:]} by epoch: {corpora}"
    return line_chart(series, title, "epoch", shown)


def run_settings(summaries: Sequence[RunSummary]) -> str:
    """What each run was trained with, and the command that trains it again, as HTML."""
    parts = []
    for name, summary in zip(distinct_names(summaries), summaries, strict=True):
        config = str(summary.path / "config.toml")
        again = ["--config", config, "--out", f"{summary.path}-again"]
        command = shlex.join(["bayesrnn", "train", summary.task, *again])
        best = (
            f"; best validation {summary.measure.shown} {summary.measure.text(summary.best_valid)} "
            f"at epoch {summary.best_epoch}"
            if summary.best
            else "; no epoch with a validation figure yet"
        )
        said = f"{summary.data}, {summary.method}, {summary.network}, {summary.settings}{best}"
        lines = "\n".join(map(escaped, summary.config_text.splitlines()))
        parts.append(
            f"<h3>{escaped(name)}</h3>\n<p>{escaped(said)}</p>\n"
            f"<pre><code>{escaped(command)}</code></pre>\n"
            f"<details><summary>config.toml</summary>\n<pre><code>{lines}</code></pre></details>\n"
        )
    return "".join(parts)
