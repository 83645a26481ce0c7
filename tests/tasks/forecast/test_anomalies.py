"""`bayesrnn anomalies`: strange values are found, named by cause, and have no echo."""

import json
import re

import numpy as np
import pytest
import torch

from bayesrnn.random import seeded
from bayesrnn.tasks.forecast.data import Wishes, prepare
from bayesrnn.tasks.forecast.fan import Band, fan_chart
from bayesrnn.tasks.forecast.heads import HEADS
from bayesrnn.tasks.forecast.scan import scan_series
from bayesrnn.tasks.forecast.task import TASK

from .made_up import daily, noisy_week
from .test_forecasting import ONE, rows_of, write_csv

TRAINED = ("--hidden", "8", "--batch-size", "16", "--windows", "320", "--epochs", "4")


class SeasonalNaive(torch.nn.Module):
    """Says the value a season ago with a standard deviation of one unit."""

    def forward(self, inputs, state=None):
        shape = (*inputs.shape[:2], 2)
        return torch.tensor([0.0, 1.0]).expand(shape), torch.zeros(1, inputs.shape[1], 1)


def layout_of(target):
    wishes = Wishes(horizon=7, base="seasonal", likelihood="gaussian", non_negative="no")
    return prepare(daily(target), wishes).layout


def test_a_scan_says_the_tail_of_each_value_and_replaces_what_is_strange():
    target = noisy_week(160)
    target[140] += 300
    layout = layout_of(target[:130])
    networks = [SeasonalNaive()]
    kept = scan_series(daily(target), layout, networks, 130, seeded(1), replaced_below=0.0)
    clean = scan_series(daily(target), layout, networks, 130, seeded(1), replaced_below=1e-3)
    assert kept.p[10] < 1e-6
    assert kept.p[17] < 1e-3, "without replacing it, it has an echo"
    assert clean.p[10] < 1e-6
    assert clean.p[17] > 0.01
    # Before the first strange value they agree with each other, and with the formula.
    np.testing.assert_array_equal(kept.p[:10], clean.p[:10])
    span = target[130 - layout.span : 130]
    spread = np.abs(span - target[130 - layout.span - 7 : 123]).mean()
    z = (target[130] - target[123]) / spread
    assert kept.p[0] == pytest.approx(2 * torch.special.ndtr(torch.tensor(-abs(z))).item())
    of = torch.tensor([0.0, 1.0])
    y, base, unit = (torch.tensor(one) for one in (target[130], target[123], spread))
    log_prob = HEADS["gaussian"].log_prob(of, y, base, unit).item()
    assert kept.log_prob[0] == pytest.approx(log_prob, rel=1e-5)
    assert kept.epistemic[0] == 0


def test_a_change_that_stays_is_read_as_it_is_after_half_a_season():
    target = noisy_week(160)
    target[135:] += 300
    layout = layout_of(target[:130])
    scan = scan_series(daily(target), layout, [SeasonalNaive()], 130, seeded(1))
    assert scan.p[5:9].max() < 1e-6
    assert scan.p[-10:].min() > 0.01
    np.testing.assert_allclose(scan.median[-7:], target[-7:], atol=40)


def test_new_values_of_covariates_are_read_with_them(program, tmp_path):
    """A network that knows of the promotions finds a day with one usual, and without it strange."""
    rng = np.random.default_rng(5)
    promotion = (rng.random(330) < 0.3).astype(float)
    target, weather = noisy_week(330) + 60 * promotion, rng.normal(size=330)
    names = ("promotion", "weather")
    before, folder = (promotion[:300], weather[:300]), tmp_path / "run"
    data = write_csv(tmp_path / "sales.csv", target[:300], names=names, columns=before)
    covariates = ("--known", "promotion", "--past", "weather")
    options = ("--data", data, "--out", folder, "--method", "plain", "--horizon", "7", *covariates)
    trained = ("--hidden", "16", "--batch-size", "16", "--windows", "640", "--epochs", "6")
    code, _, errors = program("train", "forecast", *trained, *ONE, *options)
    assert code == 0, errors
    told = promotion[300:].copy()
    hidden = int(np.flatnonzero(told)[2])
    told[hidden] = 0
    found = {}
    for name, of in (("told", promotion[300:]), ("hidden", told)):
        new = (of, weather[300:])
        file = write_csv(
            tmp_path / f"{name}.csv", target[300:], first="2001-10-28", names=names, columns=new
        )
        code, _, errors = program("anomalies", folder, "--data", file)
        assert code == 0, errors
        found[name] = rows_of(folder / "anomalies.csv")
    p = {name: [float(row["p"]) for row in rows] for name, rows in found.items()}
    assert p["told"][:hidden] == p["hidden"][:hidden]
    assert 10 * p["hidden"][hidden] < p["told"][hidden]
    assert p["hidden"][hidden] < 1e-3
    assert found["hidden"][hidden]["cause"] != ""
    code, _, errors = program(
        "anomalies", folder, "--data", write_csv(tmp_path / "bare.csv", target[300:])
    )
    assert code == 1
    assert "promotion" in errors


