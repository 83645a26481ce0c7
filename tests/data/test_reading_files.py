"""Series of published files, many series, and files made of anything."""

import os
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayesrnn.data.files import with_home
from bayesrnn.data.reading import read_series
from bayesrnn.errors import BayesRNNError


def lines(rows, header="ds,y"):
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


def test_many_short_series_are_read_whole(tmp_path):
    count, length = 20_000, 6
    names = np.repeat(np.arange(count), length)
    months = np.tile(np.arange("2024-01", "2024-07", dtype="datetime64[M]"), count)
    rows = zip(names, months, np.arange(len(names)) % 100, strict=True)
    path = tmp_path / "many.csv"
    path.write_text(lines(rows, "unique_id,ds,y"))
    found = read_series(path)
    assert len(found.series) == count
    assert found.series[-1].target.tolist() == [94, 95, 96, 97, 98, 99]


def test_the_births_come_with_the_package():
    packed = files("bayesrnn") / "data" / "bundled" / "us-births.csv.gz"
    found = read_series(Path(str(packed)))
    assert (len(found.series[0].target), found.series[0].target[0]) == (7305, 8486)


FOLDER = Path(os.environ.get("BAYESRNN_DATA", "")) / "forecast"


@pytest.mark.skipif(not FOLDER.is_dir(), reason="BAYESRNN_DATA has no folder forecast")
@pytest.mark.parametrize(
    ("file", "options", "series", "length", "missing", "frequency"),
    [
        ("us_births", {}, 1, 7305, 0, "day"),
        ("i94_traffic", {}, 1, 17520, 104, "hour"),
        ("i94_traffic_small", {}, 1, 17520, 104, "hour"),
        ("taylor", {}, 1, 4032, 0, "30 minutes"),
        ("us_employment", {}, 145, 357, 0, "month"),
        ("m4_hourly", {}, 414, 1008, 0, "None"),
        ("tourism_monthly", {}, 366, 333, 0, "month"),
        ("hospital", {}, 767, 84, 0, "month"),
        ("car_parts", {}, 2674, 51, 6122, "month"),
        ("nyc_taxi", {}, 1, 10320, 0, "30 minutes"),
        ("pedestrians_covid", {}, 1, 1490, 0, "day"),
        ("classics/air_passengers", {}, 1, 144, 0, "month"),
        ("classics/co2_weekly", {}, 1, 2284, 59, "week"),
        ("classics/sunspots_monthly", {}, 1, 2820, 0, "month"),
        ("classics/peyton_manning", {}, 1, 2964, 59, "day"),
        (
            "i94_traffic_raw",
            {"target_col": "traffic_volume", "duplicates": "first"},
            *(1, 52551, 11976, "hour"),
        ),
        ("beijing_pm25", {"target_col": "pm2.5"}, 1, 43824, 2067, "hour"),
        ("bike_sharing", {"target_col": "users"}, 1, 17544, 0, "hour"),
    ],
)
def test_published_files_are_read(file, options, series, length, missing, frequency):
    path = FOLDER / f"{file}.csv.gz"
    if options:
        flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
        with pytest.raises(BayesRNNError) as stopped:
            read_series(path)
        assert flags in str(stopped.value)
    found = read_series(path, **options)
    assert len(found.series) == series
    assert max(len(one.target) for one in found.series) == length
    assert sum(int(np.isnan(one.target).sum()) for one in found.series) == missing
    assert str(found.frequency) == frequency


_CELLS = st.sampled_from(
    [
        *(
            "",
            "NA",
            "5",
            "-3.5",
            "1,5",
            "inf",
            "1e400",
            "x",
            "ü",
            "'",
            '"',
            ";",
            "99999999999999999999",
        ),
        *("2024-01-01", "2024-01-02", "2024-01-02 07:30", "01/02/2024", "2024-13-01", "20240105"),
        *("2024Q2", "2024-W60", "1700000000", "12:30", "2024", "True", "1", "2", "3", "4"),
    ]
)
_NAMES = ("ds", "y", "date", "id", "value", "x", "month", "year", "time", "", "No", "shop")


@given(
    names=st.lists(st.sampled_from(_NAMES), min_size=1, max_size=4),
    rows=st.lists(st.lists(_CELLS, min_size=4, max_size=4), max_size=12),
    junk=st.binary(max_size=3),
    wide=st.booleans(),
    duplicates=st.sampled_from(["error", "first", "mean"]),
)
def test_whatever_is_in_a_file_is_read_or_refused(
    tmp_path_factory, names, rows, junk, wide, duplicates
):
    text = lines((row[: len(names)] for row in rows), ",".join(names)).encode()
    path = tmp_path_factory.mktemp("any") / "series.csv"
    path.write_bytes(text + junk)
    try:
        found = read_series(path, wide=wide, duplicates=duplicates)
    except BayesRNNError:
        pass
    else:
        assert all(np.isfinite(one.target).any() for one in found.series)


def test_a_tilde_is_a_home_folder_only_before_a_slash(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert with_home("~/x") == tmp_path / "x"
    assert with_home(Path("~/x")) == tmp_path / "x"
    for name in ("~nosuch/x", "~", "a/~/x", "/x"):
        assert with_home(name) == Path(name)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert with_home("~/x") == Path("~/x")


def no_home():
    raise RuntimeError("Could not determine home directory.")
