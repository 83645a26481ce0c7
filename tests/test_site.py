"""The site has every document and every public name; `make docs` builds it."""

import re
from importlib import import_module
from pathlib import Path

import bayesrnn

ROOT = Path(__file__).parents[1]
CONFIGURATION = (ROOT / "mkdocs.yml").read_text()
REFERENCE = [path.read_text() for path in sorted((ROOT / "docs" / "api").glob("*.md"))]


def test_every_document_is_in_the_navigation() -> None:
    documents = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    named = re.findall(r": (\S+\.md)$", CONFIGURATION, re.MULTILINE)
    assert len(named) == len(set(named))
    assert documents <= set(named)


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
