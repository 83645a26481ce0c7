"""Reading series: every habit of files, and every mistake, ends in the values or in a sentence."""

import gzip

import numpy as np
import pytest

import bayesrnn as br
from bayesrnn.data.reading import read_series
from bayesrnn.errors import ConfigError, CorpusError

DAYS = [str(day) for day in np.arange("2024-01-01", "2024-03-11", dtype="datetime64[D]")]
VALUES = [10.5 + day % 7 for day in range(len(DAYS))]


def write(folder, text, name="series.csv", code="utf-8"):
    path = folder / name
    data = text if isinstance(text, bytes) else text.encode(code)
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def lines(rows, header="ds,y"):
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


def daily(stamps=None):
    return lines(zip(stamps or DAYS, VALUES, strict=True))


def only(found):
    assert len(found.series) == 1
    return found.series[0]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("plain.csv", lambda text: text.encode()),
        ("packed.csv.gz", lambda text: text.encode()),
        ("mark.csv", lambda text: text.encode("utf-8-sig")),
        ("utf16.csv", lambda text: text.encode("utf-16")),
        ("windows.csv", lambda text: text.replace("\n", "\r\n").encode()),
        ("german.csv", lambda text: text.replace(",", ";").replace(".", ",").encode()),
        ("tabs.csv", lambda text: text.replace(",", "\t").encode()),
        ("bars.csv", lambda text: text.replace(",", "|").encode()),
        ("quoted.csv", lambda text: text.replace("2024", '"2024').replace(",1", '",1').encode()),
        ("blank.csv", lambda text: text.replace("\n", "\n\n").encode() + b"\n,\n"),
        ("names.csv", lambda text: text.replace("ds,y", "DATE,Births").encode()),
        ("sep.csv", lambda text: b"sep=;\r\n" + text.replace(",", ";").encode()),
        ("latin.csv", lambda text: text.replace("ds,y", "ds,Umsätze").encode("latin-1")),
    ],
)
def test_files_of_every_habit_are_the_same_series(tmp_path, name, change):
    found = read_series(write(tmp_path, change(daily()), name))
    one = only(found)
    assert one.target.tolist() == VALUES
    assert (str(one.start), str(found.frequency)) == ("2024-01-01T00:00:00", "day")
    assert (found.season, found.seasons) == (7, (7,))
    assert found.description.startswith("Read as 1 series of 70 values: one per day, 2024-01-01")
    assert any("Latin-1" in note for note in found.notes) == (name == "latin.csv")


@pytest.mark.parametrize(
    "write_one",
    [
        lambda d: f"{d:%Y-%m-%d %H:%M:%S}",
        lambda d: f"{d:%Y-%m-%dT%H:%M}Z",
        lambda d: f"{d:%Y-%m-%dT%H:%M:%S.000}+05:30",
        lambda d: f"{d:%Y%m%d}",
        lambda d: f"{d:%Y/%m/%d}",
        lambda d: f"{d:%d/%m/%Y}",
        lambda d: f"{d:%m/%d/%Y}",
        lambda d: f"{d.month}/{d.day}/{d:%y}",
        lambda d: f"{d:%d.%m.%Y %H:%M}",
        lambda d: f"{d:%m/%d/%Y} 12:00 AM",
        lambda d: f"{d:%d-%b-%Y}",
        lambda d: f'"{d:%B} {d.day}, {d.year}"',
        lambda d: str(int((d - d.__class__(1970, 1, 1)).total_seconds())),
        lambda d: str(int((d - d.__class__(1970, 1, 1)).total_seconds()) * 1000),
    ],
)
def test_dates_of_every_format(tmp_path, write_one):
    stamps = [write_one(np.datetime64(day, "s").astype(object)) for day in DAYS]
    found = read_series(write(tmp_path, daily(stamps)))
    assert str(only(found).start) == "2024-01-01T00:00:00"
    assert str(found.frequency) == "day"
    assert only(found).target.tolist() == VALUES


