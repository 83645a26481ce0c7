"""Text with some of its words marked, for the terminal and for a page."""

from collections.abc import Collection, Sequence
from html import escape


def marked_text(words: Sequence[str], marked: Collection[int], colour: bool) -> str:
    """The words in a row; those at the places `marked` in colour, or in [brackets] without."""
    before, after = ("\033[1;33m", "\033[0m") if colour else ("[", "]")
    return " ".join(
        f"{before}{word}{after}" if place in marked else word for place, word in enumerate(words)
    )


def marked_html(words: Sequence[str], marked: Collection[int]) -> str:
    """The words as a paragraph of HTML with `<mark>`."""
    shown = (
        f"<mark>{escape(word)}</mark>" if place in marked else escape(word)
        for place, word in enumerate(words)
    )
    return f"<p>{' '.join(shown)}</p>"
