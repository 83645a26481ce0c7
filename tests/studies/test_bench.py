import json
import time

import pytest
import torch
from tqdm import tqdm

from bayesrnn.cli.main import main
from bayesrnn.errors import ConfigError, MissingExtraError
from bayesrnn.methods import METHODS
from bayesrnn.studies import bench as module
from bayesrnn.studies import bench_pruned as pruned
from bayesrnn.studies.bench import bench
from bayesrnn.studies.bench_pruned import FORMS, FRACTIONS, READINGS, Network, Reading, bench_pruned


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
        bench(1)


@pytest.fixture
def small_pruned(monkeypatch):
    """The benchmark of pruned networks where sparse ones take half of the time and memory."""
    now = [0.0]
    calls = []

    def make_reader(network, fraction, form, reading):
        def read():
            calls.append(form)
            now[0] += reading.read * (2e-3 if form == "dense" else 1e-3)

        return read

    def memory(network, fraction, form, reading, bar):
        bar.update()
        return 10.0 if form == "dense" else 5.0

    monkeypatch.setattr(pruned, "make_reader", make_reader)
    monkeypatch.setattr(pruned, "_apart", memory)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return calls


def test_pruned_networks_are_compared_with_dense_ones_in_turns(small_pruned, capsys):
    result = bench_pruned(3)
    assert list(result) == ["0%", "80%", "95%"]
    for readings in result.values():
        assert list(readings) == [reading.name for reading in READINGS]
        for forms in readings.values():
            assert forms["dense"] == pytest.approx(
                {"ratio": 1, "memory_ratio": 1, "seconds_per_word": 2e-3, "megabytes": 10}
            )
            half = {"ratio": 2, "memory_ratio": 0.5, "seconds_per_word": 1e-3, "megabytes": 5}
            assert forms["memory"] == forms["speed"] == pytest.approx(half)
    assert small_pruned == list(FORMS) * (4 * len(READINGS) * len(FRACTIONS))  # one to warm up
    assert "2.00x" in capsys.readouterr().out


def test_json_of_the_pruned_benchmark(small_pruned, tmp_path, capsys):
    file = tmp_path / "bench.json"
    assert main(["bench", "--pruned", "--steps", "2", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert set(found["95%"]["one stream"]) == {"dense", "memory", "speed"}
    assert main(["bench", "--pruned", "--steps", "1"]) == 1
    assert "--steps is 1" in capsys.readouterr().err


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_the_measured_networks_have_lost_what_they_should(fraction):
    network = Network(vocabulary=300, hidden=40)
    dense = pruned.make_model(network, fraction, "dense", 1)
    weights = [weight for weight in dense.parameters() if weight.dim() > 1]
    left = sum(int(weight.count_nonzero()) for weight in weights)
    assert 1 - left / sum(w.numel() for w in weights) == pytest.approx(fraction, abs=0.01)
    words = torch.arange(12).view(4, 3)
    with torch.no_grad():
        expected = dense(words)[0]
    for form in ("memory", "speed"):
        found = pruned.make_model(network, fraction, form, 3)(words)[0]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_resident_memory_of_a_network():
    """In processes of their own: 12 MB of weights, and a twentieth of them left."""
    network, reading = Network(vocabulary=10_000, hidden=150), Reading("words", 1, 1)
    with tqdm(disable=True) as bar:
        dense = pruned._apart(network, 0.95, "dense", reading, bar)
        small = pruned._apart(network, 0.95, "memory", reading, bar)
    assert dense > 10
    assert small < dense / 2