@pytest.mark.parametrize(
    ("stamps", "frequency", "start"),
    [
        (["2024Q1", "2024Q2", "2024Q3"], "quarter", "2024-01-01"),
        (["Q4 2023", "Q1 2024", "Q2 2024"], "quarter", "2023-10-01"),
        (["2024-01", "2024-02", "2024-04"], "month", "2024-01-01"),
        (["2024 Jan", "2024 Feb", "2024 Mar"], "month", "2024-01-01"),
        (["01/2024", "02/2024", "03/2024"], "month", "2024-01-01"),
        (["2024-W01", "2024-W02", "2024-W03"], "week", "2024-01-01"),
        (["1999", "2000", "2001"], "year", "1999-01-01"),
        (["2024-01-31", "2024-02-29", "2024-03-31"], "month", "2024-01-31"),
        (["2024-01-31", "2024-02-29", "2024-03-29"], "month", "2024-01-31"),
        (["2024-01-02", "2024-02-01", "2024-03-01"], "month", "2024-01-01"),
        (["2024-01-01 00:00", "2024-01-01 00:15", "2024-01-01 00:45"], "15 minutes", "2024-01-01"),
    ],
)
def test_frequencies_know_the_calendar(tmp_path, stamps, frequency, start):
    found = read_series(write(tmp_path, lines(zip(stamps, range(3), strict=True))))
    assert str(found.frequency) == frequency
    assert str(only(found).start).startswith(start)
    assert np.nan_to_num(only(found).target).sum() == 3


def test_day_or_month_first_is_what_gives_a_grid_or_else_asked_for(tmp_path):
    first_days = [f"01/{month:02}/2024" for month in range(1, 13)]
    path = write(tmp_path, lines(zip(first_days, range(12), strict=True)))
    with pytest.raises(CorpusError, match="--date-format"):
        read_series(path)
    assert str(read_series(path, date_format="%d/%m/%Y").frequency) == "month"
    assert str(read_series(path, date_format="%m/%d/%Y").frequency) == "day"
    # 5 June, 6 June, 6 July is no grid the other way round than day by day.
    days = ["04/06/2024", "05/06/2024", "06/06/2024", "07/06/2024", "08/07/2024"]
    with pytest.raises(CorpusError, match="--date-format"):
        read_series(write(tmp_path, lines(zip(days, range(5), strict=True))))


def test_dates_in_columns_of_their_own_and_clocks(tmp_path):
    hours = np.arange("2024-01-01T00", "2024-01-04T00", dtype="datetime64[h]").astype(object)
    rows = [(d.year, d.month, d.day, d.hour, d.hour) for d in hours]
    found = read_series(write(tmp_path, lines(rows, "year,month,day,hour,load")))
    assert str(found.frequency) == "hour"
    assert (found.season, len(only(found).target)) == (24, 72)
    rows = [(f"{d:%Y-%m-%d}", f"{d:%H:%M}", d.hour) for d in hours]
    assert str(read_series(write(tmp_path, lines(rows, "date,time,load"))).frequency) == "hour"
    years = read_series(write(tmp_path, lines([(1990 + n, n) for n in range(9)], "year,n")))
    assert str(years.frequency) == "year"
    with pytest.raises(CorpusError, match=r"row 3.*make no date"):
        read_series(
            write(tmp_path, lines([(2024, 2, 29, 1), (2023, 2, 29, 2)], "year,month,day,n"))
        )


def test_missing_stamps_become_missing_values(tmp_path):
    rows = list(zip(DAYS, VALUES, strict=True))
    rows[3] = (rows[3][0], "NA")
    del rows[10:12]
    found = read_series(write(tmp_path, lines(rows)))
    assert np.flatnonzero(np.isnan(only(found).target)).tolist() == [3, 10, 11]
    assert "3 missing" in found.description


def test_closed_hours_and_weekends_are_left_out(tmp_path):
    hours = np.arange("2024-01-01T00", "2024-03-01T00", dtype="datetime64[h]")
    opened = [
        h for h in hours if 8 <= h.astype(object).hour < 18 and h.astype(object).weekday() < 6
    ]
    found = read_series({"ds": np.array(opened), "y": np.arange(len(opened)) % 10})
    assert (len(only(found).target), np.isnan(only(found).target).sum()) == (len(opened), 0)
    assert (found.season, found.seasons) == (10, (10, 60))
    after = found.frequency.stamps(only(found).start, len(opened), 1)
    assert str(after[0]) == "2024-03-01T08:00:00"
    # Of a few days one cannot see what is closed: they are read on the grid that is known.
    few = {"ds": np.array(opened[:10] + opened[20:30]), "y": np.arange(20)}
    again = read_series(few, freq=str(found.frequency))
    assert (again.frequency, len(only(again).target)) == (found.frequency, 30)
    assert len(only(read_series({"ds": [DAYS[0]], "y": [1]}, freq="day")).target) == 1
    days = [day for day in DAYS if np.is_busday(day)]
    business = read_series({"ds": days, "y": np.arange(len(days))})
    assert (str(business.frequency), business.season) == ("business-day", 5)


