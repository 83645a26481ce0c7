"""Compare runs: a table for the terminal, and one page with curves."""

from collections.abc import Sequence
from pathlib import Path

from bayesrnn.errors import ConfigError, RunError
from bayesrnn.report import Section, comparison_page, comparison_table, read_summary


def compare(runs: Sequence[Path], out: Path | None = None, sections: Sequence[Section] = ()) -> str:
    """The comparison as text; with `out` also as a page."""
    if not runs:
        raise ConfigError("no run was given to compare; give the folders of one or more runs")
    summaries = [read_summary(run) for run in runs]
    if out is not None:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(comparison_page(summaries, sections), encoding="utf-8")
        except OSError as error:
            raise RunError(f"cannot write {out}: {error.strerror}") from error
    return comparison_table(summaries).text()
