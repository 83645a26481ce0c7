import shutil
import sys
from types import ModuleType

import pytest

from bayesrnn.errors import ConfigError, MissingExtraError
from bayesrnn.tasks.captions.official_scores import official_scores, require_official

SAID = [("a", "dog", "runs"), ("one", "cat")]
KNOWN = [[("a", "dog", "runs"), ("the", "dog")], [("a", "cat", "sleeps")]]


@pytest.fixture
def fake(monkeypatch):
    """Puts modules in the place of coco-caption's, with a scorer that notes what it is given."""
    given = []

    class Scorer:
        def __init__(self):
            print("loading")

        def compute_score(self, known, said):
            given.append((known, said))
            return 0.25, [0.0, 0.5]

    for name, kind in {"meteor.meteor": "Meteor", "spice.spice": "Spice"}.items():
        module = ModuleType(name)
        setattr(module, kind, Scorer)
        monkeypatch.setitem(sys.modules, f"pycocoevalcap.{name}", module)
        monkeypatch.setitem(sys.modules, f"pycocoevalcap.{name.split('.')[0]}", ModuleType("room"))
    monkeypatch.setitem(sys.modules, "pycocoevalcap", ModuleType("pycocoevalcap"))
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    return given


def test_scorers_get_texts_by_image(fake, capsys):
    assert official_scores(["METEOR", "SPICE"], SAID, KNOWN) == {"METEOR": 0.25, "SPICE": 0.25}
    known = {0: ["a dog runs", "the dog"], 1: ["a cat sleeps"]}
    assert fake == [(known, {0: ["a dog runs"], 1: ["one cat"]})] * 2
    assert capsys.readouterr().out == "", "scorers talk, but not between our figures"
    assert official_scores(["SPICE"], SAID, KNOWN) == {"SPICE": 0.25}
    assert official_scores([], SAID, KNOWN) == {}


@pytest.mark.parametrize("name", ["METEOR", "SPICE"])
def test_without_the_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocoevalcap", None)
    message = rf"^--{name.lower()} needs an extra: pip install 'bayesrnn\[coco-caption\]'$"
    with pytest.raises(MissingExtraError, match=message):
        require_official([name])
    require_official([])


def test_without_java(fake, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"^--meteor needs Java, .*install a Java runtime"):
        require_official(["METEOR"])
    assert fake == []


def test_a_program_that_fails_is_one_line(fake, monkeypatch):
    def fails(self, known, said):
        raise ValueError("could not convert string to float:\n b''")

    monkeypatch.setattr(sys.modules["pycocoevalcap.spice.spice"].Spice, "compute_score", fails)
    with pytest.raises(ConfigError) as caught:
        require_official(["SPICE"])
    assert "\n" not in str(caught.value)
    assert "ValueError: could not convert string to float: b''" in str(caught.value)
    assert "leave out --spice" in str(caught.value)


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_meteor_where_it_is_installed():
    pytest.importorskip("pycocoevalcap.meteor.meteor")
    if shutil.which("java") is None:
        pytest.skip("there is no Java")
    alike = official_scores(["METEOR"], [own[0] for own in KNOWN], KNOWN)["METEOR"]
    other = official_scores(["METEOR"], SAID, KNOWN)["METEOR"]
    nothing = official_scores(["METEOR"], [("red",), ("blue",)], KNOWN)["METEOR"]
    assert 1 >= alike > other > nothing == 0
