"""A search as a page: what was best, how it was found, and what mattered."""

import math
import shlex
from collections.abc import Sequence
from itertools import accumulate

from bayesrnn.report.axes import value_axis
from bayesrnn.report.bars import bar_chart
from bayesrnn.report.chart import Chart, Series, line_chart
from bayesrnn.report.page import Section, code, document, notes
from bayesrnn.report.parallel import ParallelAxis, ParallelLine, parallel_chart
from bayesrnn.report.text import counted
from bayesrnn.runs.places import data_name
from bayesrnn.studies.search.findings import (
    DIGITS,
    Findings,
    Trial,
    best_sentence,
    trials_table,
)
from bayesrnn.studies.search.record import COMPLETE
from bayesrnn.studies.search.space import Dimension, params_text, value_text

#: The share of the trials that are drawn as good ones.
_GOOD = 0.2


def search_page(found: Findings, command: str) -> str:
    """Everything that is known of a search; it needs no other file."""
    settings = found.settings
    said = [best_sentence(found), f"{found.counts()}."]
    if found.best is not None:
        said.append(f"Its settings: {params_text(found.best.record.params, found.names)}.")
    again = shlex.join(
        ["bayesrnn", "train", settings.task.name, "--config", str(found.folder / "best.toml")]
    )
    config = settings.task.resolve(settings.trial_options({}))
    what = data_name(getattr(config, settings.task.data_key))
    return document(
        f"Search over runs of {settings.task.name} by {config.method}: {what}",
        [
            Section("In short", *said, code([again])),
            Section("The best so far", best_chart(found)),
            Section("What mattered", importance_chart(found), notes([_IMPORTANCE])),
            Section("All settings", settings_chart(found), notes(_axes_notes(found))),
            Section("Trials", trials_table(found)),
            Section(
                "How to go on",
                "The same command joins in from any machine that sees the folder.",
                code([command]),
            ),
        ],
    )


_IMPORTANCE = (
    "By PED-ANOVA (Watanabe et al. 2023): how unlike the values of the best trials are to those of "
    "all trials. It knows no cause, and with few trials it is little more than chance."
)


def best_chart(found: Findings) -> Chart:
    """The loss of each trial, and the lowest so far."""
    known = {
        one.record.number: one.record.value
        for one in found.trials
        if one.record.state == COMPLETE and one.record.value is not None
    }
    lowest = list(zip(known, accumulate(known.values(), min), strict=True))
    # Trials stand for themselves: no line joins two of them.
    trials = [point for number, loss in known.items() for point in ((number, loss), (number, None))]
    return line_chart(
        [Series("best so far", lowest), Series("trial", trials)],
        "Validation loss by trial",
        "trial",
        "loss (nats)",
        y=value_axis,
        height=340,
        empty="no trial has been trained to its end yet",
    )


def importance_chart(found: Findings) -> Chart:
    """The share of each option."""
    return bar_chart(
        found.importances,
        "Importance of each option",
        empty="it takes five trials that were trained to their end, and that differ",
    )


def settings_chart(found: Findings) -> Chart:
    """A line for each trial over all options, ending in its loss."""
    whole = sorted(
        (one for one in found.trials if one.record.state == COMPLETE),
        key=lambda one: one.record.value or 0.0,
    )
    dimensions = found.settings.space.dimensions
    losses = [one.record.value for one in whole if one.record.value is not None]
    low, high = (min(losses), max(losses)) if losses else (0.0, 1.0)
    span = high - low or 1.0
    axes = [ParallelAxis(one.name, _ticks(one)) for one in dimensions]
    ends = [(0.0, f"{low:.{DIGITS}f}"), (1.0, f"{high:.{DIGITS}f}")] if losses else []
    axes.append(ParallelAxis("loss", ends))
    good = max(1, math.ceil(_GOOD * len(whole)))
    lines = [
        ParallelLine(
            [*_places(dimensions, one), (loss - low) / span],
            f"trial {one.record.number}: {params_text(one.record.params)}; loss {loss:.{DIGITS}f}",
            rank=0 if place == 0 else 1 if place < good else 2,
        )
        for place, (one, loss) in enumerate(zip(whole, losses, strict=True))
    ]
    title = f"Settings of {counted(len(whole), 'trial')}"
    return parallel_chart(axes, lines, title, ("best", "best fifth", "others"))


def _axes_notes(found: Findings) -> list[str]:
    """Which axes are not even."""
    names = [one.name for one in found.settings.space.dimensions if one.log]
    return [f"Axes by their logarithm: {', '.join(names)}."] if names else []


def _places(dimensions: Sequence[Dimension], trial: Trial) -> list[float]:
    """Where a trial is on each axis; what somebody put into the queue may lie outside."""
    return [min(max(one.place(trial.record.params[one.name]), 0.0), 1.0) for one in dimensions]


def _ticks(dimension: Dimension) -> list[tuple[float, str]]:
    """The choices, or both ends and the middle."""
    if dimension.choices:
        return [(dimension.place(value), value_text(value)) for value in dimension.choices]
    assert dimension.low is not None
    assert dimension.high is not None
    low, high = dimension.low, dimension.high
    middle = math.sqrt(low * high) if dimension.log else (low + high) / 2
    return [(dimension.place(value), f"{value:.3g}") for value in (low, middle, high)]
