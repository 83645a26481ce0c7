import json
import time

import pytest

from bayesrnn.cli import main
from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.tasks import bench as module
from bayesrnn.tasks.bench import bench


@pytest.fixture
def small_bench(monkeypatch):
    """The benchmark on steps that only pretend to work: twice as long for bbb."""
    now = [0.0]
    calls = []

    def make_step(name, folder):
        def step():
            calls.append(name)
            now[0] += 2.0 if name == "bbb" else 1.0

        return step

    monkeypatch.setattr(module, "make_step", make_step)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(module, "_peak_memories", lambda names: {n: len(n) for n in names})
    monkeypatch.setattr(module, "installed_rivals", list)
    return calls


def test_ratios_are_to_plain_and_methods_take_turns(small_bench, capsys):
    result = bench(6)
    assert result["bbb"]["ratio"] == 0.5
    assert result["plain"]["ratio"] == result["dropout"]["ratio"] == 1.0
    assert result["bbb"]["memory_ratio"] == len("bbb") / len("plain")
    turn = [name for method in METHODS for name in (method, method)]
    assert small_bench == turn * 4  # one to warm up
    assert "0.50x" in capsys.readouterr().out


def test_json_has_one_entry_per_method(small_bench, tmp_path, capsys):
    assert main(["bench", "--steps", "2", "--json", str(tmp_path / "bench.json")]) == 0
    found = json.loads((tmp_path / "bench.json").read_text())
    assert set(found) == set(METHODS)
    assert {"ratio", "memory_ratio"} <= set(found["bbb"])


def test_too_few_steps_are_refused():
    with pytest.raises(ConfigError, match="--steps"):
        bench(1)
