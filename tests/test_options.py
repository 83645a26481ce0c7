import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayesrnn.errors import ConfigError
from bayesrnn.options import REQUIRED, CheckedOptions, from_toml, option, options_of, to_toml


@dataclass(frozen=True, kw_only=True)
class Everything(CheckedOptions):
    """An option of each kind."""

    folder: Path = option(Path("here"), "a folder")
    count: int = option(3, "how many", gt=0)
    rate: float = option(0.5, "how much", ge=0, lt=1)
    share: float | None = option(None, "which share", gt=0, le=1)
    between: float = option(0.9, "in between", gt=0, lt=1)
    beam: int = option(3, "how wide", ge=1, le=100)
    draws: int = option(0, "how many draws", ge=0, zero="none")
    limit: float = option(0.0, "up to", le=5)
    below: float = option(0.0, "less than", lt=5)
    free: float = option(0.0, "any number")
    word: str = option("", "a text")
    kind: Literal["red", "blue"] = option("red", "of two kinds")
    size: str = option("small", "a size", choices={"small": 1, "large": 2})
    loud: bool = option(False, "whether to shout")
    names: tuple[str, ...] = option((), "names", commas=True)
    parts: tuple[str, ...] = option((), "parts", commas=True, choices=("one", "two"))
    counts: tuple[int, ...] = option((0, 5), "numbers", commas=True, ge=0)
    shares: tuple[float, ...] = option((0.5,), "shares", commas=True, ge=0, le=1)
    places: tuple[Path, ...] = option((), "places")
    inner: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"count": 0}, "--count is 0; it has to be above 0"),
        ({"count": 10**400 * -1}, "--count is -1000000"),
        ({"rate": -1.0}, "--rate is -1; it has to be at least 0 and below 1"),
        ({"rate": 1}, "--rate is 1; it has to be at least 0 and below 1"),
        ({"rate": 1.00000001}, "--rate is 1.00000001; it has to be at least 0 and below 1"),
        ({"rate": math.nan}, "--rate is nan; it has to be at least 0 and below 1 and finite"),
        ({"share": 0.0}, "--share is 0; it has to be above 0 and at most 1"),
        ({"share": 1.5}, "--share is 1.5; it has to be above 0 and at most 1"),
        ({"between": 1.0}, "--between is 1; it has to be between 0 and 1"),
        ({"beam": 101}, "--beam is 101; it has to be from 1 to 100"),
        ({"draws": -1}, r"--draws is -1; it has to be 0 \(none\) or more"),
        ({"limit": 5.5}, "--limit is 5.5; it has to be at most 5"),
        ({"below": 5}, "--below is 5; it has to be below 5"),
        ({"free": math.inf}, "--free is inf; it has to be finite"),
        ({"free": None}, "--free is None; it has to be a number"),
        ({"free": True}, "--free is True; it has to be a number"),
        ({"count": 1.0}, "--count is 1.0; it has to be a whole number"),
        ({"count": "3"}, "--count is '3'; it has to be a whole number"),
        ({"word": 3}, "--word is 3; it has to be a text"),
        ({"loud": 1}, "--loud is 1; it has to be true or false"),
        ({"folder": 3}, "--folder is 3; it has to be the path of a file or folder"),
        ({"kind": "green"}, "--kind is 'green'; there are: red, blue"),
        ({"kind": ["red"]}, r"--kind is \['red'\]; there are: red, blue"),
        ({"size": None}, "--size is None; there are: small, large"),
        ({"names": " ,"}, "--names is ' ,', which has no name; give names with commas between"),
        ({"names": ("a", 1)}, r"--names is \('a', 1\); it has to be a text or a list of texts"),
        ({"parts": "one,three,four"}, "--parts has three, four; there are: one, two"),
        ({"counts": "1,two"}, "--counts is '1,two'; give whole numbers with .*, such as 0,5$"),
        ({"counts": ""}, "--counts is ''; give whole numbers"),
        ({"counts": ()}, "--counts is empty; give whole numbers"),
        ({"counts": (5, -1)}, "--counts has -1; each has to be 0 or more"),
        ({"counts": [0.5]}, r"--counts is \[0.5\]; it has to be a list of whole numbers"),
        ({"shares": "a"}, "--shares is 'a'; give numbers from 0 to 1 with commas between"),
        ({"shares": "0.5,nan"}, "--shares has nan; each has to be from 0 to 1 and finite"),
        ({"places": 3}, "--places is 3; it has to be a path or a list of paths"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_in_the_users_words(wrong, words):
    with pytest.raises(ConfigError, match=f"^{words}"):
        Everything(**wrong)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"folder": "there"}, {"folder": Path("there")}),
        ({"rate": 0}, {"rate": 0}),
        ({"share": None}, {"share": None}),
        ({"share": 1}, {"share": 1}),
        ({"beam": 100}, {"beam": 100}),
        ({"names": "b, a,b,"}, {"names": ("b", "a")}),
        ({"names": ""}, {"names": ()}),
        ({"names": ["a"]}, {"names": ("a",)}),
        ({"counts": "3, 1,3"}, {"counts": (3, 1, 3)}),
        ({"shares": "0,1"}, {"shares": (0.0, 1.0)}),
        ({"places": ["a", Path("b")]}, {"places": (Path("a"), Path("b"))}),
        ({"places": "a,b"}, {"places": (Path("a,b"),)}),
    ],
    ids=str,
)
def test_what_is_given_is_kept_as_the_program_has_it(given, kept):
    made = Everything(**given)
    assert {name: getattr(made, name) for name in kept} == kept