def test_series_are_told_apart_by_names_or_by_what_makes_dates_unique(tmp_path):
    rows = [(day, shop, n % 7) for shop in ("north", "south") for n, day in enumerate(DAYS)]
    for header in ("ds,item_id,y", "ds,shop,y"):
        found = read_series(write(tmp_path, lines(rows, header)))
        assert [one.name for one in found.series] == ["north", "south"]
        assert all(len(one.target) == len(DAYS) for one in found.series)
    assert found.notes == ("the series are told apart by shop",)
    pairs = [(day, shop, item, 1) for day in DAYS for shop in "ab" for item in "xy"]
    found = read_series(write(tmp_path, lines(pairs, "ds,shop,item,y")))
    assert [one.name for one in found.series] == ["a/x", "a/y", "b/x", "b/y"]
    assert [
        one.name
        for one in read_series(write(tmp_path, lines(pairs, "ds,s,t,y")), id_col="t,s").series
    ] == ["x/a", "y/a", "x/b", "y/b"]


def test_numbers_and_row_order_stand_in_for_dates(tmp_path):
    rows = [(name, n, [0, 1, 5, 2][n % 4]) for name in "ab" for n in range(10, 50, 2)]
    found = read_series(write(tmp_path, lines(rows, "unique_id,ds,y")))
    assert (found.frequency, found.stride, len(found.series[0].target)) == (None, 2, 20)
    assert found.labels(found.series[1], 20, 2) == ["50", "52"]
    alone = read_series(write(tmp_path, lines([(n % 4,) for n in range(40)], "sales")))
    assert (alone.season, alone.frequency) == (4, None)
    assert "taken in their order" in alone.notes[0]
    gaps = read_series(write(tmp_path, "sales\n1\n2\n\n4\n\n"))
    assert np.nan_to_num(only(gaps).target).tolist() == [1, 2, 0, 4]
    noise = np.random.default_rng(1).normal(size=400)
    assert read_series({"y": noise}).season == 1
    assert read_series({"y": noise.cumsum()}).season == 1


def test_numbers_of_several_series_are_told_apart_or_refused(tmp_path):
    rows = [(shop, n, n % 4) for n in (3, 1, 2, 4, 5, 6) for shop in ("north", "south")]
    found = read_series(write(tmp_path, lines(rows, "shop,ds,y")))
    assert [(one.name, one.target.tolist()) for one in found.series] == [
        (name, [1, 2, 3, 0, 1, 2]) for name in ("north", "south")
    ]
    path = write(tmp_path, lines([(1, 5), (2, 6), (2, 7)]))
    with pytest.raises(CorpusError, match=r"the first is 2; give --duplicates"):
        read_series(path)
    assert only(read_series(path, duplicates="mean")).target.tolist() == [5, 6.5]
    months = [(1 + n % 12, n) for n in range(36)]
    assert "in their order" in read_series(write(tmp_path, lines(months, "month,y"))).notes[0]


def test_wide_files_and_covariates(tmp_path):
    rows = [(day, n, 2 * n, "wet" if n % 3 else "dry") for n, day in enumerate(DAYS)]
    path = write(tmp_path, lines(rows, "date,sales,rain,sky"))
    with pytest.raises(CorpusError, match=r"sales, rain; .*--target-col rain.*--wide"):
        read_series(path)
    wide = read_series(path, wide=True)
    assert [one.name for one in wide.series] == ["sales", "rain"]
    assert wide.series[1].target.tolist() == list(range(0, 2 * len(DAYS), 2))
    found = read_series(path, target_col="sales", known=["sky"], past=["rain"])
    assert sorted(only(found).known) == ["sky=dry", "sky=wet"]
    assert only(found).known["sky=dry"][:4].tolist() == [1, 0, 0, 1]
    assert only(found).past["rain"][:3].tolist() == [0, 2, 4]
    static = [(day, shop, n, shop.upper()) for shop in "ab" for n, day in enumerate(DAYS)]
    path = write(tmp_path, lines(static, "ds,id,y,region"))
    assert [one.static["region"] for one in read_series(path, static=["region"]).series] == [
        "A",
        "B",
    ]
    changing = write(tmp_path, lines(rows, "date,sales,rain,sky"))
    with pytest.raises(CorpusError, match="row 3: the static column 'rain' changes"):
        read_series(changing, target_col="sales", static=["rain"])


