"""Words and numbers as they are shown, safe for a terminal and for a page."""

import math
import unicodedata

from bayesrnn.progress import visible


def printable(text: str) -> str:
    """A line of text with every character that has no picture (controls, lone surrogates) replaced.

    So are those that turn the writing around.
    """
    return text if text.isprintable() else visible(text.replace("\n", "\0"))


def cells(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return sum(_cells_of(character) for character in text)


def shortened(text: str, width: int) -> str:
    """The text in at most `width` columns; the middle is left out: runs differ at their ends."""
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
    """A number with that many decimals; `-` where there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{round(value, digits) + 0.0:.{digits}f}" if abs(value) < 100_000 else f"{value:.2e}"


def interval_text(value: float, low: float, high: float, digits: int = 3) -> str:
    """A value with its interval, or alone where they look the same, as without resamples."""
    shown, least, most = (number_text(number, digits) for number in (value, low, high))
    if least == shown == most:
        return shown
    return f"{shown} ({least} to {most})" if low < 0 else f"{shown} ({least}-{most})"


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 run, 2 runs."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def draws_text(samples: int) -> str:
    """A number of draws in a table; 0 is the mean network."""
    return str(samples or "mean")


def _cells_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
