"""Words and numbers as they are shown: nothing that a terminal or a page would take as an order."""

import html
import math
import unicodedata


def printable(text: str) -> str:
    """The text with every character that has no picture (controls, lone surrogates) replaced."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def escaped(text: str) -> str:
    """The text for HTML or SVG, between tags or inside a quoted attribute."""
    return html.escape(printable(text))


def cells(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return sum(_cells_of(character) for character in text)


def shortened(text: str, width: int) -> str:
    """The text in at most `width` columns; its middle gives way, as runs differ at their ends."""
    wide = [_cells_of(character) for character in text]
    if sum(wide) <= width:
        return text
    end = start = len(text) // 2  # what lies between is left out
    head, tail = sum(wide[:end]), sum(wide[start:])
    while head + tail > max(width - 1, 0):
        if head > tail:
            end -= 1
            head -= wide[end]
        else:
            tail -= wide[start]
            start += 1
    return f"{text[:end]}…{text[start:]}"


def perplexity_text(value: float | None) -> str:
    """A perplexity with two decimals; `-` where there is none."""
    return number_text(value, 2)


def number_text(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals; `-` where there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{round(value, digits) + 0.0:.{digits}f}" if abs(value) < 100_000 else f"{value:.2e}"


def _cells_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
