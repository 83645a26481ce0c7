"""Marks of a chart: colours that can be told apart, shapes to go with them, legend, labels."""

from collections.abc import Mapping, Sequence

from bayesrnn.report.text import cells, escaped, printable, shortened

# Ten colours that most colour-blind people can tell apart (the first four best); shapes help.
LIGHT = (
    *("#0072b2", "#d55e00", "#009e73", "#7a2048", "#7c4dff"),
    *("#6b5300", "#c94f8c", "#4d5a63", "#2a1f86", "#3d9dc4"),
)
_DARK = (
    *("#56b4e9", "#f08a3c", "#2fd0a0", "#e0487c", "#9b7bff"),
    *("#d8c04a", "#f5a8d0", "#aab4bc", "#6f86e8", "#8fe3f2"),
)
_SHAPES = ("circle", "square", "diamond", "triangle", "cross")

#: The rules that turn the charts of a page dark; to be put inside a media query.
DARK_STYLE = (
    ".chart .paper{fill:#15181c}.chart .ink{color:#e4e7ea}.chart .grid{color:#3a4047}"
    + "".join(f".chart .c{number}{{color:{colour}}}" for number, colour in enumerate(_DARK))
)

#: Height of a line of text, and width of a character, on the safe side.
LINE = 16
CHARACTER = 6.9


def chart_legend(
    colours: Mapping[str, int], kinds: Mapping[bool, str], left: float, right: float, top: float
) -> tuple[str, float]:
    """What colours and kinds of line mean, in as many rows as needed, and where it ends."""
    entries = [(text, -1, dashed) for dashed, text in sorted(kinds.items())]
    entries += [(shortened(printable(name), 40), colour, False) for name, colour in colours.items()]
    parts, x, y = [], left, top
    for text, colour, dashed in entries:
        needed = 34 + CHARACTER * cells(text) + 14
        if x > left and x + needed > right:
            x, y = left, y + LINE
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        mark = shape(colour, x + 13, y, False) if colour >= 0 else ""
        parts.append(
            f'{coloured(colour)}<path d="M{x:.1f} {y:.1f}h26" stroke="currentColor" '
            f'stroke-width="2"{dash}/>{mark}</g><g class="ink" color="#23282d">'
            f'<text x="{x + 32:.1f}" y="{y + 4:.1f}" fill="currentColor">{escaped(text)}</text></g>'
        )
        x += needed
    return "\n".join(parts), y


def coloured(colour: int) -> str:
    """The opening of a group in one of the colours, or in the colour of text."""
    if colour < 0:
        return '<g class="ink" color="#23282d">'
    return f'<g class="c{colour}" color="{LIGHT[colour]}">'


def shape(number: int, x: float, y: float, hollow: bool) -> str:
    """A mark of a point; its shape goes with the colour."""
    style = 'fill="currentColor"' if not hollow else 'class="paper" fill="#ffffff"'
    style += ' stroke="currentColor"'
    if number % len(_SHAPES) == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" {style}/>'
    path = {
        "square": "m-2.8 -2.8h5.6v5.6h-5.6z",
        "diamond": "m0 -4l4 4l-4 4l-4 -4z",
        "triangle": "m0 -3.8l3.8 6.6h-7.6z",
        "cross": "m-1.2 -3.6h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4v-2.4h2.4z",
    }[_SHAPES[number % len(_SHAPES)]]
    return f'<path d="M{x:.1f} {y:.1f}{path}" {style}/>'


def spread(wished: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places nearest to the wished ones that are `gap` apart and, with room, in low to high.

    Those that are too near become a block around their middle; blocks that meet become one.
    """
    order = sorted(range(len(wished)), key=lambda index: wished[index])
    blocks: list[list[int]] = []

    def start(block: list[int]) -> float:
        size = gap * (len(block) - 1)
        middle = sum(wished[index] for index in block) / len(block)
        return max(min(middle - size / 2, high - size), low)

    for index in order:
        blocks.append([index])
        while len(blocks) > 1 and start(blocks[-2]) + gap * len(blocks[-2]) > start(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    placed = list(wished)
    for block in blocks:
        for place, index in enumerate(block):
            placed[index] = start(block) + gap * place
    return placed
