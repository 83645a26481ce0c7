"""The documentation: paths, links and commands in it exist, and its lines are short.

Every rule is a function from a document to a list of complaints. It is run on the project's own
documents, where it must find nothing, and on bad ones, where it must find what is wrong.
"""

import contextlib
import functools
import io
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bayesrnn.cli.main import all_commands, main

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "bayesrnn"
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(f for d in ("docs", "benchmarks", "tests") for f in (ROOT / d).rglob("*.md")),
    ]
)
#: Documents that say where in the code something is.
MAPS = tuple(
    ROOT / name
    for name in (
        "CONTRIBUTING.md",
        "docs/architecture.md",
        "docs/mathematics.md",
        "docs/methods.md",
    )
)
COLUMNS = 100

_PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)*(?:\.(?:c|j2|md|py)|/))`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ADDRESS = re.compile(r"\]\([^)\s]+\)|https?://\S+")
_SPAN = re.compile(r"`([^`]+)`")
#: In formulas: what GitHub takes for Markdown or HTML before it comes to LaTeX, or does not allow.
_NO_FORMULA = re.compile(r"\\(?:[^a-zA-Z ]|operatorname|$)|[<>*]|^(?:[-+=#]|\d+[.)])(?: |$)")


def blocks(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is code, or a formula, in a block."""
    fence = ""
    for line in text.splitlines():
        mark = line.strip()[:3] if line.lstrip().startswith("```") else line
        if mark in ("```", "$$") and fence in ("", mark):
            fence = "" if fence else mark
            yield line, True
        else:
            yield line, bool(fence) or line.startswith("    ")


def prose(document: Path) -> str:
    """The text without blocks of code."""
    return "\n".join(line for line, is_code in blocks(document.read_text()) if not is_code)


def missing_paths(document: Path) -> list[str]:
    """Files and folders of the project that are named, but are not there."""
    named = _PATH.findall(prose(document))
    return [path for path in named if not any((at / path).exists() for at in (PACKAGE, ROOT))]


def broken_links(document: Path) -> list[str]:
    """Relative links to no file, or to no heading of one."""
    complaints = []
    for link in _LINK.findall(prose(document)):
        if re.match(r"\w+:", link):
            continue
        path, _, heading = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (heading and heading not in headings(target)):
            complaints.append(link)
    return complaints


def headings(document: Path) -> set[str]:
    """The headings as links name them."""
    titles = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def long_lines(document: Path) -> list[str]:
    """Lines that are too long, but for code, tables and the addresses of links."""
    return [
        line
        for line, is_code in blocks(document.read_text())
        if not is_code and not line.startswith("|") and len(_ADDRESS.sub("", line)) > COLUMNS
    ]


def broken_tables(document: Path) -> list[str]:
    """Tables without a line that sets the first row apart: a blank line has cut them."""
    parts = re.split(r"\n\n+", prose(document))
    tables = [part for part in parts if part.startswith("|")]
    return [part for part in tables if not re.match(r"\|.*\n\|[-:| ]+\|(?:\n|$)", part)]


def wrong_formulas(document: Path) -> list[str]:
    """Formulas that do not stand on one line, or by themselves, or that GitHub would not set."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    shown = re.compile(r"(?<=\n\n)\$\$\n(.+?)\n\$\$(?=\n\n|\n?\Z)", re.DOTALL)
    complaints = [
        line
        for formula in shown.findall(text)
        for line in formula.split("\n")
        if _NO_FORMULA.search(line) or not line or len(line) > COLUMNS
    ]
    for line in _SPAN.sub("", shown.sub("", text)).split("\n"):
        parts = line.split("$")
        within = parts[1::2]
        wrong = any(not f or f != f.strip() or _NO_FORMULA.search(f) for f in within)
        if wrong or len(parts) % 2 == 0:
            complaints.append(line)
    return complaints


def command_lines(document: Path) -> Iterator[str]:
    """The calls of the program that are shown, in blocks of code and within lines."""
    for line, is_code in blocks(document.read_text()):
        if is_code:
            parts = re.split(r";|&&", re.sub(r"\s#.*", "", line))
            yield from (part.strip() for part in parts if part.strip().startswith("bayesrnn "))
    spans = (" ".join(span.split()) for span in _SPAN.findall(prose(document)))
    yield from (span for span in spans if span.startswith("bayesrnn "))


def wrong_commands(document: Path) -> list[str]:
    """Calls of the program with a command or an option that it does not have."""
    return [line for line in command_lines(document) if not is_known(line)]


def is_known(line: str) -> bool:
    """Whether there is such a command, with these options."""
    given = shlex.split(re.sub(r"[\[\]]", "", line))[1:]
    options = {word.partition("=")[0] for word in given if word.startswith("--")}
    known = [words for words in all_commands() if tuple(given[: len(words)]) == words]
    if not known:
        groups = [[words[0]] for words in all_commands() if len(words) > 1]
        return given in ([], ["--help"], ["--version"], *groups)
    return all(
        re.search(rf"(?<![\w-]){option}(?![\w-])", help_text(known[0])) for option in options
    )


@functools.cache
def help_text(words: tuple[str, ...]) -> str:
    """What a command says of its options."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), pytest.raises(SystemExit) as stopped:
        main([*words, "--help"])
    assert stopped.value.code == 0
    return shown.getvalue()


Rule = Callable[[Path], list[str]]


@pytest.mark.parametrize(
    "rule", [broken_links, broken_tables, long_lines, wrong_commands, wrong_formulas]
)
def test_documents_follow_the_rules(rule: Rule) -> None:
    assert len(DOCUMENTS) > 5
    found = {str(document): complaints for document in DOCUMENTS if (complaints := rule(document))}
    assert found == {}


def test_paths_of_the_code_exist() -> None:
    assert {str(document): missing_paths(document) for document in MAPS} == {
        str(document): [] for document in MAPS
    }
    assert all(_PATH.search(prose(document)) for document in MAPS)


def test_every_command_is_shown() -> None:
    shown = list(command_lines(ROOT / "docs/commands.md"))
    words = {tuple(shlex.split(line)[1 : 1 + len(w)]) for line in shown for w in all_commands()}
    assert {w for w in all_commands() if w not in words} == set()


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (missing_paths, "In `core/attic.py`."),
        (missing_paths, "In `attic/`."),
        (missing_paths, "In `attic.py`."),
        (broken_links, "See [this](attic.md)."),
        (broken_links, "# Here\n\nSee [that](#there)."),
        (broken_tables, "| a | b |\n|---|--:|\n| 1 | 2 |\n\n| 3 | 4 |"),
        (long_lines, "word " * 21),
        (long_lines, f"- {'word ' * 21}"),
        (wrong_commands, "```sh\nbayesrnn evaluate runs/mine --meteor\n```"),
        (wrong_commands, "```sh\nfor i in 1; do\n    bayesrnn fly --json x; done\n```"),
        (wrong_commands, "```sh\nbayesrnn compare a; bayesrnn compare a --sample 1\n```"),
        (wrong_commands, "With `bayesrnn train attic`."),
        (wrong_commands, "With `bayesrnn evaluate RUN\n--meteor`."),
        (wrong_formulas, "It is $x."),
        (wrong_formulas, "It is $$x$$."),
        (wrong_formulas, "It is $ x $."),
        (wrong_formulas, "It is $x < 1$."),
        (wrong_formulas, "It is\n\n$$\nx\n= 1\n$$\n"),
        (wrong_formulas, "It is\n\n$$\n- x\n$$\n"),
        (wrong_formulas, "It is\n\n$$\nx\\,y\n$$\n"),
        (wrong_formulas, "It is\n\n$$\n\\operatorname{KL}\n$$\n"),
        (wrong_formulas, f"It is\n\n$$\n{'x ' * 51}\n$$\n"),
    ],
)
def test_what_is_wrong_is_found(tmp_path: Path, rule: Rule, text: str) -> None:
    document = tmp_path / "bad.md"
    document.write_text(text)
    assert len(rule(document)) == 1


def test_headings_after_a_formula_are_seen(tmp_path: Path) -> None:
    document = tmp_path / "formula.md"
    document.write_text("$$\nx\n$$\n\n## Here\n\n```sh\necho $$\n```\n\n## There\n")
    assert headings(document) == {"here", "there"}


def test_what_is_right_is_let_through(tmp_path: Path) -> None:
    document = tmp_path / "good.md"
    document.write_text(
        "# Here: a heading\n\n`core/`, `core/posterior.py`, `README.md`, `results/*.json`\n\n"
        f"| {'word ' * 30} |\n|---|\n\n"
        f"```sh\n{'word ' * 30}\nbayesrnn bench --steps 4  # --fly\n```\n\n"
        f"[link](https://example.org/{'x' * 100}) [here](#here-a-heading)\n\n"
        "`bayesrnn --help`, `bayesrnn train lm --size tiny [--no-antithetic]`, `bayesrnn train`\n\n"
        "With dollars in `$HOME`, and $\\log x$:\n\n$$\n-\\log \\frac{x}{y} \\le 1\n$$\n"
    )
    rules = (broken_links, broken_tables, long_lines, wrong_commands, wrong_formulas)
    for rule in (missing_paths, *rules):
        assert rule(document) == []
