"""Tables for the terminal, for Markdown and for a page, and the table that compares runs."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from bayesrnn.errors import RunError
from bayesrnn.report.summaries import RunSummary
from bayesrnn.report.words import cells, escaped, printable, shortened

Align = Literal["left", "right"]

_GAP = "  "
_NARROWEST = 6

#: The columns of results on the test set, by way of prediction, with what has to be said of them.
_TEST_COLUMNS = {
    "mean": ("test", ""),
    "samples": ("draws", "test, probabilities averaged over that many draws of the network"),
    "dynamic-sgd": ("dyn. sgd", "test, dynamic evaluation: it learns from the text that it reads"),
    "dynamic-rms": ("dyn. rms", "as dyn. sgd, by the rule of Krause et al. 2018"),
    "bound": (
        "bound",
        "test, at most: by networks that saw the targets, and the KL that pays",
    ),
}


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; `best` holds the (row, column) of cells to mark with `*`."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    aligns: Sequence[Align]
    notes: Sequence[str] = ()
    best: frozenset[tuple[int, int]] = field(default_factory=frozenset)

    def text(self, width: int = 100) -> str:
        """For a terminal; the widest columns of words are shortened until it fits in `width`."""
        lines = [[printable(cell) for cell in row] for row in (self.header, *self._marked())]
        widths = self._widths(lines, width)
        made = [
            _GAP.join(
                _padded(shortened(cell, column), column, align)
                for cell, column, align in zip(line, widths, self.aligns, strict=True)
            ).rstrip()
            for line in lines
        ]
        rule = _GAP.join("-" * column for column in widths)
        notes = [part for note in self.notes for part in _wrapped(printable(note), width)]
        return "\n".join([made[0], rule, *made[1:], *([""] if notes else []), *notes]) + "\n"

    def markdown(self) -> str:
        """For a Markdown file, with the notes below."""
        rules = ["---:" if align == "right" else ":---" for align in self.aligns]
        lines = [self.header, rules, *self._marked()]
        made = [
            f"| {' | '.join(map(str, line) if line is rules else map(markdown_text, line))} |"
            for line in lines
        ]
        return "\n".join([*made, *(f"\n{markdown_text(note)}" for note in self.notes)]) + "\n"

    def html(self) -> str:
        """For a page."""
        head = "".join(
            f'<th scope="col" class="{align}">{escaped(cell)}</th>'
            for cell, align in zip(self.header, self.aligns, strict=True)
        )
        body = "\n".join(
            f"<tr>{''.join(self._html_cell(cell, row, c) for c, cell in enumerate(line))}</tr>"
            for row, line in enumerate(self._marked())
        )
        notes = "".join(f'\n<p class="note">{escaped(note)}</p>' for note in self.notes)
        table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        return f'<div class="wide">\n{table}\n</div>{notes}\n'

    def _marked(self) -> list[list[str]]:
        return [
            ["*" + cell if (r, c) in self.best else cell for c, cell in enumerate(row)]
            for r, row in enumerate(self.rows)
        ]

    def _html_cell(self, cell: str, row: int, column: int) -> str:
        best = " best" if (row, column) in self.best else ""
        return f'<td class="{self.aligns[column]}{best}">{escaped(cell)}</td>'

    def _widths(self, lines: Sequence[Sequence[str]], width: int) -> list[int]:
        widths = [max(map(cells, column)) for column in zip(*lines, strict=True)]
        words = [c for c, align in enumerate(self.aligns) if align == "left"]
        while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
            widest = max(words, key=lambda column: widths[column], default=None)
            if widest is None or widths[widest] <= _NARROWEST:
                break
            widths[widest] -= 1
        return widths


def comparison_table(summaries: Sequence[RunSummary]) -> Table:
    """One line per run, in the order given, with the best validation figure marked."""
    if not summaries:
        raise RunError("there are no runs to compare; give at least one run directory")
    names = distinct_names(summaries)
    header = ["run", "method", "network", "epochs", "train", "valid"]
    rows = [
        [
            name,
            summary.method,
            summary.network,
            f"{summary.epochs_done}/{summary.epochs_planned}",
            summary.measure.text(summary.best.train if summary.best else None),
            summary.measure.text(summary.best_valid),
        ]
        for name, summary in zip(names, summaries, strict=True)
    ]
    measures = dict.fromkeys(summary.measure.shown for summary in summaries)
    notes = [
        f"{', '.join(measures)}; valid: best epoch, with the mean of the weights; "
        f"train: same epoch, {', '.join(dict.fromkeys(s.measure.train for s in summaries))}"
    ]
    for inference, (title, note) in _TEST_COLUMNS.items():
        found = [summary.result("test", inference) for summary in summaries]
        if any(found):
            header.append(title)
            for row, summary, result in zip(rows, summaries, found, strict=True):
                shown = summary.measure.text(summary.figure(result)) if result else "-"
                draws = f" ({result['samples']})" if result and inference == "samples" else ""
                row.append(shown + draws)
            if note:
                notes.append(f"{title}: {note}")
    units = {summary.unit for summary in summaries}
    header.append("items/s" if len(units) > 1 else f"{units.pop()}/s")
    for row, summary in zip(rows, summaries, strict=True):
        speed = summary.items_per_second
        row.append("-" if speed is None else f"{speed:,.0f}")
    aligns: list[Align] = ["left" if place < 3 else "right" for place in range(len(header))]
    best = _best(summaries)
    if best:
        notes.insert(0, "* best on the validation set")
    notes += [*_stale_notes(names, summaries), *_corpus_notes(names, summaries)]
    column = header.index("valid")
    return Table(header, rows, aligns, notes, frozenset((row, column) for row in best))


class Named(Protocol):
    """What has the name of a run's folder, and its path."""

    @property
    def name(self) -> str:
        """The name of the folder."""

    @property
    def path(self) -> Path | str:
        """The whole path."""


