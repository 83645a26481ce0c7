"""The page that compares runs: one HTML file that needs no other."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from bayesrnn.report.charts import Series, line_chart
from bayesrnn.report.marks import DARK_STYLE
from bayesrnn.report.summaries import RunSummary
from bayesrnn.report.tables import comparable_groups, comparison_table, distinct_names
from bayesrnn.report.words import escaped, perplexity_text

_STYLE = f"""
:root {{ color-scheme: light dark; --ink: #23282d; --faint: #5c656d; --line: #d9dde1;
  --paper: #ffffff; --shade: #f3f5f7; --mark: #ffe9a8; }}
body {{ margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: var(--ink);
  background: var(--paper); font: 16px/1.5 system-ui, sans-serif; }}
h1 {{ font-size: 1.6rem; }} h2 {{ font-size: 1.2rem; margin-top: 2.2rem; }}
h3 {{ font-size: 1rem; margin: 1.4rem 0 0; overflow-wrap: anywhere; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 0.93rem; }}
th, td {{ padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--line); }}
td {{ white-space: nowrap; }}
.left {{ text-align: left; }} .right {{ text-align: right; font-variant-numeric: tabular-nums; }}
.left:first-child {{ white-space: normal; overflow-wrap: anywhere; min-width: 6rem; }}
.best {{ font-weight: 700; }}
.note {{ color: var(--faint); font-size: 0.87rem; margin: 0.3rem 0; }}
.chart {{ display: block; max-width: 100%; height: auto; margin: 1rem 0; }}
pre {{ background: var(--shade); padding: 0.6rem 0.8rem; overflow-x: auto; font-size: 0.87rem; }}
mark {{ background: var(--mark); color: inherit; }}
@media (prefers-color-scheme: dark) {{
:root {{ --ink: #e4e7ea; --faint: #9aa4ad; --line: #3a4047; --paper: #15181c; --shade: #1f242a;
  --mark: #6b5300; }}
{DARK_STYLE}
}}
"""


# The page runs no script and fetches nothing, whatever text it shows.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class Section:
    """A further part of the page. The HTML is taken as it is: escape what comes from outside."""

    title: str
    html: str


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
        Section("Settings, and how to run it again", _settings(summaries)),
    ]
    corpora = ", ".join(dict.fromkeys(summary.data for summary in summaries))
    runs = "1 run" if len(summaries) == 1 else f"{len(summaries)} runs"
    body = "\n".join(
        f"<section>\n<h2>{escaped(part.title)}</h2>\n{part.html}</section>" for part in parts
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escaped(f"bayesrnn: {runs} on {corpora}")}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escaped(f"{runs} on {corpora}")}</h1>
{body}
</body>
</html>
"""


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


def _settings(summaries: Sequence[RunSummary]) -> str:
    parts = []
    for name, summary in zip(distinct_names(summaries), summaries, strict=True):
        config = str(summary.path / "config.toml")
        again = ["--config", config, "--out", f"{summary.path}-again"]
        command = shlex.join(["bayesrnn", "train", summary.task, *again])
        best = (
            f"; best validation {summary.measure.shown} {perplexity_text(summary.best_valid)} "
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
