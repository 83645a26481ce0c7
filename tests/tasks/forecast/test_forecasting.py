"""`bayesrnn forecast`, from a trained run to table, CSV, page and JSON."""

import csv
import json
import math
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from bayesrnn.tasks.forecast.task import TASK
from bayesrnn.tasks.forecast.unlike import UNFAMILIAR_RANK, last_novelty

from .made_up import noisy_week

SMALL = ("--hidden", "8", "--batch-size", "8", "--windows", "32", "--epochs", "1", "--horizon", "7")
ONE = ("--device", "cpu", "--threads", "1", "--no-calibrate", "--test-windows", "4")


def write_csv(path, target, first="2001-01-01", names=(), columns=()):
    days = np.datetime64(first) + np.arange(len(columns[0]) if columns else len(target))
    lines = [",".join(["ds", "y", *names])]
    for number, day in enumerate(days):
        y = f"{target[number]:.4f}" if number < len(target) else ""
        lines.append(",".join([str(day), y, *(f"{column[number]:.4f}" for column in columns)]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def run(program, tmp_path):
    """A function that trains on a file; gives the folder."""

    def train(data, *options, name="run"):
        folder = tmp_path / name
        arguments = (*SMALL, *ONE, "--data", data, "--out", folder, "--method", "bbb", *options)
        code, _, errors = program("train", "forecast", *arguments)
        assert code == 0, errors
        return folder

    return train


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_forecast_begins_after_the_last_value_and_is_written_four_times(run, program, tmp_path):
    target = noisy_week(150)
    folder = run(write_csv(tmp_path / "sales.csv", target))
    out = tmp_path / "found.json"
    few = ("--samples", "3", "--paths", "60")
    code, text, errors = program("forecast", folder, "--json", out, "--sum", "week", *few)
    assert code == 0, errors
    rows = rows_of(folder / "forecast.csv")
    assert list(rows[0]) == [
        *("unique_id", "ds", "mean", "median", "lo-80", "hi-80", "lo-95", "hi-95"),
        "epistemic_share",
        "novelty",
    ]
    assert [row["ds"] for row in rows] == [str(np.datetime64("2001-05-31") + n) for n in range(7)]
    for row in rows:
        low95, low, median, high, high95 = (
            float(row[name]) for name in ("lo-95", "lo-80", "median", "hi-80", "hi-95")
        )
        assert low95 <= low <= median <= high <= high95
        assert 0 <= float(row["epistemic_share"]) <= 1
        assert 0 <= float(row["novelty"]) <= 1
    found = json.loads(out.read_text())
    assert [one["ds"] for one in found["forecasts"]] == [row["ds"] for row in rows]
    assert found["backtest"]["network"]["windows"] == 4
    (totals,) = found["totals"].values()
    assert sum(week["values"] for week in totals) == 7
    page = (folder / "forecast.html").read_text()
    assert rows[-1]["ds"] in page
    assert rows[-1]["ds"] in text
    start = page.index("<svg")
    picture = ElementTree.fromstring(page[start : page.index("</svg>") + 6])
    polygons = [one for one in picture.iter() if one.tag.endswith("polygon")]
    assert len(polygons) == 3
    for shape in polygons:
        places = [tuple(map(float, pair.split(","))) for pair in shape.get("points").split()]
        assert len(places) == 14
        assert all(0 <= x <= 760 and 0 <= y <= 340 for x, y in places)
    # The four test windows, one after the other, up to the last value.
    start = page.index("<svg", page.index("Backtest"))
    tested = page[start : page.index("</svg>", start)]
    assert "4 test windows" in tested
    assert "2001-05-30" in tested
    shapes = [part.split('"')[0] for part in tested.split('polygon points="')[1:]]
    assert [len(shape.split()) for shape in shapes] == [2 * 28, 2 * 28]


def test_totals_of_paths_are_sums_of_paths(run, program, tmp_path):
    folder = run(write_csv(tmp_path / "sales.csv", noisy_week(150)))
    paths, out = tmp_path / "paths.csv", tmp_path / "found.json"
    options = ("--samples", "2", "--paths", "40", "--paths-out", paths, "--sum", "week")
    code, _, errors = program("forecast", folder, *options, "--json", out)
    assert code == 0, errors
    drawn = np.array([float(row["y"]) for row in rows_of(paths)]).reshape(40, 7)
    # 2001-05-31 is a Thursday: four days to the Sunday, and three of the next week.
    first, second = next(iter(json.loads(out.read_text())["totals"].values()))
    for week, part in ((first, drawn[:, :4]), (second, drawn[:, 4:])):
        assert week["median"] == pytest.approx(np.median(part.sum(1)), rel=1e-5)
        assert week["lo-80"] == pytest.approx(np.quantile(part.sum(1), 0.1), rel=1e-5)


def test_later_values_are_forecast_without_training(run, program, tmp_path):
    target = noisy_week(160)
    folder = run(write_csv(tmp_path / "sales.csv", target[:150]))
    newer = write_csv(tmp_path / "newer.csv", target)
    csv_file, page = tmp_path / "new.csv", tmp_path / "new.html"
    options = ("--data", newer, "--horizon", "9", "--csv", csv_file, "--html", page)
    few = ("--samples", "2", "--paths", "20")
    code, _, errors = program("forecast", folder, *options, *few)
    assert code == 0, errors
    rows = rows_of(csv_file)
    assert len(rows) == 9
    assert rows[0]["ds"] == "2001-06-10"
    assert page.exists()
    chart = tmp_path / "chart.svg"
    code, _, errors = program("forecast", folder, "--html", chart, *few)
    assert code == 0, errors
    assert ElementTree.parse(chart).getroot().tag.endswith("svg")


def test_a_file_that_has_grown_is_forecast_but_not_tested_on(run, program, tmp_path):
    target = noisy_week(160)
    data = tmp_path / "sales.csv"
    folder = run(write_csv(data, target[:150]))
    write_csv(data, target)
    out = tmp_path / "found.json"
    few = ("--samples", "2", "--paths", "20", "--json", out)
    code, _, errors = program("forecast", folder, *few)
    assert code == 0, errors
    assert "are not those" in errors
    assert rows_of(folder / "forecast.csv")[0]["ds"] == "2001-06-10"
    found = json.loads(out.read_text())
    assert not found["calibrated"]
    assert "backtest" not in found
    code, _, errors = program("evaluate", folder)
    assert code == 1
    assert "are not those" in errors


def test_seasonal_naive_is_written_in_the_same_form(run, program, tmp_path):
    target = noisy_week(150)
    folder = run(write_csv(tmp_path / "sales.csv", target))
    levels = ("--level", "50,90", "--samples", "2", "--paths", "20")
    code, _, errors = program("forecast", folder, "--method", "seasonal-naive", *levels)
    assert code == 0, errors
    assert "lo-50" in rows_of(folder / "forecast.csv")[0]
    found = [float(row["median"]) for row in rows_of(folder / "forecast.csv")]
    np.testing.assert_allclose(found, target[-7:], atol=1e-3)


def test_the_future_of_known_covariates_has_to_be_given(run, program, tmp_path):
    target, temperature = noisy_week(150), np.sin(np.arange(160.0))
    columns = {"names": ("temp",), "columns": (temperature[:150],)}
    folder = run(write_csv(tmp_path / "sales.csv", target, **columns), "--known", "temp")
    assert TASK.open_run(folder).layout.known == ("temp",)
    few = ("--samples", "2", "--paths", "20")
    code, _, errors = program("forecast", folder, *few)
    assert code == 1
    assert "temp" in errors
    assert "2001-05-31" in errors
    assert "--future" in errors
    later = tmp_path / "later.csv"
    lines = [f"{np.datetime64('2001-05-31') + n},{temperature[150 + n]:.4f}" for n in range(10)]
    later.write_text("\n".join(["ds,temp", *lines]) + "\n")
    code, _, errors = program("forecast", folder, "--future", later, *few)
    assert code == 0, errors
    assert len(rows_of(folder / "forecast.csv")) == 7


def test_series_with_another_step_are_refused(run, program, tmp_path):
    folder = run(write_csv(tmp_path / "sales.csv", noisy_week(150)))
    weeks = tmp_path / "weeks.csv"
    dates = np.datetime64("2001-01-01") + 7 * np.arange(60)
    weeks.write_text("ds,y\n" + "".join(f"{day},{n % 5}\n" for n, day in enumerate(dates)))
    code, _, errors = program("forecast", folder, "--data", weeks)
    assert code == 1
    assert "only 14% of the steps of day" in errors
    assert "Traceback" not in errors


def test_a_series_that_ends_unlike_its_past_is_told():
    target = noisy_week(500, seed=1)
    usual, _ = last_novelty(target, 7, 7)
    target[-7:] += 60
    unlike, words = last_novelty(target, 7, 7)
    assert usual < UNFAMILIAR_RANK < unlike == 1.0
    assert "beyond that of 69 of 69 windows" in words
    assert math.isnan(last_novelty(target[:20], 7, 7)[0])


def test_a_pruned_forecaster_writes_beside_its_file(run, program, tmp_path):
    folder = run(write_csv(tmp_path / "sales.csv", noisy_week(150)))
    out = tmp_path / "small.safetensors"
    options = ("--units", "--fractions", "0.5", "--fraction", "0.5")
    code, _, errors = program("prune", folder, *options, "--out", out)
    assert code == 0, errors
    code, _, errors = program("forecast", out, "--samples", "1", "--paths", "20")
    assert code == 0, errors
    rows = rows_of(tmp_path / "small-forecast.csv")
    assert len(rows) == 7
    assert all(math.isfinite(float(row["median"])) for row in rows)
    assert (tmp_path / "small-forecast.html").exists()


def test_a_series_that_does_not_move_is_examined_and_forecast(run, program, tmp_path):
    folder = run(write_csv(tmp_path / "still.csv", np.full(150, 5.0)))
    code, text, errors = program("doctor", folder)
    assert code == 0, errors
    assert "best constant prediction" in text
    code, text, errors = program("forecast", folder, "--samples", "2", "--paths", "20")
    assert code == 0, errors
    assert "Not better than seasonal naive" in text
