"""The files of the page: read once, by names that are known, so that no path comes from outside."""

from collections.abc import Iterable
from importlib.resources import files
from typing import Final, NamedTuple

from bayesrnn.runs.tab import Tab

PAGE: Final = "index.html"
_KINDS: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """A file, and what kind it is."""

    kind: str
    content: bytes


def load_assets(tabs: Iterable[Tab]) -> dict[str, Asset]:
    """All files by the path that the page asks for them: its own, and the scripts of tabs."""
    package = files("bayesrnn")
    own = [file for file in (package / "serve" / "static").iterdir() if _kind(file.name)]
    found = {f"/static/{file.name}": _asset(file.name, file.read_bytes()) for file in own}
    for tab in tabs:
        script = package.joinpath(*tab.script.split("/"))
        found[script_path(tab)] = _asset(tab.script, script.read_bytes())
    return found


def script_path(tab: Tab) -> str:
    """The path that the page asks for the script of a tab."""
    return f"/tabs/{tab.script}"


def _asset(name: str, content: bytes) -> Asset:
    return Asset(_kind(name), content)


def _kind(name: str) -> str:
    return _KINDS.get(name.rpartition(".")[2], "")
