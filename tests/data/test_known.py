"""Covariates known ahead, continued by a second table."""

import numpy as np
import pytest

from bayesrnn.data.known import read_known
from bayesrnn.data.reading import read_series
from bayesrnn.errors import ConfigError, CorpusError

DAYS = [str(day) for day in np.arange("2024-01-01", "2024-02-01", dtype="datetime64[D]")]
PAST, AHEAD = DAYS[:24], DAYS[24:]


def shops(names=("north", "south")):
    count = len(PAST)
    return read_series(
        {
            "ds": PAST * len(names),
            "id": [name for name in names for _ in PAST],
            "y": np.arange(count * len(names)) % 7,
            "price": np.arange(count * len(names), dtype=float),
            "sky": ["wet", "dry"] * (count * len(names) // 2),
        },
        known=["price", "sky"],
    )


def ahead(names=("north", "south"), days=AHEAD, price=50.0, sky="dry"):
    count = len(days) * len(names)
    return {
        "ds": list(days) * len(names),
        "id": [name for name in names for _ in days],
        "price": np.full(count, price),
        "sky": [sky] * count,
    }


def test_known_covariates_go_on():
    found = read_known(ahead(), shops(), 7)
    for one in found.series:
        assert {len(values) for values in one.known.values()} == {31}
        assert one.known["price"][24:].tolist() == [50.0] * 7
        assert one.known["sky=dry"][22:26].tolist() == [0, 1, 1, 1]
        assert len(one.target) == 24
    strange = read_known(ahead(sky="snow"), shops(), 7).series[0]
    assert strange.known["sky=dry"][24:].sum() == strange.known["sky=wet"][24:].sum() == 0


def test_one_series_needs_no_name_and_the_past_may_be_there():
    alone = shops(["north"])
    table = ahead(["north"], DAYS)
    del table["id"]
    table["ds"] = [f"{day[8:]}/{day[5:7]}/{day[:4]}" for day in DAYS]
    assert read_known(table, alone, 7).series[0].known["price"].tolist() == [50.0] * 31


def test_numbered_series_go_on_by_number():
    rows = {"ds": np.arange(1, 25), "y": np.arange(24) % 5, "x": np.ones(24)}
    series = read_series({**rows, "unique_id": ["a"] * 24}, known=["x"])
    later = {"unique_id": ["a"] * 3, "ds": [25, 26, 27], "x": [2.0, 3.0, 4.0]}
    assert read_known(later, series, 3).series[0].known["x"][22:].tolist() == [1, 1, 2, 3, 4]


def test_names_and_texts_may_have_signs_of_equality():
    rows = {"ds": PAST, "y": np.arange(24), "a=b": np.ones(24), "a": ["x=1", "x"] * 12}
    series = read_series(rows, known=["a=b", "a"], target_col="y")
    assert sorted(series.series[0].known) == ["a=b", "a=x", "a=x=1"]
    later = {"ds": AHEAD, "a=b": np.arange(7.0), "a": ["x=1"] * 7}
    found = read_known(later, series, 7).series[0].known
    assert found["a=b"][24:].tolist() == list(range(7))
    assert (found["a=x=1"][24:].sum(), found["a=x"][24:].sum()) == (7, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ("north",)}, "no rows for the series south"),
        ({"days": AHEAD[:-2]}, "no price of north for 2024-01-30, 2024-01-31; add these rows"),
        ({"days": [*AHEAD[:6], "2024-01-31 12:00"]}, "2024-01-31 12:00:00 is off the grid"),
        ({"price": np.nan}, r"no price of north for 2024-01-25, .* and 4 more"),
        ({"sky": ""}, "no sky of north for 2024-01-25"),
        ({"price": np.inf}, "'inf' in the column 'price'"),
    ],
)
def test_what_is_missing_is_listed(change, message):
    with pytest.raises(CorpusError, match=message):
        read_known(ahead(**change), shops(), 7)


def test_columns_have_to_be_there():
    table = ahead()
    del table["sky"]
    with pytest.raises(ConfigError, match="no column 'sky'"):
        read_known(table, shops(), 7)
    table = ahead()
    del table["id"]
    with pytest.raises(CorpusError, match="such as north; give --id-col"):
        read_known(table, shops(), 7)
    plain = read_series({"ds": PAST, "y": np.arange(24)})
    with pytest.raises(ConfigError, match="no covariates that are known ahead"):
        read_known(ahead(), plain, 7)
