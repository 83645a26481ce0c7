"""The uncertainty of forecasters, in tables for the terminal and for a page."""

from collections.abc import Iterator, Sequence
from typing import Final

from markupsafe import Markup

from bayesrnn.report.axes import share_axis
from bayesrnn.report.chart import Reference, Series, line_chart
from bayesrnn.report.page import Section, document, entries, notes
from bayesrnn.report.table import Table, distinct_names, titled_text
from bayesrnn.report.text import counted, draws_text, interval_text, number_text
from bayesrnn.tasks.forecast.uncertainty_results import (
    BY_HISTORY,
    BY_NOVELTY,
    BY_SERIES,
    BY_STEP,
    ForecastGroup,
    ForecastLevel,
    ForecastUncertainty,
)

#: By table: its title, that of its column of groups, and what it shows.
_TABLES: Final = {
    BY_STEP: (
        "How far ahead",
        "steps",
        "Doubt should grow with the steps as errors do, so that what intervals hold stays the "
        "same. The chart has every step.",
    ),
    BY_HISTORY: (
        "How much of the past is known",
        "history",
        "The same windows, forecast from the last values before them alone, as of a series that "
        "began only then. A network that knows what it does not know has wider intervals and more "
        "epistemic doubt there, and holds as much.",
    ),
    BY_NOVELTY: (
        "How unlike their past windows begin",
        "novelty",
        "Novelty is the share of earlier windows whose level, scale, trend and seasonal difference "
        "were less unusual than those of the last values before the forecast. The share of doubt "
        "about the model does not show such a shift by itself.",
    ),
    BY_SERIES: (
        "Series that were trained on, and others",
        "series",
        "Series that no network has learnt from are named by their file (--shift).",
    ),
}
_NOTES: Final = (
    "n% holds: the share of values inside that interval, which should be n%, with draws as they "
    "were trained; calibrated: the same two, widened or narrowed as `bayesrnn forecast` does it; "
    "in brackets: 95% of the resamples of series and windows",
    "MASE and width (of the 80% interval): in units of the mean seasonal difference of a window's "
    "past; model: the share of the variance that is about the model and would shrink with data",
)


def forecast_uncertainty_text(runs: Sequence[ForecastUncertainty]) -> str:
    """The tables for a terminal."""
    last = list(_TABLES)[-1]
    return titled_text(
        [
            (title, group_table(runs, name, _NOTES * (name == last)))
            for name, (title, _, _) in _TABLES.items()
        ]
    )


def group_table(runs: Sequence[ForecastUncertainty], name: str, below: Sequence[str] = ()) -> Table:
    """A row for each group of values of each run, by the mean network and by draws."""
    rows = [
        [
            run,
            draws_text(level.samples),
            group.name,
            f"{group.windows:,}",
            number_text(group.mase.value),
            *_held(group),
            number_text(group.width, 2),
            "-" if group.epistemic_share is None else f"{group.epistemic_share:.0%}",
        ]
        for run, level in _levels(runs)
        for group in level.of(name)
    ]
    titles = ("80% holds", "95%", "calibrated")
    header = ["run", "draws", _TABLES[name][1], "windows", "MASE", *titles, "width", "model"]
    return Table(header, rows, ("run", _TABLES[name][1]), below)


def _held(group: ForecastGroup) -> list[str]:
    """What intervals of 80 and 95% hold, as they are, with how far chance moves the first."""
    raw, calibrated = group.coverage, group.calibrated
    both = ", ".join(number_text(held.value, 2) for held in calibrated.values())
    return [interval_text(*raw["80"], digits=2), number_text(raw["95"].value, 2), both or "-"]


def forecast_uncertainty_page(runs: Sequence[ForecastUncertainty]) -> str:
    """One HTML file: the tables, coverage by step, settings."""
    sections = [
        Section(title, about, group_table(runs, name), *([_chart(runs)] * (name == BY_STEP)))
        for name, (title, _, about) in _TABLES.items()
    ]
    sections.append(Section("Columns", notes(_NOTES)))
    sections.append(Section("Settings", entries(_settings(runs))))
    data = ", ".join(dict.fromkeys(run.data for run in runs))
    return document(f"Uncertainty of {counted(len(runs), 'forecaster')} of {data}", sections)


def _chart(runs: Sequence[ForecastUncertainty]) -> Markup:
    """What intervals hold at every step, by the most draws of each run."""
    lines = [
        Series(
            name,
            list(enumerate(run.levels[-1].coverage_by_step.get(level, ()), start=1)),
            dashed=level == "95",
        )
        for name, run in zip(distinct_names(runs), runs, strict=True)
        for level in ("80", "95")
    ]
    return line_chart(
        lines,
        "What intervals hold by step, the most draws of each run",
        "step of the horizon",
        "share of values inside",
        y=share_axis,
        references=[Reference.level("80%", 0.8), Reference.level("95%", 0.95)],
        solid="80%",
        dashed="95%",
        empty="no values",
    )


def _levels(runs: Sequence[ForecastUncertainty]) -> Iterator[tuple[str, ForecastLevel]]:
    named = zip(distinct_names(runs), runs, strict=True)
    return ((name, level) for name, run in named for level in run.levels)


def _settings(runs: Sequence[ForecastUncertainty]) -> Iterator[tuple[str, str, str]]:
    """The name of each run, what it is, and how it was measured."""
    for name, run in zip(distinct_names(runs), runs, strict=True):
        draws = ", ".join(str(level.samples or "mean network") for level in run.levels)
        yield (
            name,
            f"{run.data}, {run.method}, {run.settings}",
            f"{run.path} at step {run.step:,}; {run.split} windows of {run.horizon} values, season "
            f"{run.season}; draws: {draws}; seed {run.seed} of the measurement; "
            f"{run.bootstrap:,} resamples",
        )
