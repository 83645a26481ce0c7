"""`bayesrnn uncertainty` of forecasters: what intervals hold, by what values have in common."""

import json

import numpy as np
import pytest
import torch

from bayesrnn.random import seeded
from bayesrnn.tasks.forecast import resampling
from bayesrnn.tasks.forecast.data import Wishes, prepare
from bayesrnn.tasks.forecast.measured_windows import WHOLE, measured_windows
from bayesrnn.tasks.forecast.resampling import drawn_ratios, interval, ratios, times_drawn
from bayesrnn.tasks.forecast.uncertainty_results import BY_HISTORY, BY_NOVELTY, BY_SERIES, BY_STEP

from .made_up import daily, noisy_week
from .test_forecasting import ONE, SMALL, write_csv


@pytest.fixture
def long_and_short(program, tmp_path):
    """A run of a long series and one too short to train on."""
    lines = ["id,ds,y"]
    for name, length in (("long", 200), ("short", 40)):
        days = np.datetime64("2001-01-01") + np.arange(length)
        values = noisy_week(length, seed=length)
        lines += [f"{name},{day},{y:.4f}" for day, y in zip(days, values, strict=True)]
    data = tmp_path / "both.csv"
    data.write_text("\n".join(lines) + "\n")
    folder = tmp_path / "run"
    options = ("--data", data, "--out", folder, "--method", "bbb", "--calibration-windows", "2")
    code, _, errors = program("train", "forecast", *SMALL, *ONE, *options)
    assert code == 0, errors
    return folder


def test_coverage_by_step_history_novelty_and_series(long_and_short, program, tmp_path):
    out, page = tmp_path / "found.json", tmp_path / "page.html"
    other = write_csv(tmp_path / "other.csv", noisy_week(150, seed=9))
    options = ("--samples", "0,3", "--bootstrap", "50", "--shift", other)
    code, text, errors = program(
        "uncertainty", long_and_short, *options, "--json", out, "--html", page
    )
    assert code == 0, errors
    (run,) = json.loads(out.read_text())
    mean, draws = run["levels"]
    assert mean["share_by_step"] == []
    assert len(draws["share_by_step"]) == len(draws["coverage_by_step"]["80"]) == 7
    for level in run["levels"]:
        tables = {name: [] for name in (BY_STEP, BY_HISTORY, BY_NOVELTY, BY_SERIES)}
        for group in level["groups"]:
            tables[group["table"]].append(group)
            value, low, high = group["coverage"]["80"]
            assert 0 <= low <= value <= high <= 1
            assert group["coverage"]["95"][0] >= value
            assert "80" in group["calibrated"]
        steps = tables[BY_STEP]
        whole = next(group for group in tables[BY_HISTORY] if group["name"] == WHOLE)
        assert sum(group["values"] for group in steps) == whole["values"]
        held = sum(group["coverage"]["80"][0] * group["values"] for group in steps)
        assert held == pytest.approx(whole["coverage"]["80"][0] * whole["values"])
        names = [group["name"] for group in tables[BY_SERIES]]
        assert names == ["trained on", "too short to train on", "never seen: other.csv"]
        windows = [group["windows"] for group in tables[BY_SERIES]]
        # The long one and the other have the four windows that were asked for.
        assert windows[0] == windows[2] == 4
        assert windows[0] + windows[1] == whole["windows"]
        assert "the last 9 values" in [group["name"] for group in tables[BY_HISTORY]]
    assert "too short to train on" in text
    assert "never seen: other.csv" in page.read_text()
    assert "<svg" in page.read_text()


def test_series_of_another_step_or_too_short_are_refused(long_and_short, program, tmp_path):
    few = write_csv(tmp_path / "few.csv", noisy_week(12))
    code, _, errors = program("uncertainty", long_and_short, "--shift", few)
    assert code == 1
    assert "too short for a window of 7 values" in errors
    code, _, errors = program("uncertainty", long_and_short, "--uncalibrated")
    assert code == 1
    assert "--uncalibrated" in errors