def test_values_known_ahead_go_on_after_the_last_one(tmp_path):
    rows = [(day, n if n < 60 else "", n % 2) for n, day in enumerate(DAYS)]
    found = read_series(write(tmp_path, lines(rows, "ds,y,promo")), known=("promo",))
    assert (len(only(found).target), len(only(found).known["promo"])) == (60, 70)


@pytest.mark.parametrize(
    ("how", "expected"), [("first", 1), ("last", 4), ("mean", 2.5), ("sum", 5)]
)
def test_duplicates_are_refused_or_resolved(tmp_path, how, expected):
    rows = [("2024-01-01", 1), ("2024-01-02", 7), ("2024-01-01", 4), ("2024-01-03", "")]
    path = write(tmp_path, lines(rows))
    with pytest.raises(CorpusError, match=r"2024-01-01.*--duplicates first, last, mean or sum"):
        read_series(path)
    assert only(read_series(path, duplicates=how)).target[:2].tolist() == [expected, 7]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (" \n\n", "is empty"),
        ("ds,y\n", "a header line and no rows"),
        ("ds,y\n2024-01-01,5\n", "has one row"),
        ("2024-01-01,5\n2024-01-02,6\n", "has no header"),
        ("ds,y,y\n1,2,3\n", "several columns named 'y'"),
        ("ds,y\n2024-01-01,5\n2024-01-02,6,7\n", "row 3: it has 3 columns"),
        (daily().replace("2024-01-05,14.5", "2024-01-05,broken"), "row 6: 'broken' in the column"),
        (daily().replace("2024-01-05,14.5", "\n\n2024-01-05,broken"), "row 8: 'broken'"),
        (daily().replace("2024-01-05,14.5", "2024-01-05,inf"), "row 6: 'inf'.*computed with"),
        (daily().replace("2024-01-05,14.5", "2024-01-05,1e300"), "row 6: '1e300'"),
        (daily().replace("2024-01-05", "Total"), "row 6: 'Total' in the column 'ds' is no date"),
        (daily().replace("2024-01-05", "2024-02-30"), "row 6: '2024-02-30'.*is no date"),
        (daily().replace("2024-01-05,", "2024-01-05 07:00,"), "not 2024-01-05 07:00:00"),
        (daily().replace("2024-03-10", "2924-03-10"), "there would be.*date that is far"),
        (lines((day, "") for day in DAYS), "has no values"),
        (lines([(1, 1), (2, 2), (10**6, 3)]), "from 1 to 1000000 .* a number that is far"),
        (lines(((day, "a") for day in DAYS), "ds,name"), "no column of numbers"),
        (lines(((f"{d}th day", 1) for d in range(9)), "date,n"), "'0th day' is no date.*format"),
        (lines(((day, "$1,200.50") for day in DAYS), "ds;n").replace(",$", ";$"), "without signs"),
        (lines([("2024-01-01", "a", 1), ("2024-01-01", "", 2)], "ds,id,y"), "row 3.*names the ser"),
        (b"PK\x03\x04\0\0\0", "not a text file"),
        (b"\x1f\x8b\x08cut", "not a whole gzip file"),
    ],
)
def test_mistakes_end_in_a_sentence(tmp_path, text, message):
    with pytest.raises(CorpusError, match=message):
        read_series(write(tmp_path, text))


def test_two_frequencies_are_refused_with_names_and_dates(tmp_path):
    hours = np.arange("2024-01-01T00", "2024-02-01T00", dtype="datetime64[h]")
    rows = [("fast", str(hour), 1) for hour in hours]
    rows += [("slow", f"{day} 00:00", 1) for day in DAYS]
    with pytest.raises(CorpusError, match=r"mixes frequencies.*1 day from 2024-01-01 of slow"):
        read_series(write(tmp_path, lines(rows, "unique_id,ds,y")))
    months = np.arange("2023-01", "2024-01", dtype="datetime64[M]").astype("datetime64[D]")
    rows = [*((day, "fast", 1) for day in DAYS), *((str(day), "slow", 1) for day in months)]
    with pytest.raises(CorpusError, match=r"but those from 2023-01-01 of slow are 1 month apart"):
        read_series(write(tmp_path, lines(rows, "ds,unique_id,y")))
    change = [str(hour) for hour in hours[:100]] + DAYS[10:]
    with pytest.raises(CorpusError, match="mixes frequencies"):
        read_series(write(tmp_path, lines([(stamp, 1) for stamp in change])))
    assert str(read_series(write(tmp_path, daily()), freq="12 hours").frequency) == "12 hours"


