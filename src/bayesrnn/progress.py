"""Progress bars: one look for all long work."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

_NO_PICTURE = "\N{REPLACEMENT CHARACTER}"
#: Characters of a message at most: twenty lines of a terminal.
_SCREEN = 1600
_HARMLESS = "\n\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"


#: Whether another process prints what there is to say.
_is_silent = False


@contextmanager
def silenced(wanted: bool = True) -> Iterator[None]:
    """Inside the block there are neither lines nor bars, if that is `wanted`."""
    global _is_silent
    before, _is_silent = _is_silent, wanted or _is_silent
    try:
        yield
    finally:
        _is_silent = before


def progress_bar(total: int, unit: str, label: str, done: int = 0, delay: float = 0.0) -> Any:
    """A bar with speed and time left; silent when nobody watches (no terminal).

    It appears after `delay` seconds: work that is done by then needs none.
    """
    return tqdm(
        total=total,
        initial=done,
        delay=delay,
        unit=unit,
        unit_scale=True,
        desc=label,
        dynamic_ncols=True,
        mininterval=0.5,
        smoothing=0.1,
        disable=_is_silent or not sys.stderr.isatty(),
        bar_format="{desc} {percentage:3.0f}%|{bar}| {rate_fmt}, {remaining} left{postfix}",
    )


def say(line: str) -> None:
    """Print a line without tearing a progress bar; names in it cannot give orders."""
    if not _is_silent:
        tqdm.write(visible(at_most_a_screen(line)), file=sys.stderr)


def at_most_a_screen(text: str) -> str:
    """A message without its middle if it is long: what was given may be a whole file."""
    if len(text) <= _SCREEN:
        return text
    # What to do stands at the end.
    return f"{text[: _SCREEN // 2]} [...] {text[-_SCREEN // 2 :]}"


def visible(text: str) -> str:
    """Text for a terminal: what has no picture, or turns the writing around, has a sign instead.

    Line ends stay, and so do the marks that join letters of some scripts.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _HARMLESS else _NO_PICTURE for c in text)
