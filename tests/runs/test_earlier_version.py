"""Runs and compact files of version 0.1 can still be read, evaluated and trained on."""

import json
import math
import shutil
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures" / "version-0.1"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())
RUNS = tuple(EXPECTED["resumed"])
COMPACT = tuple(name for name in EXPECTED["evaluate"] if name not in RUNS)

#: Methods whose noise in training may come in another order: other figures after the next epoch.
NOISY = ("lm", "sentiment")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A copy to work in: the runs name their data by paths relative to it."""
    shutil.copytree(FIXTURES, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")


def flat(value, *path):
    """The leaves of nested JSON by their path."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {
            place: leaf for key, part in items for place, leaf in flat(part, *path, key).items()
        }
    return {path: value}


def assert_has(found, expected, tolerance):
    """All that was there is there, and numbers are the same but for rounding."""
    found, expected = flat(found), flat(expected)
    assert expected.keys() <= found.keys()
    for place, value in expected.items():
        if isinstance(value, float):
            value = pytest.approx(value, rel=tolerance, abs=1e-9)
        assert found[place] == value, place


@pytest.mark.parametrize("samples", ["0", "3"])
@pytest.mark.parametrize(
    ("name", "tolerance"), [*((r, 1e-5) for r in RUNS), *((c, 1e-4) for c in COMPACT)]
)
def test_figures_are_what_they_were(program, name, tolerance, samples):
    code, out, errors = program("evaluate", name, "--samples", samples, "--json", "-")
    assert code == 0, errors
    assert_has(json.loads(out), EXPECTED["evaluate"][name][samples], tolerance)


@pytest.mark.parametrize("name", RUNS)
def test_runs_are_examined(program, name):
    code, out, errors = program("doctor", name, "--samples", "2", "--json", "-")
    assert code == 0, errors
    found = json.loads(out)
    assert found["course"]["best"] == 1
    assert math.isfinite(found["nats"]["gained"])


@pytest.mark.parametrize("name", RUNS)
def test_training_goes_on(program, name):
    code, _, errors = program("train", name, "--resume", "--out", name, "--epochs", 2)
    assert code == 0, errors
    found = json.loads(Path(name, "metrics.jsonl").read_text().splitlines()[-1])
    expected = EXPECTED["resumed"][name]
    if name in NOISY:
        numbers = [value for value in found.values() if isinstance(value, float)]
        assert all(map(math.isfinite, numbers))
        expected = {key: value for key, value in expected.items() if not isinstance(value, float)}
        expected.pop("best")
    assert_has(found, expected, 1e-4)
