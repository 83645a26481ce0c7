"""`bayesrnn compare` of forecasters: which differences are more than chance."""

import json

import numpy as np
import pytest
import torch

from bayesrnn.tasks.forecast.compare import ForecastLine, compared_lines, forecast_table
from bayesrnn.untrusted import unsealed

from .made_up import noisy_week
from .test_forecasting import ONE, SMALL, write_csv


def line(mase, run="a", starts=None, problem=("births", 7, 7)):
    mase = torch.as_tensor(mase, dtype=torch.double)
    count = len(mase)
    starts = range(count) if starts is None else starts
    ones = torch.ones(count, dtype=torch.double)
    by_window = {"mase": mase, "msis": mase, "pinball": mase / 10, "size": ones}
    by_window |= {"held_80": 0.8 * ones, "values": ones}
    keys = tuple((0, start, 1.0) for start in starts)
    return ForecastLine(run, "mean", problem, keys, by_window)


def test_differences_are_paired_and_called_real_where_they_exclude_0():
    rng = np.random.default_rng(0)
    hard = rng.uniform(0.5, 5.0, 40)  # windows differ much more than runs do
    first = line(hard)
    better, alike = line(hard - 0.1 + rng.normal(0, 0.02, 40)), line(hard + rng.normal(0, 0.3, 40))
    _, one, other = compared_lines([first, better, alike])
    value, low, high = one.differences["MASE"]
    assert value == pytest.approx(-0.1, abs=0.01)
    assert -0.12 < low < value < high < -0.08
    apart = (better.by_window["mase"] - first.by_window["mase"]).std().item() / 40**0.5
    assert (high - low) / 2 == pytest.approx(1.96 * apart, rel=0.15)
    assert one.differences["80% holds"].value == pytest.approx(0.0)
    _, low, high = other.differences["MASE"]
    assert low < 0 < high
    text = forecast_table([first, one, other], []).text()
    assert text.count("real") == 3  # MASE, WQL and MSIS of the better one


def test_windows_of_both_alone_are_compared():
    first, later = line(np.arange(10.0)), line(np.arange(5.0, 15.0) + 1, starts=range(5, 15))
    _, found = compared_lines([first, later])
    assert found.differences["MASE"].value == pytest.approx(1.0)
    apart = [line(np.ones(10), starts=range(8, 18)), line(np.ones(10), problem=("jobs", 7, 7))]
    assert not any(one.differences for one in compared_lines([first, *apart])[1:])


def test_runs_are_compared_by_what_evaluate_kept(program, tmp_path):
    data = write_csv(tmp_path / "sales.csv", noisy_week(150))
    runs = [tmp_path / "one", tmp_path / "other"]
    for seed, run in enumerate(runs):
        options = ("--data", data, "--out", run, "--method", "plain", "--seed", seed)
        code, _, errors = program("train", "forecast", *SMALL, *ONE, *options)
        assert code == 0, errors
        code, _, errors = program("evaluate", run)
        assert code == 0, errors
    page = tmp_path / "page.html"
    code, text, errors = program("compare", *runs, "--out", page)
    assert code == 0, errors
    assert "80% holds" in text
    assert "paired bootstrap over" in text
    assert "Forecasts side by side" in page.read_text()
    kept = unsealed(json.loads((runs[0] / "results" / "test-mean.json").read_text()))
    assert kept["by_window"]["start"] == [122, 129, 136, 143]
    assert np.mean(kept["by_window"]["mase"]) == pytest.approx(kept["mase"])
    # A result of a version that kept no windows is shown without a difference.
    del kept["by_window"]
    (runs[0] / "results" / "test-mean.json").write_text(json.dumps(kept))
    code, text, errors = program("compare", *runs)
    assert code == 0, errors
    assert "no scores by window: one; run `bayesrnn evaluate` again" in text
    kept["by_window"] = {"series": [0]}
    (runs[0] / "results" / "test-mean.json").write_text(json.dumps(kept))
    code, _, errors = program("compare", *runs)
    assert code == 1
    assert "does not have the windows that it should" in errors
