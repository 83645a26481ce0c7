"""Pages: one HTML file that needs no other, made by Jinja2 templates that escape what they show."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bayesrnn.report.text import printable


class SupportsHTML(Protocol):
    """What shows itself on a page, such as a table, a chart or what a template gave."""

    def __html__(self) -> str:
        """It as HTML, in which all text is escaped."""


#: What a section can hold: a paragraph, the lines of a list, or what shows itself.
Part = str | list[str] | SupportsHTML


class Section:
    """A part of a page. Plain text becomes a paragraph, and is escaped; so are lines of a list."""

    def __init__(self, title: str, *parts: Part) -> None:
        self.title = title
        self.parts = parts


def _shown(value: object) -> object:
    """What a template writes for a value: text without control characters, or its own HTML."""
    return value if hasattr(value, "__html__") else printable(str(value))


_TEMPLATES = Environment(
    loader=PackageLoader("bayesrnn", ""),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["px"] = "{:.1f}".format  # a place in a picture


def render(template: str, **values: object) -> Markup:
    """What a template, named by its path in the package, makes of the values."""
    return Markup(_TEMPLATES.get_template(template).render(values))


def document(title: str, sections: Sequence[Section]) -> str:
    """The whole page: a heading with the sections below it, light or dark as the reader likes."""
    # Not markup: it is no part of another page.
    return str(render("report/templates/page.html.j2", title=title, sections=sections))


def notes(lines: Iterable[str]) -> Markup:
    """Small paragraphs."""
    return render("report/templates/notes.html.j2", lines=lines)


def code(lines: Iterable[str]) -> Markup:
    """Lines as they are in a file or on a command line."""
    return render("report/templates/code.html.j2", lines=lines)


def entries(items: Iterable[tuple[str, str, str]]) -> Markup:
    """A heading (where it is not empty), a paragraph and a note for each item."""
    return render("report/templates/entries.html.j2", items=items)
