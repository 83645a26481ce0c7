import json
import subprocess
import time
from types import SimpleNamespace

import pytest
import torch

from bayesrnn.cli.main import main
from bayesrnn.studies import bench_pruned as pruned
from bayesrnn.studies import machine
from bayesrnn.studies.bench_pruned import FORMS, FRACTIONS, WORKLOADS, ModelSize, bench_pruned


@pytest.fixture
def small_pruned(monkeypatch):
    """The benchmark of pruned networks where sparse ones take half of the time and memory."""
    now = [0.0]
    calls = []

    def make_reader(size, fraction, form, workload):
        def read():
            calls.append(form)
            now[0] += workload.read * (2e-3 if form == "dense" else 1e-3)

        return read

    def memory(size, fraction, form, workload, bar):
        bar.update()
        return 10.0 if form == "dense" else 5.0

    monkeypatch.setattr(pruned, "make_reader", make_reader)
    monkeypatch.setattr(pruned, "_apart", memory)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return calls


def test_pruned_networks_are_compared_with_dense_ones_in_turns(small_pruned, capsys):
    result = bench_pruned(3)
    assert list(result) == ["0%", "80%", "95%"]
    for workloads in result.values():
        assert list(workloads) == [workload.name for workload in WORKLOADS]
        for forms in workloads.values():
            assert forms["dense"] == pytest.approx(
                {"ratio": 1, "memory_ratio": 1, "seconds_per_word": 2e-3, "megabytes": 10}
            )
            half = {"ratio": 2, "memory_ratio": 0.5, "seconds_per_word": 1e-3, "megabytes": 5}
            assert forms["memory"] == forms["speed"] == pytest.approx(half)
    assert small_pruned == list(FORMS) * (4 * len(WORKLOADS) * len(FRACTIONS))  # one to warm up
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
    size = ModelSize(vocabulary=300, hidden=40)
    dense = pruned.make_model(size, fraction, "dense")
    weights = [weight for weight in dense.parameters() if weight.dim() > 1]
    left = sum(int(weight.count_nonzero()) for weight in weights)
    assert 1 - left / sum(w.numel() for w in weights) == pytest.approx(fraction, abs=0.01)
    words = torch.arange(12).view(4, 3)
    with torch.no_grad():
        expected = dense(words)[0]
    for form in ("memory", "speed"):
        found = pruned.make_model(size, fraction, form)(words)[0]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_memory_is_what_grew_while_a_network_was_made_and_read(monkeypatch):
    held = iter([100.0, 112.0])
    made = []
    monkeypatch.setattr(pruned, "resident_megabytes", lambda: next(held))
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(
        pruned, "make_reader", lambda size, *others: lambda: made.append(size.vocabulary)
    )
    size = ModelSize(vocabulary=300, hidden=40)
    assert pruned.resident_growth(size, 0.8, "memory", WORKLOADS[0], threads=1) == 12.0
    assert made == [50] * len(FORMS) + [300, 300]  # the small ones before anything is counted


@pytest.mark.parametrize(("peak", "megabytes"), [(False, 2.0), (True, 3.0)])
def test_resident_memory_is_read_from_the_status_of_the_process(
    tmp_path, monkeypatch, peak, megabytes
):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmHWM:\t    3072 kB\nVmRSS:\t    2048 kB\n")
    monkeypatch.setattr(machine, "STATUS", status)
    assert machine.resident_megabytes(peak) == megabytes


def test_resident_memory_without_a_status(tmp_path, monkeypatch):
    """From `ps` now, from the system's account of the process at its peak."""
    monkeypatch.setattr(machine, "STATUS", tmp_path / "nothing")
    shown = subprocess.CompletedProcess([], 0, stdout="  2048\n")
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: shown)
    assert machine.resident_megabytes() == 2.0
    usage = SimpleNamespace(ru_maxrss=3 * 2**20)
    monkeypatch.setattr("resource.getrusage", lambda who: usage)
    for platform, megabytes in (("darwin", 3.0), ("linux", 3072.0)):
        monkeypatch.setattr(machine.sys, "platform", platform)
        assert machine.resident_megabytes(peak=True) == megabytes