def test_a_series_with_long_gaps_is_no_second_frequency(tmp_path):
    sparse = ["2024-01-01", "2024-02-03", "2024-03-20", "2024-04-29", "2024-06-01", "2024-07-07"]
    rows = [*((day, "sold daily", 1) for day in DAYS), *((day, "rarely", 1) for day in sparse)]
    found = read_series(write(tmp_path, lines(rows, "ds,unique_id,y")))
    assert str(found.frequency) == "day"
    assert [len(one.target) for one in found.series] == [len(DAYS), 189]


def test_options_that_cannot_be_are_refused(tmp_path):
    path = write(tmp_path, daily())
    for options, message in [
        ({"target_col": "x"}, "has no column 'x', but ds, y"),
        ({"time_col": "y", "target_col": "y"}, "given twice"),
        ({"duplicates": "drop"}, "there are: error, first"),
        ({"freq": "fortnight"}, "is no frequency; give one like"),
        ({"season": 0}, "give 1"),
        ({"wide": True, "id_col": "y"}, "leave out --id-col"),
        ({"date_format": "dd/mm"}, "has no %"),
    ]:
        with pytest.raises(ConfigError, match=message):
            read_series(path, **options)
    with pytest.raises(CorpusError, match="is not written as"):
        read_series(path, time_col="ds", date_format="%d/%m/%Y")
    with pytest.raises(CorpusError, match="there is no file"):
        read_series(tmp_path / "nothing.csv")
    with pytest.raises(CorpusError, match="cannot be read from a int"):
        read_series(5)


def test_an_outlier_is_told_and_kept():
    found = read_series({"ds": DAYS, "y": [*VALUES[:-1], 1e10]})
    assert only(found).target[-1] == 1e10
    assert "million times" in found.notes[0]


def test_dicts_and_frames_give_what_files_give(tmp_path):
    file = read_series(write(tmp_path, daily()))
    stamps = np.array(DAYS, dtype="datetime64[D]")

    class Frame(dict):
        columns = property(lambda self: list(self))

    class Values:
        def __init__(self, values):
            self.values = values

        def to_numpy(self):
            return self.values

    frame = Frame(ds=Values(stamps.astype("datetime64[ns]")), y=Values(np.array(VALUES)))
    for source in ({"ds": DAYS, "y": VALUES}, {"ds": stamps, "y": np.array(VALUES)}, frame):
        assert br.read_series(source).fingerprint() == file.fingerprint()
    masked = np.ma.array(VALUES, mask=[n in (0, 3) for n in range(len(VALUES))])
    values = only(read_series({"ds": DAYS, "y": masked})).target
    assert np.flatnonzero(np.isnan(values)).tolist() == [0, 3]
    assert np.isnan(only(read_series({"ds": DAYS, "y": [None, *VALUES[1:]]})).target[0])
    with pytest.raises(CorpusError, match="different lengths"):
        read_series({"ds": DAYS, "y": [1]})
    with pytest.raises(CorpusError, match="parts of seconds"):
        read_series({"ds": stamps + np.arange(70).astype("timedelta64[ms]"), "y": VALUES})


def test_what_only_counts_rows_or_is_not_asked_for_is_no_series(tmp_path):
    rows = [(n, day, n % 7, n % 5) for n, day in enumerate(DAYS)]
    for header in (",date,sales,weekday", "No,date,sales,month"):
        found = read_series(write(tmp_path, lines(rows, header)))
        assert only(found).name == "sales"
        assert "not used: " in found.notes[-1]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_real_frames_give_what_files_give(tmp_path, library):
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({"ds": np.array(DAYS, dtype="datetime64[ms]"), "y": VALUES})
    plain = read_series(write(tmp_path, daily())).fingerprint()
    assert read_series(frame).fingerprint() == plain
    if library == "pandas":
        assert read_series(frame.set_index("ds")).fingerprint() == plain
        assert read_series(frame.set_index("ds")["y"]).fingerprint() == plain
