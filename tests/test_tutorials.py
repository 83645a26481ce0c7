"""Tutorials do what they say: Python and commands are run, in order, on tiny data.

What takes long follows a comment that begins with `# long`, and is looked for in `--help` only
(`test_documentation.py`). What a block of Python prints is compared with the block of text after
it: the same words, and nearly the same numbers. The README has a file of its own.
"""

import contextlib
import io
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from bayesrnn.tasks.captions.image_network import ImageNetwork

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = ("choosing.md", "coming-from.md", "kl.md")

_BLOCK = re.compile(r"^```(python|sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"\d+\.\d+")


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """The blocks of a page: which language, and what is in them."""
    for block in _BLOCK.finditer(page.read_text()):
        yield block[1], block[2]


def commands(block: str) -> Iterator[list[str]]:
    """The calls of the program in a block that do not take long, without its name."""
    long = False
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["bayesrnn"] and not long:
            yield words[1:]
        long = line.startswith("# long")


def assert_alike(printed: str, shown: str) -> None:
    """The same words, and numbers that differ by a third, or two hundredths, at most."""
    assert _NUMBER.sub("#", printed) == _NUMBER.sub("#", shown)
    found, wanted = (list(map(float, _NUMBER.findall(text))) for text in (printed, shown))
    assert found == pytest.approx(wanted, rel=0.35, abs=0.02)


@pytest.fixture
def run_page(program, tmp_path, monkeypatch) -> Iterator[Callable[..., None]]:
    """A function that runs all of a page in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(name: str) -> None:
        names: dict[str, object] = {}
        printed = None
        for language, block in blocks(DOCS / name):
            if language == "python":
                printed = run_python(block, names)
            elif language == "text" and printed is not None:
                assert_alike(printed, block)
            elif language == "sh":
                for words in commands(block):
                    code, _, errors = program(*words)
                    assert code == 0, (words, errors)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        yield run
    torch.set_num_threads(threads)


def run_python(block: str, names: dict[str, object]) -> str:
    """What a block prints."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(block, "<tutorial>", "exec"), names)
    return shown.getvalue()


@pytest.fixture
def a_novel(tiny_text, tmp_path) -> None:
    (tmp_path / "my-novel.txt").write_text(tiny_text.read_text()[:12_000])


@pytest.fixture
def tables(tmp_path) -> None:
    words = ("bad", "fair", "good")
    rows = [f'"the film number {n}, it was {words[n % 3]}",{n % 3 / 2}' for n in range(240)]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,rating", *rows]) + "\n")
    days = np.datetime64("2023-01-02") + np.arange(300)
    sales = 150 + 40 * (np.arange(300) % 7 < 5) + np.random.default_rng(1).integers(20, size=300)
    rows = [f"{day},{value}" for day, value in zip(days, sales, strict=True)]
    (tmp_path / "sales.csv").write_text("\n".join(["ds,y", *rows]) + "\n")


@pytest.fixture
def images(tmp_path, tiny_flickr8k, monkeypatch) -> None:
    """Pictures, and a stand-in for the network that looks at them."""
    image = pytest.importorskip("PIL.Image", reason="the extra `captions` brings Pillow")
    (tmp_path / "holidays").mkdir()
    for number in range(2):
        picture = image.new("RGB", (60, 50), (40 * number, 9, 99))
        picture.save(tmp_path / "holidays" / f"{number}.jpg")

    class Maps(torch.nn.Module):
        def extract_features(self, pixels):
            return pixels.mean((1, 2, 3))[:, None, None, None] + torch.ones(1, 1280, 1, 1)

    for module in ("make_features", "caption"):
        place = f"bayesrnn.tasks.captions.{module}.load_image_network"
        monkeypatch.setattr(place, lambda: ImageNetwork(Maps()))


def test_your_text(run_page, a_novel):
    run_page("tutorials/your-text.md")


def test_your_csv(run_page, tables):
    run_page("tutorials/your-csv.md")


def test_your_module(run_page):
    run_page("tutorials/your-module.md")


def test_captions(run_page, images):
    run_page("tutorials/captions.md")


def test_no_tutorial_is_left_out():
    tested = {"captions.md", "your-csv.md", "your-module.md", "your-text.md"}
    assert {path.name for path in (DOCS / "tutorials").glob("*.md")} == tested


def test_what_takes_long_is_not_run():
    block = "# long: hours\nbayesrnn reproduce ptb\nbayesrnn evaluate RUN  # soon\npip install x\n"
    assert list(commands(block)) == [["evaluate", "RUN"]]


@pytest.mark.parametrize(
    "printed", ["loss 0.51, right\n", "loss 0.80, wrong\n", "loss 0.50, 1.5 wrong\n"]
)
def test_other_words_and_numbers_are_seen(printed):
    with pytest.raises(AssertionError):
        assert_alike(printed, "loss 0.50, wrong\n")
    assert_alike("loss 0.56, wrong\n", "loss 0.50, wrong\n")


@pytest.mark.parametrize("name", PAGES)
def test_other_pages(name, run_page):
    run_page(name)
