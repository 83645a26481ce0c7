"""What is decided by the training part: base, likelihood, horizon, numbers of windows."""

import numpy as np
import pytest
import torch

from bayesrnn.data.series import Frequency, Series, SeriesSet
from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.methods.plain import Plain, PlainOptions
from bayesrnn.random import RandomStreams, seeded
from bayesrnn.tasks.forecast import task
from bayesrnn.tasks.forecast.calendar import calendar_inputs, calendar_values
from bayesrnn.tasks.forecast.data import Wishes, prepare, require_suits, usual_horizon
from bayesrnn.tasks.forecast.layout import read_layout
from bayesrnn.tasks.forecast.model import ForecastNetwork
from bayesrnn.tasks.forecast.slices import make_slices
from bayesrnn.tasks.forecast.task import TASK

from .made_up import MONDAY, daily, noisy_week
from .test_forecasting import ONE, SMALL, write_csv

WISHES = Wishes(horizon=5, valid=4, calibration=2, test=2)


def layout_of(target, **wishes):
    return prepare(daily(target), Wishes(**{**vars(WISHES), **wishes})).layout


def test_the_base_is_what_forecasts_validation_windows_best():
    rng = np.random.default_rng(0)
    assert layout_of(noisy_week()).base == "seasonal"
    walk = 1000 + np.cumsum(rng.normal(0, 1, 200)) + 3 * np.arange(200)
    assert layout_of(walk, horizon=1).base == "last"
    assert layout_of(noisy_week(), base="none").base == "none"


def test_counts_have_a_distribution_of_counts():
    counts = np.random.default_rng(1).poisson(0.7, 200).astype(float)
    layout = layout_of(counts)
    assert (layout.likelihood, layout.base, layout.non_negative) == (
        "negative-binomial",
        "none",
        True,
    )
    assert layout_of(counts + 0.5).likelihood == "student-t"
    assert layout_of(counts * 1000).likelihood == "student-t"
    with pytest.raises(ConfigError, match="counts"):
        layout_of(counts - 3, likelihood="negative-binomial")
    with pytest.raises(ConfigError, match="--base none"):
        layout_of(counts, base="seasonal")
    assert not layout_of(counts - 3, likelihood="gaussian").non_negative
    with pytest.raises(ConfigError, match="below 0"):
        layout_of(counts - 3, non_negative="yes")


def test_a_layout_is_kept_as_text():
    layout = prepare(daily(noisy_week(), static={"shop": "a"}), WISHES).layout
    assert read_layout(layout.text()) == layout


def test_the_horizon_follows_from_the_step():
    given = {"hour": 24, "day": 28, "month": 12, "week": 12, "quarter": 8}
    assert {unit: usual_horizon(Frequency(unit)) for unit in given} == given
    assert usual_horizon(Frequency("minute", 30)) == 48
    assert usual_horizon(None) > 1


def test_there_are_as_many_windows_as_the_length_allows():
    free = {"valid": None, "calibration": None, "test": None}

    def windows(length, given=free):
        return make_slices(torch.tensor([length]), 12, 14, given).windows

    assert windows(84) == {"valid": 1, "calibration": 0, "test": 1}
    assert windows(100_000) == {"valid": 12, "calibration": 20, "test": 20}
    assert windows(84, {**free, "test": 3})["test"] == 3
    with pytest.raises(CorpusError, match="--test-windows"):
        make_slices(torch.tensor([30]), 12, 14, {**free, "test": 3}).train()


def test_the_calendar_knows_weekdays_and_the_year():
    names = calendar_inputs(Frequency("day"), 7, 3000)
    series = Series("s", MONDAY, np.zeros(10))
    found = calendar_values(names, Frequency("day"), 7, series, -1, 8)
    week = found[:, [names.index(f"weekday {day}") for day in range(7)]]
    assert week.argmax(1).tolist() == [6, 0, 1, 2, 3, 4, 5, 6]
    assert found[1, names.index("year cos 1")] == pytest.approx(1.0)
    assert not any(name.startswith("year") for name in calendar_inputs(Frequency("day"), 7, 400))
    months = calendar_inputs(Frequency("month"), 12, 100)
    january = calendar_values(months, Frequency("month"), 12, series, 0, 13)
    assert january.argmax(1).tolist() == [*range(12), 0]
    assert calendar_values((), None, 1, series, 0, 3).shape == (3, 0)


def test_series_that_do_not_suit_are_refused():
    layout = prepare(daily(noisy_week()), WISHES).layout
    weekly = SeriesSet((Series("s", MONDAY, noisy_week()),), Frequency("week"), 52, (52,))
    with pytest.raises(CorpusError, match="step of week"):
        require_suits(weekly, layout)
    with pytest.raises(CorpusError, match="too short"):
        require_suits(daily(np.zeros(5)), layout)


def test_a_base_is_that_of_forecasts_or_of_an_ensemble():
    """Both have an option of this name; the value tells which is meant."""

    def resolved(**given):
        found = TASK.resolve(given)
        return found.base, found.options.get("base")

    assert resolved(base="none") == ("none", None)
    assert resolved(base="last", method="ensemble") == ("last", "plain")
    assert resolved(base="bbb", method="ensemble") == ("auto", "bbb")
    with pytest.raises(ConfigError, match="auto, seasonal, last, none"):
        resolved(base="first")


def test_a_base_is_given_on_the_command_line_and_again_to_resume(program, tmp_path):
    data = write_csv(tmp_path / "sales.csv", noisy_week(120))
    for method in ("plain", "ensemble"):
        run = tmp_path / method
        more = ("--members", "2") if method == "ensemble" else ()
        options = ("--data", data, "--out", run, "--base", "none", "--method", method, *more)
        code, _, errors = program("train", "forecast", *SMALL, *ONE, *options)
        assert code == 0, errors
        assert "learnt is the value itself" in errors
        code, _, errors = program("train", "forecast", "--resume", "--out", run, "--base", "none")
        assert code == 0, errors
        code, _, errors = program("train", "forecast", "--resume", "--out", run, "--base", "last")
        assert code == 1
        assert "--base is last, but the run was started with none" in errors
    code, text, _ = program("train", "forecast", "--help")
    assert code == 0
    assert "seasonal" in text
    assert "[ensemble]" in text


def test_the_epoch_is_chosen_by_at_most_so_many_windows(monkeypatch):
    monkeypatch.setattr(task, "_VALIDATED", 3)
    data = prepare(daily(noisy_week(), noisy_week(seed=1)), WISHES)
    method = Plain(PlainOptions(), RandomStreams(1))
    layout = data.layout
    net = ForecastNetwork(layout.inputs, 4, 1, "gru", layout.likelihood)
    net.initialise(seeded(1))
    problem = task.ForecastProblem(data, 8, 16, 1, method, net)
    windows, known = problem._valid
    assert len(data.places("valid").series) == 8
    assert len(windows) == len(known) == 3
    assert np.isfinite(list(problem.validate().values())).all()
