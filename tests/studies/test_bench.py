import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from bayesrnn.cli.main import main
from bayesrnn.errors import ConfigError, MissingExtraError
from bayesrnn.methods import METHODS
from bayesrnn.studies import bench as module
from bayesrnn.studies.bench import BenchOptions, bench
from bayesrnn.training.averaging import EVERY


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
    monkeypatch.setattr(module, "_peak_memories", lambda names, _: {n: len(n) for n in names})
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


def test_only_the_methods_that_are_named_beside_plain(small_bench, capsys):
    assert main(["bench", "--steps", "2", "--methods", "bbb, dropout"]) == 0
    assert set(small_bench) == {"plain", "dropout", "bbb"}
    assert main(["bench", "--methods", "bbbb"]) == 1
    assert "--methods has bbbb; there are: plain, " in capsys.readouterr().err
    assert main(["bench", "--pruned", "--methods", "bbb"]) == 1
    assert "--methods is for training" in capsys.readouterr().err


def test_each_method_is_measured_with_averaged_parameters_as_well(small_bench, capsys):
    """In turns that an update of the average is in; not where parameters cannot be averaged."""
    assert main(["bench", "--steps", "20", "--methods", "bbb,sgld", "--averaged"]) == 0
    names = ["plain", "plain averaged", "bbb", "bbb averaged", "sgld"]
    assert small_bench == [name for name in names for _ in range(EVERY)] * 3  # one to warm up
    assert "bbb averaged" in capsys.readouterr().out
    assert main(["bench", "--pruned", "--averaged"]) == 1
    assert "--averaged is for training" in capsys.readouterr().err


def test_methods_with_a_sigma_are_measured_with_widths_that_learn_as_well(small_bench, capsys):
    assert main(["bench", "--steps", "2", "--methods", "bbb,dropout", "--learnt"]) == 0
    assert set(small_bench) == {"plain", "dropout", "bbb", "bbb learnt"}
    assert "bbb learnt" in capsys.readouterr().out
    assert main(["bench", "--pruned", "--learnt"]) == 1
    assert "--learnt is for training" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "average", "prior", "sigma_lr"),
    [
        ("bbb", 0.0, "mixture", 0.0),
        ("bbb averaged", 0.998, "mixture", 0.0),
        ("bbb learnt", 0.0, "fitted", 1.0),
        ("bbb learnt averaged", 0.998, "fitted", 1.0),
    ],
)
def test_a_step_is_that_of_what_the_name_says(monkeypatch, name, average, prior, sigma_lr):
    def made(task, config, *_):
        assert (config.method, config.average) == ("bbb", average)
        assert (config.options["prior"], config.options["sigma_lr"]) == (prior, sigma_lr)
        return SimpleNamespace(step="the step")

    monkeypatch.setattr(module, "make_trainer", made)
    assert module.make_step(name, Path()) == "the step"


def test_a_method_whose_extra_is_missing_is_left_out(small_bench, monkeypatch, capsys):
    pretended = module.make_step

    def make_step(name, folder):
        if name == "dropout":
            raise MissingExtraError("it needs an extra")
        return pretended(name, folder)

    monkeypatch.setattr(module, "make_step", make_step)
    assert set(bench(2)) == set(METHODS) - {"dropout"}
    assert "dropout is left out: it needs an extra" in capsys.readouterr().err


def test_too_few_steps_are_refused():
    with pytest.raises(ConfigError, match="--steps"):
        BenchOptions(steps=1)


def test_busy_machine_is_measured_by_the_processor(small_bench, monkeypatch, capsys):
    """Where the clock goes on without the program, its own seconds do not."""
    own = [0.0]
    monkeypatch.setattr(time, "process_time", lambda: own[0])
    pretended = module.make_step

    def make_step(name, folder):
        step = pretended(name, folder)

        def counted():
            step()
            own[0] += 1.25 if name == "bbb" else 1.0

        return counted

    monkeypatch.setattr(module, "make_step", make_step)
    assert bench(6, threads=1, methods=("bbb",), processor=True)["bbb"]["ratio"] == 0.8
