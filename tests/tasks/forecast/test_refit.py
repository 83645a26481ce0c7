"""`bayesrnn evaluate --refit N`: networks trained anew on the way through the test windows."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bayesrnn.errors import ConfigError
from bayesrnn.runs.evaluation import EvaluationSettings
from bayesrnn.tasks.forecast.data import ForecastData
from bayesrnn.tasks.forecast.evaluate import BacktestOptions
from bayesrnn.tasks.forecast.refit import refitted
from bayesrnn.tasks.forecast.task import TASK, ForecastTask

from .made_up import noisy_week
from .test_forecasting import ONE, SMALL, write_csv


@pytest.fixture
def train(program, tmp_path):
    """A function that trains on values; gives the folder."""

    def trained(target, name="run", *options, windows="4"):
        data = write_csv(tmp_path / f"{name}.csv", target)
        folder = tmp_path / name
        own = ("--data", data, "--out", folder, "--method", "bbb", *options)
        slices = ("--validation-windows", "2", "--calibration-windows", "2")
        given = (*SMALL, *ONE, *slices, "--test-windows", windows)
        code, _, errors = program("train", "forecast", *given, *own)
        assert code == 0, errors
        return folder

    return trained


def test_each_part_is_forecast_by_a_network_of_what_lies_before_it(train, program, tmp_path):
    target = noisy_week(150)
    folder = train(target)
    out = tmp_path / "found.json"
    code, text, errors = program("evaluate", folder, "--refit", "1", "--json", out)
    assert code == 0, errors
    assert "training anew, 1 of 1, up to 14 values before the end" in errors
    assert "trained anew 1 time" in text
    kept = json.loads((folder / "results" / "test-refit1-mean.json").read_text())
    assert kept["refit"] == 1
    assert kept["windows"] == 4
    assert kept["by_window"]["start"] == [122, 129, 136, 143]
    # The first two windows are those of the run as it is, the last two those of a run on all that
    # lies before them, which is the same with a file that ends there.
    code, _, errors = program("evaluate", folder)
    assert code == 0, errors
    plain = json.loads((folder / "results" / "test-mean.json").read_text())
    # Of other paths, since there are fewer windows side by side.
    first = plain["by_window"]["mase"][:2]
    assert kept["by_window"]["mase"][:2] == pytest.approx(first, rel=0.2)
    other = train(target, "other", windows="2")
    code, _, errors = program("evaluate", other)
    assert code == 0, errors
    later = json.loads((other / "results" / "test-mean.json").read_text())
    np.testing.assert_allclose(kept["by_window"]["mase"][2:], later["by_window"]["mase"])
    assert kept["coverage_calibrated"].keys() == plain["coverage_calibrated"].keys()
    code, text, errors = program("compare", folder)
    assert code == 0, errors
    assert "refitted" in text
    assert "anew 1 time" in text


def test_every_part_is_on_the_device_of_its_run(train, monkeypatch):
    folder = train(noisy_week(120), windows="2")
    run = TASK.open_run(folder)
    data, moved = TASK.load(run.config), []
    monkeypatch.setattr(ForecastData, "to", lambda self, device: moved.append(self) or self)
    folds = refitted(ForecastTask, run, data, data.places("test"), 1)
    assert [any(fold.data is one for one in moved) for fold in folds] == [True, True]


def test_what_cannot_be_trained_anew_is_refused(train, program):
    folder = train(noisy_week(150))
    for options, message in (
        (("--refit", "4"), "give at most 3"),
        (("--refit", "1", "--windows", "1"), "give at most 0"),
        (("--refit", "1", "--split", "valid"), "--split is valid"),
    ):
        code, _, errors = program("evaluate", folder, *options)
        assert code == 1
        assert message in errors
    run = TASK.open_run(folder)
    places = run.data().places("test")
    file = replace(run, path=folder / "config.toml")
    with pytest.raises(ConfigError, match="pruned"):
        refitted(ForecastTask, file, run.data(), places, 1)


def test_series_that_had_not_begun_are_left_out_of_a_part(program, tmp_path):
    lines = ["id,ds,y"]
    for name, first, length in (("old", 0, 150), ("new", 140, 10)):
        days = np.datetime64("2001-01-01") + np.arange(first, first + length)
        values = noisy_week(length, seed=length)
        lines += [f"{name},{day},{y:.4f}" for day, y in zip(days, values, strict=True)]
    data, folder = tmp_path / "both.csv", tmp_path / "run"
    data.write_text("\n".join(lines) + "\n")
    options = ("--data", data, "--out", folder, "--method", "plain", "--calibration-windows", "0")
    code, _, errors = program("train", "forecast", *SMALL, *ONE, *options)
    assert code == 0, errors
    settings = EvaluationSettings(device="cpu")
    found = TASK.evaluate(folder, settings, BacktestOptions(refit=2, windows=3))
    assert found.asked.by_window["series"] == (0, 0, 0)
    assert found.asked.coverage_calibrated is None


def test_a_bound_is_that_of_all_parts(train):
    folder = train(noisy_week(150), "run", "--method", "sharpened")
    options = BacktestOptions(refit=1, paths=20)
    found = TASK.evaluate(folder, EvaluationSettings(samples=2, device="cpu"), options)
    bound = found.rows[-1]
    assert bound.inference == "refit1-bound"
    assert bound.values == 4 * (28 + 7)  # the context, too
    assert bound.kl > 0