def test_a_new_week_is_judged(program, tmp_path):
    target = noisy_week(320)
    folder = tmp_path / "run"
    data = write_csv(tmp_path / "sales.csv", target[:300])
    options = ("--data", data, "--out", folder, "--method", "bbb", "--horizon", "7")
    code, _, errors = program("train", "forecast", *TRAINED, *ONE, *options)
    assert code == 0, errors
    strange = target[300:314].copy()
    strange[3] += 80
    strange[7:13] = strange[7]
    week = write_csv(tmp_path / "week.csv", strange, first="2001-10-28")
    out, page = tmp_path / "found.json", tmp_path / "week.html"
    code, text, errors = program("anomalies", folder, "--data", week, "--json", out, "--html", page)
    assert code == 0, errors
    rows = rows_of(folder / "anomalies.csv")
    assert list(rows[0]) == ["unique_id", "ds", "y", "median", "lo-95", "hi-95", "p", "cause"]
    assert [row["ds"] for row in rows][:2] == ["2001-10-28", "2001-10-29"]
    assert rows[3]["cause"] in ("unusual value", "unfamiliar situation")
    assert rows[10]["cause"] == "broken data"
    assert rows[1]["cause"] == ""
    found = json.loads(out.read_text())
    first, _ = next(iter(found["windows"].values()))
    assert first["stranger_than"] >= 0.9 * first["of"] > 3
    assert "2001-10-31" in text
    assert "<svg" in page.read_text()
    assert "stranger than" in page.read_text()
    assert TASK.open_run(folder).layout.horizon == 7

    early = write_csv(tmp_path / "early.csv", strange, first="1999-01-01")
    code, _, errors = program("anomalies", folder, "--data", early)
    assert code == 1
    assert "before the run's" in errors


def test_long_dates_do_not_overlap():
    labels = [f"2001-01-01 {n:02}:00:00" for n in range(24)]
    chart = str(fan_chart("hours", np.arange(24.0), np.zeros(0), [], labels))
    assert sum(label in chart for label in labels) == 4
    days = [f"2001-01-{n + 1:02}" for n in range(24)]
    chart = str(fan_chart("days", np.arange(24.0), np.zeros(0), [], days))
    assert sum(label in chart for label in days) == 6


def test_a_phone_has_a_picture_of_its_own_which_ends_alike():
    """Its text is as large as on a wide screen, and the forecast is not beyond the edge."""
    days = [f"2001-01-{n + 1:02}" for n in range(30)]
    values = np.arange(20.0)
    bands = [Band("80%", "outer", np.arange(9.0, 19), np.arange(29.0, 39))]
    chart = fan_chart("days", values, np.arange(20.0, 30), bands, days)
    wide, narrow = str(chart), str(chart.narrow)
    assert days[0] in wide
    assert days[0] not in narrow, "15 days before the forecast, not 20"
    assert days[5] in narrow
    for part, width in ((wide, 760), (narrow, 360)):
        assert days[-1] in part
        assert f'viewBox="0 0 {width} ' in part
        places = [float(x) for x in re.findall(r"[ \"](\d+\.\d),\d", part)]
        assert len(places) > 40
        assert 0 < min(places) < max(places) < width
    assert "on-narrow" in chart.__html__()
