"""Words shaded by a metric of theirs, for the terminal and for a page."""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TextIO

from markupsafe import Markup

from bayesrnn.report.page import render
from bayesrnn.report.text import cells, number_text, printable, shortened

#: What is shown where a sentence ends; the line ends there, too.
SENTENCE_END = "¶"

# The codes of the levels from 1 on, from the 256 colours of terminals: first coloured letters of
# middling brightness, which can be read on dark and on light, then backgrounds with letters to fit.
_SHADES = (
    "38;5;100",
    "38;5;130",
    "38;5;16;48;5;173",
    "38;5;16;48;5;167",
    "38;5;231;48;5;160",
    "38;5;231;48;5;124",
)

#: The longest word that is shown as it is.
_LONGEST = 40
_GAP = "  "


@dataclass(frozen=True)
class ColourScale:
    """Bounds that cut a metric into shades: each one that is passed makes a word darker.

    probability: the metric is one, and shades as it falls; others are in nats and shade as they
    grow.
    """

    bounds: tuple[float, ...]
    probability: bool = False

    @classmethod
    def of(cls, values: Sequence[float]) -> "ColourScale":
        """For metrics in nats: equal steps from the median (so half stay plain) to the most."""
        middle, most = median(values), max(values)
        return cls(tuple(middle + (most - middle) * k / len(_SHADES) for k in range(len(_SHADES))))

    def level(self, value: float) -> int:
        """How many bounds a value passes."""
        passed = (value < b if self.probability else value > b for b in self.bounds)
        return sum(passed)

    def text(self, value: float) -> str:
        """A value in a few characters."""
        return probability_text(value) if self.probability else number_text(value)

    def labels(self) -> list[str]:
        """What each level means, from 0 on."""
        if self.probability:
            return [f"{self.bounds[0]:g} or more", *(f"< {b:g}" for b in self.bounds)]
        if self.bounds[0] == self.bounds[-1]:
            return [self.text(self.bounds[0])]
        shown = [self.text(bound) for bound in self.bounds]
        return [f"to {shown[0]}", *(f"> {bound}" for bound in shown)]


#: The one scale of all probabilities, so that texts and runs can be compared.
PROBABILITY = ColourScale((0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001), probability=True)


@dataclass(frozen=True)
class WordMetric:
    """A metric of every word of a text, and the scale that shades it."""

    name: str
    values: Sequence[float]
    scale: ColourScale

    def levels(self) -> list[int]:
        """The shade of every word."""
        return [self.scale.level(value) for value in self.values]


def probability_text(value: float) -> str:
    """A probability in at most six characters."""
    if value >= 0.01:
        return f"{value:.3f}"
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.0e}"


def entropy_text(entropy: float, aleatoric: float, epistemic: float, split: bool) -> str:
    """An entropy in nats; with `split`, as the sum of its parts."""
    parts = f" = {number_text(aleatoric)} aleatoric + {number_text(epistemic)} epistemic"
    return f"entropy {number_text(entropy)} nats{parts if split else ''}"


def wants_colour(stream: TextIO) -> bool:
    """Whether colours are welcome: a terminal, and no word against it (https://no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def terminal_legend(metric: WordMetric, colour: bool) -> str:
    """One line that says what the shades of a metric mean; nothing without colour."""
    if not colour:
        return ""
    shades = (_painted(f" {label} ", level) for level, label in enumerate(metric.scale.labels()))
    return f"{metric.name}: {''.join(shades)}"


def prose(
    words: Sequence[str], metric: WordMetric, marked: Collection[int] = (), width: int = 100
) -> str:
    """The words as running text in the colours of a metric; those at places `marked` underlined."""
    levels = metric.levels()
    lines: list[list[str]] = [[]]
    used = 0
    for place, word in enumerate(words):
        shown = _shown(word, width)
        # The sign at the end of a sentence must not begin a line: there is room left for it.
        room = width if word == SENTENCE_END else width - 2
        if lines[-1] and used + 1 + cells(shown) > room:
            lines.append([])
        used = cells(shown) + (used + 1 if lines[-1] else 0)
        lines[-1].append(_painted(shown, levels[place], place in marked))
        if word == SENTENCE_END:
            lines.append([])
    return "\n".join(" ".join(line) for line in lines if line)


def gloss(
    words: Sequence[str], metrics: Sequence[WordMetric], colour: bool, width: int = 100
) -> str:
    """The words in rows, with the metrics of each below it.

    With colour, a word has the shade of the first metric, and the last metric has its own.
    """
    title = max(cells(metric.name) for metric in metrics)
    room = max(width - title, _LONGEST + len(_GAP))
    columns = [
        (_shown(word), *(metric.scale.text(metric.values[place]) for metric in metrics))
        for place, word in enumerate(words)
    ]
    shades = {0: metrics[0].levels(), len(metrics): metrics[-1].levels()} if colour else {}
    unshaded = [0] * len(words)
    blocks = []
    for row in _rows(columns, room):
        lines = []
        for line, name in enumerate(("", *(metric.name for metric in metrics))):
            parts = [name.ljust(title)]
            for place in row:
                wide = max(map(cells, columns[place]))
                text = columns[place][line]
                painted = _painted(text, shades.get(line, unshaded)[place])
                parts.append(" " * (wide - cells(text)) + painted)
            lines.append(_GAP.join(parts).rstrip())
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _rows(columns: Sequence[tuple[str, ...]], room: int) -> Iterator[list[int]]:
    """The places of the columns that fit side by side, row by row."""
    row: list[int] = []
    used = 0
    for place, column in enumerate(columns):
        wide = len(_GAP) + max(map(cells, column))
        if row and (used + wide > room or columns[place - 1][0] == SENTENCE_END):
            yield row
            row, used = [], 0
        row.append(place)
        used += wide
    if row:
        yield row


def _shown(word: str, longest: int = _LONGEST) -> str:
    return shortened(printable(word), min(longest, _LONGEST))


def _painted(text: str, level: int, underlined: bool = False) -> str:
    codes = ["1;4"] if underlined else []
    if level:
        codes.append(_SHADES[level - 1])
    return f"\033[{';'.join(codes)}m{text}\033[0m" if codes else text


@dataclass(frozen=True)
class HeatWord:
    """A word of a page: what the pointer shows over it, and whether it is one of the unknown."""

    text: str
    title: str
    unknown: bool = False


def heat_html(words: Sequence[HeatWord], metrics: Sequence[WordMetric]) -> Markup:
    """The words as running text; the reader chooses by which metric they are shaded."""
    return shading(shaded(words, metrics), metrics)


def shading(html: Markup, metrics: Sequence[WordMetric]) -> Markup:
    """Buttons that choose the metric by which the `shaded` words in `html` get their shades."""
    return render("report/templates/shading.html.j2", html=html, metrics=metrics)


def shaded(words: Sequence[HeatWord], metrics: Sequence[WordMetric]) -> Markup:
    """The words as a paragraph, with the names of their shades."""
    levels = [metric.levels() for metric in metrics]
    named = [
        (word, [f"s{n}{by[place]}" for n, by in enumerate(levels) if by[place]])
        for place, word in enumerate(words)
    ]
    return render("report/templates/shaded.html.j2", words=named, sentence_end=SENTENCE_END)