class Run:
    """What `measured_windows` asks of a run."""

    path = "run"

    def __init__(self, data):
        self._data = data

    def data(self):
        return self._data


def test_a_shortened_history_is_the_end_of_the_whole_one():
    target, covariate = noisy_week(200), np.sin(np.arange(200.0))
    wishes = Wishes(horizon=5, valid=2, calibration=2, test=3)
    data = prepare(daily(target, known={"x": covariate}), wishes)
    *short, whole = measured_windows(Run(data), "test", 2, ())
    assert [one.name for one in short] == [f"the last {n} values" for n in (9, 18, 36)]
    assert whole.places.starts.tolist() == [185, 195]
    for one, length in zip(short, (9, 18, 36), strict=True):
        assert one.truths is whole.truths
        assert one.series is whole.series
        windows = one.data.windows(one.places)
        start = windows.layout.reach
        for row, first in enumerate((185, 195)):
            np.testing.assert_array_equal(
                windows.values[row, start - length :], target[first - length : first + 5]
            )
            assert windows.exists[row].sum() == length + 5
        # Calendar and covariates are those of the same days.
        full = whole.data.windows(whole.places)
        kept = min(length, windows.layout.context) + 5
        torch.testing.assert_close(windows.inputs[:, -kept:], full.inputs[:, -kept:])


def test_windows_are_drawn_with_their_series():
    series = torch.tensor([0, 0, 0, 5, 5, 2])
    times = torch.cat(list(times_drawn(series, 4000, seeded(1))))
    sizes = {0: 3, 5: 2, 2: 1}
    # A series drawn k times gives k times as many windows as it has, out of its own.
    for number, size in sizes.items():
        drawn = times[:, series == number].sum(1)
        assert bool((drawn % size == 0).all())
    assert times.mean(0).tolist() == pytest.approx([1.0] * 6, abs=0.06)
    (alone,) = times_drawn(torch.zeros(5, dtype=torch.long), 100, seeded(1))
    assert bool((alone.sum(1) == 5).all())
    # The variance of a sum of windows that are alike in a series is that of drawing series.
    likes = torch.tensor([1.0, 1, 1, 0, 0, 0], dtype=torch.double)
    ones = torch.ones(6, dtype=torch.double)
    drawn = drawn_ratios(torch.arange(6), {"share": (likes, ones)}, 20_000, seeded(2))
    share = drawn["share"]
    assert share.var().item() == pytest.approx(0.25 / 6, rel=0.05)


def test_resamples_are_handed_out_in_slices_which_bound_the_memory(monkeypatch):
    series, above = torch.tensor([0, 0, 1, 1, 1]), torch.arange(5, dtype=torch.double)
    sums = {"mean": (above, torch.ones_like(above)), "all": (above + 1, above + 1)}
    at_once = drawn_ratios(series, sums, 50, seeded(1))
    monkeypatch.setattr(resampling, "_SLICE", 2 * 3 * 8)
    sizes = [len(times) for times in times_drawn(series, 50, seeded(1))]
    assert sizes == [8] * 6 + [2]
    found = drawn_ratios(series, sums, 50, seeded(1))
    assert found["mean"].shape == at_once["mean"].shape == (50,)
    assert found["all"].tolist() == [1.0] * 50
    # Each metric is of the same resamples.
    (times,) = times_drawn(series, 8, seeded(1))
    torch.testing.assert_close(found["mean"][:8], times @ above / times.sum(1))


def test_ratios_leave_out_what_is_not_known():
    above = torch.tensor([1.0, float("nan"), 3.0], dtype=torch.double)
    times = torch.tensor([[1.0, 1, 1], [0, 1, 0], [2, 0, 1]], dtype=torch.double)
    found = ratios(times, above, torch.tensor([2.0, 2, 4], dtype=torch.double))
    assert found[0].item() == pytest.approx(4 / 6)
    assert found[1].isnan()
    assert found[2].item() == pytest.approx(5 / 8)
    assert interval(0.5, found[:0]) == (0.5, 0.5, 0.5)
