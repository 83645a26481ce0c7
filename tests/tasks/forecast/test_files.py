"""What the program says to files that cannot be read, and that it reads those that can."""

import numpy as np
import pytest

DAYS = [str(day) for day in np.arange("2023-01-01", "2023-07-01", dtype="datetime64[D]")]
HOURS = [f"{day} {hour:02}:00" for day in DAYS[:4] for hour in range(24)]
SIZES = ("--hidden", "4", "--batch-size", "8", "--windows", "16", "--epochs", "1")


def table(rows, header="ds,y"):
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


def values(days=DAYS, size=100):
    return [(day, size + n % 7 + n % 3) for n, day in enumerate(days)]


def train(program, tmp_path, text, *options):
    file = tmp_path / "series.csv"
    file.write_text(text)
    out = tmp_path / "run"
    given = ("train", "forecast", "--data", file, "--out", out, "--method", "plain", *SIZES)
    return (*program(*given, *options), out)


BAD = {
    "an empty file": ("", (), "is empty"),
    "one row": (table(values()[:1]), (), "has one row"),
    "only names": ("ds,y\n", (), "no rows"),
    "text in the target": (
        table([*values(), ("2023-07-01", "ill")]),
        (),
        "'ill' in the column 'y'",
    ),
    "infinity": (table([*values(), ("2023-07-01", "-inf")]), (), "'-inf' in the column 'y'"),
    "a date that is none": (table([*values(), ("Total", 5)]), (), "'Total'"),
    "a date twice": (table([*values(), values()[5]]), (), "--duplicates first"),
    "two frequencies": (
        table(
            [("a", *row) for row in values(HOURS)] + [("b", *row) for row in values()], "id,ds,y"
        ),
        (),
        "mixes frequencies: most dates are 1 day apart, but",
    ),
    "several columns": (
        table([(*row, 7) for row in values()], "ds,price,sales"),
        (),
        "--target-col sales",
    ),
    "a column that is not there": (table(values()), ("--target-col", "z"), "no column 'z'"),
    "too short": (table(values()[:3]), (), "give longer series"),
    "a horizon longer than the history": (
        table(values()),
        ("--horizon", "300"),
        "the longest series has 181 values",
    ),
    "no values": (table((day, "") for day in DAYS), (), "has no values"),
    "a frequency that is none": (table(values()), ("--freq", "often"), "'often' is no frequency"),
}


@pytest.mark.parametrize(("text", "options", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_file_ends_in_one_sentence(program, tmp_path, text, options, message):
    code, out, errors, run = train(program, tmp_path, text, *options)
    assert code == 1, out
    last = errors.strip().splitlines()[-1]
    assert last.startswith("bayesrnn: ")
    assert message in last
    assert "Traceback" not in errors
    assert not (run / "checkpoints").exists()


GOOD = {
    "missing values": (table(row for row in values() if row[0][-1] != "3"), "missing"),
    "a billion-fold outlier": (
        table([*values()[:60], (DAYS[60], 1e11), *values()[61:]]),
        "1e+11 is over a million times as large as usual",
    ),
    "numbers in place of dates": (table((n, 5 + n % 7 + n % 3) for n in range(150)), "no calendar"),
    "the order of rows": (
        table([(5 + n % 7 + n % 3,) for n in range(150)], "sales"),
        "in their order",
    ),
    "years": (table([(1900 + n, n % 9) for n in range(120)], "year,n"), "one per year"),
}


@pytest.mark.parametrize(("text", "said"), GOOD.values(), ids=GOOD.keys())
def test_a_usable_file_is_trained_on_and_says_how_it_was_read(program, tmp_path, text, said):
    code, out, errors, run = train(program, tmp_path, text, "--horizon", "7")
    assert code == 0, errors
    assert "Read as 1 series" in out + errors
    assert said in out + errors
    code, out, errors = program("forecast", run)
    assert code == 0, errors
    rows = (run / "forecast.csv").read_text().splitlines()
    assert len(rows) == 1 + 7
    assert rows[0].startswith("unique_id,ds,")
    assert "nan" not in "\n".join(rows)


def test_a_future_with_missing_rows_is_refused(program, tmp_path):
    rows = [(*row, n % 2) for n, row in enumerate(values())]
    text = table(rows, "ds,y,promo")
    code, _, errors, run = train(program, tmp_path, text, "--known", "promo", "--horizon", "3")
    assert code == 0, errors
    future = tmp_path / "future.csv"
    future.write_text(table([("2023-07-01", 1), ("2023-07-03", 1)], "ds,promo"))
    code, _, errors = program("forecast", run, "--future", future)
    assert code == 1
    assert "has no promo for 2023-07-02; add these rows" in errors
    future.write_text(table([(f"2023-07-0{day}", 1) for day in (1, 2, 3)], "ds,promo"))
    code, _, errors = program("forecast", run, "--future", future)
    assert code == 0, errors


def test_many_short_series_are_read_and_trained_on(program, tmp_path):
    months = np.arange("2020-01", "2023-01", dtype="datetime64[M]")
    rng = np.random.default_rng(0)
    rows = [
        (f"s{number}", f"{month}-01", f"{size + n % 12 + noise:.2f}")
        for number, size in enumerate(rng.uniform(10, 100, 1500))
        for n, (month, noise) in enumerate(zip(months, rng.normal(size=36), strict=True))
    ]
    text = table(rows, "unique_id,ds,y")
    code, out, errors, run = train(program, tmp_path, text, "--horizon", "6")
    assert code == 0, errors
    assert "Read as 1,500 series of 36 values" in out + errors
    code, _, errors = program("forecast", run, "--samples", "0", "--paths", "10")
    assert code == 0, errors
    assert len((run / "forecast.csv").read_text().splitlines()) == 1 + 1500 * 6