def distinct_names(runs: Sequence[Named]) -> list[str]:
    """The names of the runs' folders; their whole paths where several have the same name.

    A run that is there several times is numbered.
    """
    names = [run.name for run in runs]
    paths = [r.name if names.count(r.name) == 1 else str(r.path) for r in runs]
    return [
        path if path not in paths[:place] else f"{path} ({paths[:place].count(path) + 1})"
        for place, path in enumerate(paths)
    ]


def comparable_groups(summaries: Sequence[RunSummary]) -> list[list[int]]:
    """The places of the runs that solve the same problem: same data, same vocabulary."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, summary in enumerate(summaries):
        groups.setdefault((summary.data, summary.vocabulary), []).append(place)
    return list(groups.values())


def _best(summaries: Sequence[RunSummary]) -> set[int]:
    """The best run of every group in which there is a choice."""
    best = set()
    for group in comparable_groups(summaries):
        values = {run: v for run in group if (v := summaries[run].best_valid) is not None}
        if len(values) > 1:
            best |= {run for run, value in values.items() if value == min(values.values())}
    return best


def _corpus_notes(names: Sequence[str], summaries: Sequence[RunSummary]) -> list[str]:
    groups = comparable_groups(summaries)
    if len(groups) == 1:
        return []
    parts = [
        f"{summaries[group[0]].data} ({', '.join(names[i] for i in group)})" for group in groups
    ]
    return [
        "the runs are on different data or vocabularies, and can be compared only within one: "
        f"{'; '.join(parts)}"
    ]


def _stale_notes(names: Sequence[str], summaries: Sequence[RunSummary]) -> list[str]:
    """Results that were found at another moment than the best epoch of today."""
    stale = [
        name
        for name, summary in zip(names, summaries, strict=True)
        for result in (summary.result("test", inference) for inference in _TEST_COLUMNS)
        if result and summary.best and result.get("step", summary.best.step) != summary.best.step
    ]
    if not stale:
        return []
    return [
        f"not measured at the best epoch: test of {', '.join(dict.fromkeys(stale))}; "
        "run `bayesrnn evaluate` again"
    ]


def _padded(text: str, width: int, align: Align) -> str:
    space = " " * (width - cells(text))
    return space + text if align == "right" else text + space


def _wrapped(text: str, width: int) -> list[str]:
    """The text in lines; those are half as long where characters are wide."""
    wide = any(cells(character) > 1 for character in text)
    return textwrap.wrap(text, width // 2 if wide else width, break_on_hyphens=False)


def markdown_text(text: str) -> str:
    """The text for a Markdown file, with no sign that would be taken as an order."""
    return re.sub(r"([\\`*_{}\[\]<>|#~&])", r"\\\1", printable(text))
