"""Words shaded by their figures, for the terminal and for a page."""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TextIO

from bayesrnn.report.text import cells, escaped, number_text, printable, shortened

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
_LIGHT = ("#fff3d1", "#ffe2ab", "#ffc98a", "#ffaa72", "#fa8662", "#ee6a57")
_DARK = ("#33291a", "#4a331b", "#643b1c", "#80401f", "#9a3b24", "#b02e2a")

#: The longest word that is shown as it is.
_LONGEST = 40
_GAP = "  "


@dataclass(frozen=True)
class Scale:
    """Bounds that cut a figure into shades: each one that is passed makes a word darker.

    probability: the figure is one, and shades as it falls; others are in nats and shade as they
    grow.
    """

    bounds: tuple[float, ...]
    probability: bool = False

    @classmethod
    def of(cls, values: Sequence[float]) -> "Scale":
        """For figures in nats: equal steps from the median (so half stay plain) to the most."""
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
PROBABILITY = Scale((0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001), probability=True)


@dataclass(frozen=True)
class Figure:
    """A figure of every word of a text, and the scale that shades it."""

    name: str
    values: Sequence[float]
    scale: Scale

    def levels(self) -> list[int]:
        """The shade of every word."""
        return [self.scale.level(value) for value in self.values]


def probability_text(value: float) -> str:
    """A probability in at most six characters."""
    if value >= 0.01:
        return f"{value:.3f}"
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.0e}"


def wants_colour(stream: TextIO) -> bool:
    """Whether colours are welcome: a terminal, and no word against it (https://no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def legend(figure: Figure, colour: bool) -> str:
    """One line that says what the shades of a figure mean; nothing without colour."""
    if not colour:
        return ""
    shades = (_painted(f" {label} ", level) for level, label in enumerate(figure.scale.labels()))
    return f"{figure.name}: {''.join(shades)}"


def prose(
    words: Sequence[str], figure: Figure, marked: Collection[int] = (), width: int = 100
) -> str:
    """The words as running text in the colours of a figure; those at places `marked` underlined."""
    levels = figure.levels()
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


def gloss(words: Sequence[str], figures: Sequence[Figure], colour: bool, width: int = 100) -> str:
    """The words in rows, with the figures of each below it.

    With colour, a word has the shade of the first figure, and the last figure has its own.
    """
    title = max(cells(figure.name) for figure in figures)
    room = max(width - title, _LONGEST + len(_GAP))
    columns = [
        (_shown(word), *(figure.scale.text(figure.values[place]) for figure in figures))
        for place, word in enumerate(words)
    ]
    shades = {0: figures[0].levels(), len(figures): figures[-1].levels()} if colour else {}
    unshaded = [0] * len(words)
    blocks = []
    for row in _rows(columns, room):
        lines = []
        for line, name in enumerate(("", *(figure.name for figure in figures))):
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


def heat_html(words: Sequence[HeatWord], figures: Sequence[Figure]) -> str:
    """The words as running text; the reader chooses by which figure they are shaded."""
    return shading(f'<p class="heat">{shaded(words, figures)}</p>\n', figures)


def shading(html: str, figures: Sequence[Figure]) -> str:
    """Buttons that choose the figure by which the `shaded` words in `html` get their shades.

    It takes no script: the choice is a row of buttons, and a rule of style for each.
    """
    inputs = "".join(
        f'<input type="radio" name="shade" id="by{number}"{"" if number else " checked"}>'
        f'<label for="by{number}">{escaped(figure.name)}</label>\n'
        for number, figure in enumerate(figures)
    )
    legends = "".join(_html_legend(number, figure) for number, figure in enumerate(figures))
    return (
        f"<style>{_style(len(figures))}</style>\n"
        f'<div class="shading">\n<span>Shade by</span>\n{inputs}{legends}{html}</div>\n'
    )


def shaded(words: Sequence[HeatWord], figures: Sequence[Figure]) -> str:
    """The words, with the names of their shades; to be put into something of the class heat."""
    levels = [figure.levels() for figure in figures]
    spans = (
        _span(word, [f"s{n}{by[place]}" for n, by in enumerate(levels) if by[place]])
        for place, word in enumerate(words)
    )
    return " ".join(spans)


def _span(word: HeatWord, classes: Sequence[str]) -> str:
    names = [*classes, *(["unknown"] if word.unknown else [])]
    kind = f' class="{" ".join(names)}"' if names else ""
    after = "<br>" if word.text == SENTENCE_END else ""
    return f'<span{kind} title="{escaped(word.title)}">{escaped(word.text)}</span>{after}'


def _html_legend(number: int, figure: Figure) -> str:
    shades = " ".join(
        f'<span class="s{number}{level}">{escaped(label)}</span>'
        for level, label in enumerate(figure.scale.labels())
    )
    return f'<p class="legend by{number}">{escaped(figure.name)}: {shades}</p>\n'


def _style(figures: int) -> str:
    """The rules of the shading, for a light and for a dark page."""
    light, dark = (
        "".join(f" --shade{level}: {c};" for level, c in enumerate(colours, start=1))
        for colours in (_LIGHT, _DARK)
    )
    rules = [
        f".shading {{{light} }}",
        f"@media (prefers-color-scheme: dark) {{ .shading {{{dark} }} }}",
        ".heat { line-height: 2; overflow-wrap: anywhere; }",
        ".heat span, .legend span { padding: 0.1em 0.25em; border-radius: 0.2em;"
        " print-color-adjust: exact; }",
        ".legend { display: none; font-size: 0.87rem; color: var(--ink); line-height: 1.9; }",
        ".legend span { border: 1px solid var(--line); white-space: nowrap; }",
        ".shading label { margin: 0 0.9rem 0 0.2rem; }",
        ".heat .unknown { text-decoration: underline dotted; text-underline-offset: 0.2em; }",
    ]
    for number in range(figures):
        rules.append(f"#by{number}:checked ~ .by{number} {{ display: block; }}")
        rules += [
            f"#by{number}:checked ~ * .s{number}{level} {{ background: var(--shade{level}); }}"
            for level in range(1, len(_SHADES) + 1)
        ]
    return "\n" + "\n".join(rules) + "\n"