def test_the_options_of_a_dataclass_can_be_listed():
    found = {item.name: item for item in options_of(Everything)}
    assert "inner" not in found
    share = found["share"]
    assert (share.kind, share.default, share.optional, share.is_list) == (float, None, True, False)
    assert (share.gt, share.ge, share.lt, share.le) == (0, None, None, 1)
    assert (found["counts"].kind, found["counts"].is_list) == (int, True)
    assert found["kind"].choices == ("red", "blue")
    assert found["size"].choices == ("small", "large")
    assert found["size"].help == "a size"


def test_an_option_may_have_to_be_given():
    @dataclass(frozen=True, kw_only=True)
    class Needy(Everything):
        run: Path = option(REQUIRED, "folder of a run")

    assert {item.name: item.default for item in options_of(Needy)}["run"] is REQUIRED
    assert Needy(run=Path("x"), count=4).count == 4
    with pytest.raises(TypeError, match="run"):
        Needy()
    with pytest.raises(ConfigError, match="--count is 0"):
        Needy(run=Path("x"), count=0)


def test_a_name_of_its_own_is_used_in_messages():
    @dataclass(frozen=True)
    class Named(CheckedOptions):
        shifts: tuple[str, ...] = option((), "texts", flag="shift")

    with pytest.raises(ConfigError, match=r"^--shift is 3"):
        Named(shifts=3)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.one_of(
    texts,
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(texts, max_size=3),
)
names = st.text("abc_", min_size=1, max_size=8)


@given(st.dictionaries(names, values), st.dictionaries(names, values, min_size=1))
def test_toml_round_trip(flat, table):
    flat.pop("table", None)
    assert from_toml(to_toml({**flat, "table": table}), "test") == {**flat, "table": table}


@given(
    folder=texts,
    count=st.integers(1, 2**60),
    rate=st.floats(0, 1, exclude_max=True),
    share=st.none() | st.floats(0, 1, exclude_min=True),
    word=texts,
    loud=st.booleans(),
    names=st.lists(texts, max_size=3).map(tuple),
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple),
)
def test_options_survive_a_file(folder, **given):
    made = Everything(folder=Path(folder), **given)
    assert Everything(**from_toml(to_toml(vars(made)), "test")) == made


def test_toml_leaves_out_what_is_none():
    assert to_toml({"a": None, "b": 1, "t": {"c": None, "d": 2}}) == "b = 1\n\n[t]\nd = 2\n"


def test_what_is_not_toml_is_refused():
    with pytest.raises(ConfigError, match=r"my/config\.toml is not a TOML file"):
        from_toml("epochs 3", "my/config.toml")
