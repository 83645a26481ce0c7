"""Grids of dates against Python's own calendar, and the hash of a set of series."""

import dataclasses
import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayesrnn.data.grid import named_frequency
from bayesrnn.data.series import UNITS, Frequency, Series, SeriesSet
from bayesrnn.errors import ConfigError

START = "2023-12-29T07:00:00"  # a Friday


def days(stamps):
    return [str(stamp)[:10] for stamp in stamps]


@pytest.mark.parametrize(
    ("unit", "step", "expected"),
    [
        ("second", 30, "2023-12-29T07:01:00"),
        ("minute", 5, "2023-12-29T07:10:00"),
        ("hour", 1, "2023-12-29T09:00:00"),
        ("day", 1, "2023-12-31T07:00:00"),
        ("business-day", 1, "2024-01-02T07:00:00"),
        ("week", 2, "2024-01-26T07:00:00"),
        ("month", 1, "2024-02-29T07:00:00"),
        ("quarter", 1, "2024-06-29T07:00:00"),
        ("year", 1, "2025-12-29T07:00:00"),
    ],
)
def test_stamps_follow_the_calendar(unit, step, expected):
    assert str(Frequency(unit, step).stamps(START, 2, 1)[0]) == expected


@given(
    unit=st.sampled_from(UNITS),
    step=st.integers(1, 4),
    start=st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)),
    first=st.integers(0, 300),
)
def test_place_is_the_inverse_of_stamps(unit, step, start, first):
    start = np.datetime64(start.replace(microsecond=0), "s")
    if unit == "business-day" and start.astype("datetime64[D]").astype(object).weekday() > 4:
        start += np.timedelta64(2, "D")
    frequency = Frequency(unit, step)
    stamps = frequency.stamps(start, first, 40)
    assert (np.diff(stamps) > np.timedelta64(0, "s")).all()
    assert frequency.place(start, stamps).tolist() == list(range(first, first + 40))
    assert frequency.stamps(start, 0, 1)[0] == start
    if unit in ("second", "minute", "hour", "day", "week"):
        late = start + np.timedelta64(datetime.timedelta(**{f"{unit}s": step}) * first)
        assert stamps[0] == late


def test_business_days_agree_with_numpy():
    stamps = Frequency("business-day").stamps("2024-02-23", 0, 500)
    assert (stamps.astype("datetime64[D]") == np.busday_offset("2024-02-23", range(500))).all()
    assert Frequency("business-day").place("2024-02-23", ["2024-02-24", "2024-02-26"]).tolist() == [
        -1,
        1,
    ]


def test_month_ends_stay_month_ends_and_the_day_does_not_count():
    frequency = Frequency("month")
    assert days(frequency.stamps("2024-01-31", 0, 4)) == [
        *("2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30")
    ]
    assert days(frequency.stamps("2023-04-30", 1, 1)) == ["2023-05-31"]
    assert days(frequency.stamps("2024-01-30", 1, 2)) == ["2024-02-29", "2024-03-30"]
    assert frequency.place("2024-01-31", ["2024-02-15", "2023-12-31"]).tolist() == [1, -1]
    assert Frequency("month", 2).place("2024-01-31", ["2024-02-29", "2024-03-31"]).tolist() == [
        -1,
        1,
    ]


def test_closed_hours_are_left_out_of_the_grid():
    nights = tuple(24 * day + hour for day in range(7) for hour in (*range(8), *range(20, 24)))
    sundays = tuple(range(144, 168))
    frequency = Frequency("hour", closed=tuple(sorted({*nights, *sundays})))
    stamps = frequency.stamps("2024-03-02T08:00", 0, 13)  # a Saturday
    assert str(stamps[11]) == "2024-03-02T19:00:00"
    assert str(stamps[12]) == "2024-03-04T08:00:00"
    assert frequency.place("2024-03-02T08:00", stamps).tolist() == list(range(13))
    off = ["2024-03-02T20:00", "2024-03-03T10:00", "2024-03-04T08:30", "2024-03-01T10:00"]
    assert frequency.place("2024-03-02T08:00", off).tolist() == [-1] * 4


def test_a_frequency_is_read_back_from_its_words():
    for frequency in (
        Frequency("hour", closed=(*range(8), 20, *range(30, 40))),
        Frequency("minute", 30),
        Frequency("day", closed=(6,)),
        Frequency("business-day"),
    ):
        assert named_frequency(str(frequency)) == frequency
    assert str(Frequency("hour", closed=(0, 1, 2, 9))) == "hour closed 0-2,9"
    for wrong in ("hour closed 9999999999", "hour closed -", "day closed 7", "hour closed 5-2,400"):
        with pytest.raises(ConfigError):
            named_frequency(wrong)


def test_place_takes_a_start_for_each_stamp():
    places = Frequency("day").place(["2024-01-01", "2024-01-03"], ["2024-01-05", "2024-01-05"])
    assert places.tolist() == [4, 2]


@pytest.mark.parametrize(
    "values", [{"unit": "fortnight"}, {"unit": "day", "step": 0}, {"unit": "day", "closed": (7,)}]
)
def test_impossible_frequencies_are_refused(values):
    with pytest.raises(ConfigError):
        Frequency(**values)


def one(**values):
    made = {"name": "a", "start": np.datetime64("2024-01-01", "s"), "target": np.arange(3.0)}
    return Series(**(made | values))


def test_the_fingerprint_knows_every_value():
    def print_of(series, season=7):
        return SeriesSet((series,), Frequency("day"), season, (7,), "Read as").fingerprint()

    plain = print_of(one())
    missing = np.array([0.0, np.nan, 2.0])
    assert plain == print_of(one(target=np.array([-0.0, 1.0, 2.0])))
    assert print_of(one(target=missing)) == print_of(one(target=np.array([0.0, -np.nan, 2.0])))
    others = [
        one(name="b"),
        one(start=np.datetime64("2024-01-02", "s")),
        one(target=missing),
        one(known={"x": np.zeros(3)}),
        one(past={"x": np.zeros(3)}),
        one(past={"x": np.ones(3)}),
        one(static={"shop": "north"}),
        one(number=2),
    ]
    prints = [plain, print_of(one(), season=1), *map(print_of, others)]
    assert len(set(prints)) == len(prints)


def test_labels_are_dates_times_or_numbers():
    series = SeriesSet((one(),), Frequency("day"), 7, (7,))
    assert series.labels(series.series[0], 3, 2) == ["2024-01-04", "2024-01-05"]
    hourly = dataclasses.replace(series, frequency=Frequency("hour"))
    assert hourly.labels(one(), 1, 1) == ["2024-01-01 01:00:00"]
    numbered = dataclasses.replace(series, frequency=None)
    assert numbered.labels(one(number=5), 3, 2) == ["8", "9"]
