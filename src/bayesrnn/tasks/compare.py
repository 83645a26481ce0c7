"""Compare runs: a table for the terminal, and one page with curves."""

from collections.abc import Sequence
from pathlib import Path

from bayesrnn.errors import ConfigError
from bayesrnn.report import (
    Section,
    comparable_groups,
    comparison_page,
    comparison_table,
    curves,
    read_summary,
)
from bayesrnn.tasks.caption_comparison import compare_captions
from bayesrnn.tasks.output import write_text


def compare(runs: Sequence[Path], out: Path | None = None, sections: Sequence[Section] = ()) -> str:
    """The comparison as text; with `out` also as a page, or the chart alone if it ends in .svg."""
    if not runs:
        raise ConfigError("no run was given to compare; give the folders of one or more runs")
    for run in runs:
        if run.is_file():
            raise ConfigError(f"{run} is a file; compare takes the folders of runs")
    summaries = [read_summary(run) for run in runs]
    said = compare_captions(summaries)
    if said is not None:
        sections = [Section("What was said of images", said.html()), *sections]
    if out is not None:
        chart = out.suffix.lower() == ".svg"
        if chart and len(comparable_groups(summaries)) > 1:
            raise ConfigError(
                f"--out is {out}, but these runs are on different data or vocabularies and do not "
                "belong in one chart; give runs of one kind, or an .html file"
            )
        text = curves(summaries) if chart else comparison_page(summaries, sections)
        write_text(text, out)
    tables = [comparison_table(summaries), *([] if said is None else [said])]
    return "\n".join(table.text() for table in tables)
