"""Tables for the terminal, for Markdown and for a page."""

import re
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from markupsafe import Markup

from bayesrnn.report.page import render
from bayesrnn.report.text import cells, printable, shortened

_GAP = "  "
_NARROWEST = 6


@dataclass(frozen=True)
class Table:
    """Rows of text under a header.

    left: the titles of the columns of words; others have numbers, which end in the same place.
    best: the (row, column) of cells to mark with `*`.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: tuple[str, ...] = ()
    notes: Sequence[str] = ()
    best: frozenset[tuple[int, int]] = field(default_factory=frozenset)

    @property
    def aligns(self) -> list[str]:
        """On which side each column is even."""
        return ["left" if title in self.left else "right" for title in self.header]

    def text(self, width: int = 100) -> str:
        """For a terminal, in at most `width` columns, and no more than the terminal has.

        The widest columns of words are shortened until it fits; if that is not enough, the table
        goes on below, with its first column again.
        """
        width = min(width, shutil.get_terminal_size((width, 24)).columns)
        lines = [[printable(cell) for cell in row] for row in (self.header, *self._marked())]
        widths = self._widths(lines, width)
        parts = [self._part(lines, widths, shown) for shown in _split(widths, width)]
        notes = [part for note in self.notes for part in _wrapped(printable(note), width)]
        return "\n".join(["\n\n".join(parts), *([""] if notes else []), *notes]) + "\n"

    def _part(
        self, lines: Sequence[Sequence[str]], widths: Sequence[int], shown: Sequence[int]
    ) -> str:
        """Some columns of the table."""
        made = [
            _GAP.join(
                _padded(shortened(line[c], widths[c]), widths[c], self.aligns[c]) for c in shown
            ).rstrip()
            for line in lines
        ]
        return "\n".join([made[0], _GAP.join("-" * widths[c] for c in shown), *made[1:]])

    def markdown(self) -> str:
        """For a Markdown file, with the notes below."""
        rules = ["---:" if align == "right" else ":---" for align in self.aligns]
        lines = [self.header, rules, *self._marked()]
        made = [
            f"| {' | '.join(map(str, line) if line is rules else map(markdown_text, line))} |"
            for line in lines
        ]
        return "\n".join([*made, *(f"\n{markdown_lines(note)}" for note in self.notes)]) + "\n"

    def html(self) -> Markup:
        """For a page."""
        rows = [
            [
                (cell, f"{align} best" if (r, c) in self.best else align)
                for c, (cell, align) in enumerate(zip(row, self.aligns, strict=True))
            ]
            for r, row in enumerate(self._marked())
        ]
        header = list(zip(self.header, self.aligns, strict=True))
        return render("report/templates/table.html.j2", header=header, rows=rows, lines=self.notes)

    def __html__(self) -> str:
        return self.html()

    def _marked(self) -> list[list[str]]:
        return [
            ["*" + cell if (r, c) in self.best else cell for c, cell in enumerate(row)]
            for r, row in enumerate(self.rows)
        ]

    def _widths(self, lines: Sequence[Sequence[str]], width: int) -> list[int]:
        widths = [max(map(cells, column)) for column in zip(*lines, strict=True)]
        words = [c for c, align in enumerate(self.aligns) if align == "left"]
        whole = [min(w, width // 3) if c in words else w for c, w in enumerate(widths)]
        while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
            widest = max(words, key=lambda column: widths[column], default=None)
            if widest is None or widths[widest] <= _NARROWEST:
                return whole  # in several parts, there is room for words
            widths[widest] -= 1
        return widths


def _split(widths: Sequence[int], width: int) -> list[list[int]]:
    """The columns of each part of a table that is too wide; each begins with the first column."""
    parts, used = [[0]], widths[0]
    for column, own in enumerate(widths[1:], 1):
        if used + len(_GAP) + own > width and len(parts[-1]) > 1:
            parts.append([0])
            used = widths[0]
        parts[-1].append(column)
        used += len(_GAP) + own
    return parts


def titled_text(tables: Sequence[tuple[str, Table]], width: int = 100) -> str:
    """Tables below their titles, for a terminal."""
    return "\n".join(
        f"{shortened(printable(title), width)}\n\n{table.text(width)}" for title, table in tables
    )


class Named(Protocol):
    """What has the name of a folder, and its path."""

    @property
    def name(self) -> str:
        """The name of the folder."""

    @property
    def path(self) -> Path | str:
        """The whole path."""


def distinct_names(folders: Sequence[Named]) -> list[str]:
    """The names of folders; their whole paths where several have the same name.

    A folder that is there several times is numbered.
    """
    names = [folder.name for folder in folders]
    paths = [one.name if names.count(one.name) == 1 else str(one.path) for one in folders]
    return [
        path if path not in paths[:place] else f"{path} ({paths[:place].count(path) + 1})"
        for place, path in enumerate(paths)
    ]


def _padded(text: str, width: int, align: str) -> str:
    space = " " * (width - cells(text))
    return space + text if align == "right" else text + space


def _wrapped(text: str, width: int) -> list[str]:
    """The text in lines; those are half as long where characters are wide."""
    wide = any(cells(character) > 1 for character in text)
    return textwrap.wrap(text, width // 2 if wide else width, break_on_hyphens=False)


def markdown_text(text: str) -> str:
    """The text for a Markdown file, with no sign that would be taken as an order."""
    return re.sub(r"([\\`*_{}\[\]<>|#~&])", r"\\\1", printable(text))


def markdown_lines(text: str, start: str = "") -> str:
    """As `markdown_text`, in lines of at most 100 columns; the first begins with `start`."""
    # A line may come to begin with any word, and some would begin a list.
    safe = re.sub(r"(?<= )(\d*)([-+.)])(?= )", r"\1\\\2", markdown_text(text))
    return textwrap.fill(
        safe,
        100,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )
