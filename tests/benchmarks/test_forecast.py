"""The table of forecasts: its parts, on figures and files that are made up."""

import gzip
import importlib.util
import json
import math
import sys
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there for annotations
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def script():
    yield loaded("forecast")
    del sys.modules["forecast"]


@pytest.fixture
def rivals():
    yield loaded("forecast_rivals")
    del sys.modules["forecast_rivals"]


def figures(mase, wql, held=0.8, calibrated=0.8, msis=5.0):
    return {
        "mase": mase,
        "wql": wql,
        "msis": msis,
        "coverage": {"80": held, "95": 0.95},
        "coverage_calibrated": {"80": calibrated, "95": 0.95},
    }


def found_of(script, naive, **runs):
    """By set, from what seasonal naive and each run of (method, seed) reached."""
    name = runs.pop("name", "us_births")
    made = {(name, script.NAIVE): {0: script.Score.of(naive, None)}}
    for key, row in runs.items():
        method, seed = key.split("_")
        made.setdefault((name, method), {})[int(seed)] = script.Score.of(row, 2.0)
    return made


def test_a_mean_has_the_standard_error_of_its_seeds(script):
    mean = script.mean_of([1.0, 2.0, 3.0, None])
    assert mean.value == 2
    assert mean.error == pytest.approx(1 / math.sqrt(3))
    assert mean.text(2) == "2.00 ±0.58"
    assert script.mean_of([1.5]).text(3) == "1.500"
    assert script.mean_of([None]) is None


def test_bars_are_of_the_mean_and_name_what_misses_them(script):
    published = script.SETS["us_births"]
    runs = {"bbb_1": figures(1.20, 0.0260), "bbb_2": figures(1.28, 0.0280)}
    found = found_of(script, figures(1.5, 0.033), **runs)
    assert script.reached(found, "us_births", "bbb", published.must) == "not WQL"
    assert script.reached(found, "us_births", "bbb", published.goal) == "not MASE, WQL"
    assert script.reached(found, "us_births", "bbb", (1.24, 0.027)) == "met"
    assert script.reached(found, "us_births", script.NAIVE, published.must) == ""
    assert script.reached(found, "us_births", "bbb", None) == ""


def test_the_table_has_ratios_to_seasonal_naive_over_all_sets(script):
    found = found_of(script, figures(2.0, 0.04), bbb_1=figures(1.0, 0.02, held=0.95))
    found |= found_of(
        script, figures(1.0, 0.1), name="taylor", bbb_1=figures(2.0, 0.2, calibrated=0.9)
    )
    table = script.table_of(found)
    assert [row[:3] for row in table.rows] == [
        ["us_births", "seasonal-naive", ""],
        ["us_births", "bbb", "1"],
        ["taylor", "seasonal-naive", ""],
        ["taylor", "bbb", "1"],
    ]
    assert table.rows[1][3:] == ["1.000", "0.0200", "5.00", "0.950", "0.800", "2.0", "met", "met"]
    assert table.rows[3][-2] == "not MASE, WQL"
    assert list(table.notes) == [
        "bbb, 2 sets against seasonal naive: geometric mean of the ratios MASE 1.000, WQL 1.000; "
        "WQL below it on 1",
        "bbb: must met on 1 of 2, goal on 1; 80% intervals hold 70 to 92% on 1, calibrated 75 to "
        "86% on 1",
    ]


def test_short_series_are_compared_seed_by_seed(script):
    runs = {
        "bbb_1": figures(1.0, 0.1, held=0.9, msis=4.0),
        "bbb_2": figures(1.0, 0.1, held=0.8),
        "plain_2": figures(1.0, 0.1, held=0.5, msis=9.0),
    }
    found = found_of(script, figures(1.0, 0.1), name="taylor", **runs)
    assert script.short_notes(found) == [
        "taylor, seed 2: 80% intervals of bbb hold +0.300 more than those of plain, MSIS 5.00 "
        "against 9.00"
    ]


def test_every_set_is_asked_for_its_own_windows(script):
    arguments = script.SETS["beijing_pm25"].arguments("beijing_pm25", Path("data"))
    assert arguments == [
        *("--data", "data/beijing_pm25.csv.gz", "--horizon", "24", "--test-windows", "20"),
        *("--target-col", "pm2.5"),
    ]
    assert len(script.BARRED) == 11
    assert set(script.SETS) - set(script.BARRED) == {"pedestrians_covid"}


@pytest.fixture
def small(script, tmp_path, monkeypatch):
    """The data of a single small set, called us_births."""
    noise = np.random.default_rng(1).normal(size=120)
    rows = [
        f"{np.datetime64('2024-01-01') + day},{100 + 10 * (day % 7) + noise[day]:.3f}"
        for day in range(120)
    ]
    text = "\n".join(["ds,y", *rows, ""])
    (tmp_path / "us_births.csv.gz").write_bytes(gzip.compress(text.encode()))
    published = script.Published(4, 3, (9.0, 9.0), (0.0, 0.0))
    monkeypatch.setitem(script.SETS, "us_births", published)
    return tmp_path


def run(script, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["forecast.py", *map(str, arguments)])
    script.main()


def test_what_is_done_is_not_done_again(script, small, monkeypatch, capsys):
    given = ["--data", small, "--out", small / "runs", "--sets", "us_births", "--json"]
    given += [small / "found.json"]
    tiny = ["--", "--epochs", "1", "--windows", "32", "--hidden", "4", "--no-calibrate"]
    run(script, monkeypatch, *given, *tiny)
    printed = capsys.readouterr().out
    assert "us_births  bbb" in printed
    assert "bbb: must met on 1 of 1, goal on 0" in printed
    found = json.loads((small / "found.json").read_text())["us_births"]
    assert set(found) == {"seasonal-naive", "bbb"}
    assert 0 <= found["bbb"]["1"]["held"] <= 1
    log = small / "runs" / "us_births" / "bbb-seed1" / "log.txt"
    commands = [line for line in log.read_text().splitlines() if line.startswith("$ ")]
    assert [line.split()[2] for line in commands] == ["train", "evaluate"]

    run(script, monkeypatch, *given, "--markdown", *tiny)
    assert "| us\\_births | bbb | 1 |" in capsys.readouterr().out
    assert log.read_text().count("$ bayesrnn") == 2

    with pytest.raises(SystemExit, match="is of a run with other options"):
        run(script, monkeypatch, *given)


def test_a_command_that_fails_says_where_its_words_are(script, small, monkeypatch):
    given = ["--data", small, "--out", small / "runs", "--sets", "us_births"]
    with pytest.raises(SystemExit, match=r"failed, see .*log\.txt"):
        run(script, monkeypatch, *given, "--", "--epochs", "0")


def test_an_unknown_set_is_refused(script, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(script, monkeypatch, "--out", "runs", "--sets", "mars")
    assert "no mars; there are us_births" in capsys.readouterr().err


def test_rivals_are_scored_on_the_same_windows_as_seasonal_naive(rivals, small, monkeypatch):
    """A model that knows what comes has no error, and intervals without a width hold it all."""

    def oracle(data, pasts):
        starts = data.places("test").starts.tolist()
        target = data.series.series[0].target
        for past, start in zip(pasts, starts, strict=True):
            assert np.array_equal(past, target[:start])
        return [dict.fromkeys(rivals.SHARES, target[start:][:4]) for start in starts]

    monkeypatch.setitem(rivals.MODELS, "oracle", oracle)
    made = rivals.evaluation_of("oracle", small / "us_births.csv.gz", {}, 4, 3)
    assert (made["scores"]["mase"], made["scores"]["wql"], made["scores"]["msis"]) == (0, 0, 0)
    assert made["scores"]["coverage"]["80"] == 1
    assert made["scores"]["windows"] == made["seasonal_naive"]["windows"] == 3
    assert made["seasonal_naive"]["mase"] > 0


def test_quantiles_of_a_normal_have_its_crps(rivals):
    """The deciles stand for an integral, which is exact to some percent."""
    normal = NormalDist()
    forecasts = rivals.QuantileForecasts(
        {share: np.array([[normal.inv_cdf(share)]]) for share in rivals.SHARES}
    )
    exact = 2 * normal.pdf(0) - 1 / math.sqrt(math.pi)  # Gneiting et al. (2005), of a truth of 0
    assert forecasts.crps(np.array([[0.0]]))[0, 0] == pytest.approx(exact, rel=0.15)
    assert forecasts.rows(slice(0, 1)).quantile(0.5)[0, 0] == 0
    assert forecasts.interval(95)[0][0, 0] == pytest.approx(-1.96, abs=0.001)
