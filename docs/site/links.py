"""Links that work on GitHub work in the site: a hook of MkDocs.

MkDocs knows pages in docs/ only. The documents and examples that lie elsewhere become files of the
site, and a link in a document, which is relative to its place in the repository, is turned into one
that is relative to its place in the site.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
#: Documents outside docs/, and the pages that they become.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "speed.md",
}
#: Files that are linked to and come along as they are.
EXAMPLES = {f"{path.relative_to(ROOT)}" for path in (ROOT / "examples").rglob("*.*")}

_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()([^)\s#]+)")
_LOADED = re.compile(r'<(?:script|img|iframe|link)\b[^>]*\s(?:src|href)="(?:https?:)?//[^"]+')


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside docs/."""
    for place, name in [*PAGES.items(), *((path, path) for path in EXAMPLES)]:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / place)))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: object) -> str:
    """Turn the links of a document into those of its page."""
    del files
    here = page.file.src_uri
    if here == PAGES["README.md"]:
        page.meta["hide"] = ["navigation"]  # it would be the only one of its section
    places = {name: place for place, name in PAGES.items()}
    folder = posixpath.dirname(places.get(here, f"docs/{here}"))

    def in_site(link: re.Match[str]) -> str:
        if ":" in link[1]:
            return link[1]
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        return posixpath.relpath(_name(target), posixpath.dirname(here) or ".")

    parts = []
    for text, is_code in _parts(markdown):
        parts.append(text if is_code else _LINK.sub(in_site, text))
    return "".join(parts)


def on_post_page(output: str, page: Page, **_: object) -> str:
    """Refuse a page that would ask another host for anything."""
    if found := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads from another host: {found[0]}")
    return output


def _name(place: str) -> str:
    """The name in the site of a file of the repository; of a folder, of its README.md."""
    if (ROOT / place).is_dir():
        place = f"{place}/README.md"
    if place in PAGES:
        return PAGES[place]
    if place not in EXAMPLES and not place.startswith("docs/"):
        raise PluginError(f"a document links to {place}, which is not in the site")
    return place.removeprefix("docs/")


def _parts(markdown: str) -> Iterator[tuple[str, bool]]:
    """The text in pieces, and whether each is a block of code."""
    end = 0
    for block in _FENCE.finditer(markdown):
        yield markdown[end : block.start()], False
        yield block[0], True
        end = block.end()
    yield markdown[end:], False
