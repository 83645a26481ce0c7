"""Docstrings as Markdown: an extension of Griffe, which reads the sources for mkdocstrings.

In a docstring, a line `name: what it means` tells of a parameter, and lines that belong to it are
indented. In Markdown that is an item of a list.
"""

import re
from typing import Any

from griffe import Extension, Object

_NAMED = re.compile(r"^(\w+(?:, \w+)*): (?=\S)")


class Parameters(Extension):
    """Make lists of the lines that tell of parameters."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of an object, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = with_lists(obj.docstring.value)


def with_lists(docstring: str) -> str:
    """The docstring, with an item of a list for each line that begins with a name."""
    lines: list[str] = []
    in_item = False
    for line in docstring.splitlines():
        if named := _NAMED.match(line):
            if not in_item:
                lines.append("")
            names = ", ".join(f"`{name}`" for name in named[1].split(", "))
            line = f"- {names}: {line[named.end() :]}"
            in_item = True
        elif in_item and line.startswith("    "):
            line = line.strip()
        elif in_item:
            in_item = False
        lines.append(line)
    return "\n".join(lines)
