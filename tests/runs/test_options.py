from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import tyro

from bayesrnn.errors import ConfigError
from bayesrnn.options import REQUIRED, CheckedOptions, option
from bayesrnn.runs.options import command, command_of_parts, refuse_others, take


@dataclass(frozen=True, kw_only=True)
class Common(CheckedOptions):
    """What two commands share."""

    run: Path = option(REQUIRED, "folder of a run", positional=True)
    device: Literal["auto", "cpu"] = option("auto", "where to compute")


@dataclass(frozen=True, kw_only=True)
class Trip(Common):
    """An option of each kind on the command line."""

    image: tuple[Path, ...] = option(REQUIRED, "images", metavar="FILE...")
    words: int = option(50, "how many words", ge=1)
    rate: float = option(0.5, "how much", ge=0, lt=1)
    shares: tuple[float, ...] = option((0.0, 0.5), "shares", ge=0, le=1, commas=True)
    shifts: tuple[str, ...] = option((), "another text", repeated=True, flag="shift")
    loud: bool = option(False, "whether to shout")
    text: str | None = option(None, "a text (default: none)", metavar="TEXT")


def parsed(*words: str) -> Trip:
    made: list[Trip] = []
    tyro.cli(command(Trip)(made.append), args=words, config=(tyro.conf.FlagCreatePairsOff,))
    return made[0]


def test_a_command_is_given_its_options() -> None:
    assert parsed("here", "--image", "a", "b") == Trip(
        run=Path("here"), image=(Path("a"), Path("b"))
    )
    words = "here --image a --words 3 --shares 0,1 --shift x --shift y --loud --text None! --rate 0"
    assert parsed(*words.split(), "--device", "cpu") == Trip(
        run=Path("here"),
        image=(Path("a"),),
        words=3,
        shares=(0.0, 1.0),
        shifts=("x", "y"),
        loud=True,
        text="None!",
        rate=0.0,
        device="cpu",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--words", "0"], "--words is 0; it has to be 1 or more"),
        (["--shares", "0,x"], "--shares is '0,x'; give numbers from 0 to 1"),
        (["--shares", "0,2"], "--shares has 2; each has to be from 0 to 1"),
        (["--words", "x"], "--words is 'x'; it has to be a whole number"),
    ],
)
def test_what_cannot_be_meant_is_an_error_of_ours(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}"):
        parsed("here", "--image", "a", *words)


@pytest.mark.parametrize("words", [[], ["here"]])
def test_what_cannot_be_read_is_an_error_of_the_command_line(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parsed(*words)
    assert stopped.value.code == 2


def test_help_tells_default_and_range(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--help")
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for line in (
        "PATH folder of a run (required)",
        "--image FILE... images (required)",
        "--words N how many words (default: 50)",
        "--rate X how much (at least 0 and below 1; default: 0.5)",
        "--shares X,X,... shares (from 0 to 1; default: 0,0.5)",
        "--shift NAME another text --loud whether to shout --text TEXT a text (default: none)",
        "--device {auto,cpu} where to compute (default: auto)",
    ):
        assert line in shown
    assert shown.index("--text") < shown.index("--device"), "what is inherited comes last"


def test_options_of_several_kinds_of_runs() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Other(CheckedOptions):
        words: int = option(7, "how many words, of another kind of run")
        coco: int | None = option(None, "images")

    seen: list[dict[str, Any]] = []
    both = command_of_parts(Trip, Other)(seen.append)
    tyro.cli(both, args=["here", "--image", "a", "--words", "7", "--coco", "3"])
    (given,) = seen
    assert given == {"run": Path("here"), "image": (Path("a"),), "words": 7, "coco": 3}
    with pytest.raises(ConfigError, match=r"^--image, --words are for runs of .*trip`; leave them"):
        refuse_others({"trip": Trip}, {"words": 7, "image": ()})
    assert take(Trip, given).words == 7
    with pytest.raises(ConfigError, match=r"^--coco is for runs of .*other`; leave it out"):
        refuse_others({"trip": Trip, "other": Other}, given)
    assert take(Other, given) == Other(coco=3)
    assert given == {}
