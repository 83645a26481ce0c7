"""The site has every document and every public name; `make docs` builds it."""

import ast
import re
from importlib import import_module
from pathlib import Path

import bayesrnn

ROOT = Path(__file__).parents[1]
CONFIGURATION = (ROOT / "mkdocs.yml").read_text()
REFERENCE = [path.read_text() for path in sorted((ROOT / "docs" / "api").glob("*.md"))]


def pages_from_elsewhere() -> dict[str, str]:
    """The documents outside docs/ and their pages, without importing MkDocs."""
    text = (ROOT / "docs" / "site" / "links.py").read_text()
    pages = ast.literal_eval(re.search(r"^PAGES = (\{.*?^\})", text, re.MULTILINE | re.DOTALL)[1])
    assert "README.md" in pages
    return pages


def test_every_document_is_in_the_navigation() -> None:
    documents = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    named = re.findall(r": (\S+\.md)$", CONFIGURATION, re.MULTILINE)
    assert len(named) == len(set(named))
    assert documents | set(pages_from_elsewhere().values()) == set(named)


def test_no_document_links_to_what_the_site_does_not_have() -> None:
    pages = pages_from_elsewhere()
    documents = [*(ROOT / name for name in pages), *(ROOT / "docs").rglob("*.md")]
    code = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
    outside = set()
    for document in documents:
        text = code.sub("", document.read_text())
        for link in re.findall(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)", text):
            place = (document.parent / link).resolve().relative_to(ROOT)
            if place.parts[0] not in ("docs", "examples") and (ROOT / place).is_file():
                outside.add(str(place))
    assert outside
    assert outside <= set(pages)


def test_every_public_name_is_in_the_reference() -> None:
    named = re.findall(r"^::: bayesrnn\.(\S+)$", "\n".join(REFERENCE), re.MULTILINE)
    assert sorted(path.split(".")[-1] for path in named) == sorted(
        name for name in bayesrnn.__all__ if name != "__version__"
    )
    for path in named:
        *module, name = path.split(".")
        home = import_module(".".join(["bayesrnn", *module]))
        assert getattr(home, name) is getattr(bayesrnn, name)


def test_what_makes_the_site_is_pinned() -> None:
    lines = (ROOT / "docs" / "requirements.txt").read_text().splitlines()
    pinned = re.compile(r"[\w.-]+==[\w.]+")
    assert all(pinned.fullmatch(line) for line in lines if not line.startswith("#"))
