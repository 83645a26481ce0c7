"""Growth of time and memory, by work whose cost is known."""

import json
import time
from functools import partial

import pytest

from bayesrnn.cli.main import main
from bayesrnn.studies import bench_growth as growth
from bayesrnn.studies import bench_programs as programs
from bayesrnn.studies import commands
from bayesrnn.studies.bench_growth import Axis, bench_growth, exponent
from bayesrnn.studies.bench_page import bench_page

METHOD = {"ratio": 1.0, "memory_ratio": 1.0, "seconds": 0.25, "megabytes": 500.0}


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_exponent_is_that_of_a_power(power):
    values = [10, 20, 50]
    assert exponent(values, [3 * value**power for value in values]) == pytest.approx(power)


@pytest.fixture
def pretended(monkeypatch):
    """Work that takes as long as the square of its value, and memory that is the value."""
    now = [0.0]

    def wait(value):
        now[0] += value**2

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(growth, "in_own_process", lambda function, make, kind, value, *_: value)
    return lambda kind, value, folder: partial(wait, value)


def test_each_kind_is_measured_along_each_axis(pretended, capsys):
    axes = (
        Axis("words", (2, 4, 8), ("plain", "bbb"), pretended),
        Axis("draws", (1, 3), ("predict",), pretended),
    )
    found = bench_growth(2, axes)
    assert found["words"]["bbb"]["seconds"] == [4, 16, 64]
    assert found["draws"]["predict"]["megabytes"] == [1, 3]
    for kinds in found.values():
        for kind in kinds.values():
            assert kind["exponent_of_seconds"] == pytest.approx(2)
            assert kind["exponent_of_megabytes"] == pytest.approx(1)
    assert "predict   grows like draws^2.00 in time, ^1.00 in memory" in capsys.readouterr().out
    page = bench_page({"plain": METHOD, "growth": found}, 4)
    assert page.count("<h2>") == 3
    assert "bbb grows like words^2.00 in time, words^1.00 in memory" in page


def test_works_are_steps_of_training_and_predictions(tmp_path):
    for make in (growth.trained_words, growth.trained_units):
        step = make("bbb", 30, tmp_path / make.__name__)
        assert step().terms["kl"] > 0
    prediction = growth.predicted_draws("predict", 2, tmp_path)()
    assert prediction.mean.shape == (growth.UNROLL, 1, 10_000)


def test_tasks_without_their_data_are_left_out(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("BAYESRNN_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    names = {name: programs.TASKS[name] for name in ("captions", "forecast")}
    monkeypatch.setattr(programs, "TASKS", names)
    rows = programs.task_rates(2)
    assert list(rows) == ["forecast"]
    assert rows["forecast"]["per_second"] > 0
    assert "captions is left out: " in capsys.readouterr().err


def test_passes_are_compared_with_those_of_the_mean(monkeypatch):
    monkeypatch.setattr(programs, "PASSES", ((2, 3),))
    rows = programs.passes(1, vocabulary=50, hidden=4)
    assert [name.split(",")[0] for name in rows] == ["mean", "draw", "kept draw"]
    assert rows["mean, 2 x 3 words"]["ratio"] == 1


def test_all_is_in_one_file_and_on_one_page(monkeypatch, tmp_path, capsys):
    started = {"bayesrnn --version": {"seconds": 0.1}}
    passes = {"mean": {"seconds": 0.5, "per_second": 4.0, "ratio": 1.0}}
    monkeypatch.setattr(commands, "bench", lambda *_: {"plain": METHOD})
    monkeypatch.setattr(commands, "bench_growth", lambda turns: {})
    monkeypatch.setattr(programs, "start_ups", lambda turns: started)
    monkeypatch.setattr(programs, "task_rates", lambda turns: {})
    monkeypatch.setattr(programs, "passes", lambda turns: passes)
    files = ["--html", str(tmp_path / "bench.html"), "--json", str(tmp_path / "bench.json")]
    assert main(["bench", "--growth", "--programs", *files]) == 0
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["plain"] == METHOD
    assert found["programs"] == {"start-up": started, "training": {}, "passes": passes}
    page = (tmp_path / "bench.html").read_text()
    assert "bayesrnn --version" in page
    assert "4 words" in page
    assert "1.00x the mean" in capsys.readouterr().out
    assert main(["bench", "--pruned", "--growth"]) == 1
    assert main(["bench", "--processor"]) == 1
    assert "give --threads 1" in capsys.readouterr().err
    assert main(["bench", "--quickstart"]) == 1
    assert "--quickstart goes with --programs" in capsys.readouterr().err


def test_start_up_is_measured_in_new_processes(monkeypatch):
    monkeypatch.setattr(programs, "STARTS", {"nothing": ("-c", "pass")})
    assert programs.start_ups(1)["nothing"]["seconds"] > 0
