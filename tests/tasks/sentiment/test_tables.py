import csv
import io
from pathlib import Path

import pytest

from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.tasks.sentiment.tables import is_table, read_table


@pytest.fixture
def table(tmp_path):
    """A function that writes a CSV file."""

    def write(text, encoding="utf-8"):
        path = tmp_path / "own.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return write


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_quotes_commas_and_line_breaks(table, encoding, line_end):
    text = 'text,rating\n"one, ""two""\nthree",4.5\n\nschön,-1e2\n'.replace("\n", line_end)
    found = read_table(table(text, encoding))
    assert found.texts == ['one, "two"\nthree', "schön"]
    assert found.targets == [4.5, -100.0]
    assert found.rows == [2, 4]


@pytest.mark.parametrize(
    ("header", "options"),
    [
        ("text,rating", {}),
        ("rating,text", {}),
        ("Text,Score", {}),
        ("id,text,label,more", {}),
        ("review,stars", {"text_column": "review"}),
        ("stars,review", {"target_column": "stars"}),
        ("review,rating", {}),
        ("text,stars", {}),
        ("rating,a,b", {"text_column": "a", "target_column": "b"}),
        ("text,rating,b", {"target_column": "b"}),
    ],
)
def test_columns_are_found_by_name(table, header, options):
    names = [name.strip() for name in header.split(",")]
    target = options.get("target_column") or next(
        (n for n in names if n.casefold() in ("rating", "score", "label")), "stars"
    )
    row = ["0.5" if name == target else "words" for name in names]
    found = read_table(table(f"{header}\n{','.join(row)}\n"), **options)
    assert (found.texts, found.targets) == (["words"], [0.5])


@pytest.mark.parametrize(
    ("targets", "kind", "expected"),
    [
        (["1", "2.5", " 3 "], "auto", [1.0, 2.5, 3.0]),
        (["1", "2", "3"], "label", ["1", "2", "3"]),
        (["good", "bad", "7"], "auto", ["good", "bad", "7"]),
        (["good", "bad ", "bad"], "auto", ["good", "bad", "bad"]),
        (["1", "good"], "auto", ["1", "good"]),
        (["1_0", "2_0"], "auto", ["1_0", "2_0"]),
        (["\u0661", "\u0662"], "auto", ["\u0661", "\u0662"]),
        (['"7,3"', '"7,3"'], "label", ["7,3", "7,3"]),
        (['"7,3"', "good"], "auto", ["7,3", "good"]),
    ],
)
def test_numbers_and_labels(table, targets, kind, expected):
    rows = "".join(f"a text,{target}\n" for target in targets)
    assert read_table(table(f"text,target\n{rows}"), kind=kind).targets == expected


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ("", {}, CorpusError, "is empty; give a CSV file with a header"),
        ("text,rating\n", {}, CorpusError, "no rows"),
        ("a,b\nx,1\n", {}, ConfigError, "no column 'text'; it has: a, b; .*--text-column"),
        ("text,b,c\nx,1,2\n", {}, ConfigError, "it has: text, b, c; .*--target-column"),
        ("text,rating\nx,1\n", {"text_column": "z"}, ConfigError, "'z', but .* are: text, rating"),
        ("text,rating\nx,1\n", {"target_column": "z"}, ConfigError, "--target-column is 'z'"),
        ("text,rating\nx,1\n", {"target_column": "text"}, ConfigError, "no column|at once"),
        ("text,rating\nx,1\ny,2,3\n", {}, CorpusError, "row 3: it has 3 columns, .* has 2"),
        ("text,rating\nx,1\n\ny,\n", {}, CorpusError, "row 4: the column 'rating' is empty"),
        ("text,rating\nx,1\ny,2\nz,4/5\n", {}, CorpusError, "row 4: '4/5' is not a number.*label"),
        ("text,rating\nx,1\nz,nan\ny,2\n", {}, CorpusError, "row 3: 'nan' is not a number"),
        ("text,rating\nx,a\n", {"kind": "number"}, CorpusError, "row 2: 'a' is not a number"),
        ("text,rating\nx,1\ny,2\nz,1_0\n", {}, CorpusError, "row 4: '1_0' is not a number"),
        ('text,rating\nx,"7,3"\ny,"8,1"\n', {}, CorpusError, "row 2: '7,3'.*point: 7.3.*label"),
        ('text,rating\nx,7\ny,"8,1"\nz,"-1,5"\n', {}, CorpusError, "row 3: '8,1'.*point: 7.3"),
        ('text,rating\nx,"7,3"\n', {"kind": "number"}, CorpusError, "decimal point: 7.3$"),
        ("text;rating\nx;1,5\ny;1.5.1\n", {"kind": "number"}, CorpusError, "row 3: '1.5.1' is"),
        ("text;rating\nx;y;1\n", {}, CorpusError, "quotes around a text with semicolons"),
        ("text,rating\nx,1\n", {"delimiter": "tab"}, ConfigError, "no column 'text'"),
        ('text,rating\nx,1\n"y,2\n', {}, CorpusError, "row 3 .*CSV file"),
        ('text,rating\n"x"y,1\n', {}, CorpusError, r"row 2 \(line 2\).*CSV file"),
    ],
)
def test_mistakes_are_named_in_one_line(table, text, options, error, message):
    with pytest.raises(error, match=message) as caught:
        read_table(table(text), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("delimiter", ["semicolon", "tab", "comma"])
def test_the_delimiter_is_that_of_the_header(table, delimiter):
    sign = {"semicolon": ";", "tab": "\t", "comma": ","}[delimiter]
    rows = [["text", "rating"], [f"a{sign} b", "1.5"], ["c, d; e", "2"]]
    written = io.StringIO()
    csv.writer(written, delimiter=sign, lineterminator="\n").writerows(rows)
    for given in (None, delimiter):
        found = read_table(table(written.getvalue()), delimiter=given)
        assert found.texts == [f"a{sign} b", "c, d; e"]
        assert found.targets == [1.5, 2]


def test_decimal_commas_where_they_cannot_be_columns(table):
    found = read_table(table("text;rating\nx;7,3\ny;-1,25\nz;2\n"))
    assert found.targets == [7.3, -1.25, 2]


def test_texts_longer_than_the_limit_of_the_csv_module(table):
    limit = csv.field_size_limit()
    long = "word " * limit
    found = read_table(table(f'text,rating\n"{long}",1\nshort,2\n'))
    assert found.texts == [long, "short"]
    assert csv.field_size_limit() == limit, "it is as it was"
    with pytest.raises(CorpusError, match="row 2"):
        read_table(table(f'text,rating\n"{long}"y,1\n'))
    assert csv.field_size_limit() == limit


def test_a_first_line_longer_than_the_limit_of_the_csv_module(table):
    long = "word " * csv.field_size_limit()
    with pytest.raises(ConfigError, match="has no column"):
        read_table(table(f"{long}\nshort\n"))
    assert read_table(table(f"text;{long}\na;1\n")).texts == ["a"]
    with pytest.raises(CorpusError, match=r"row 1 .*it has to be a CSV file"):
        read_table(table(f'"{long}"y,text\n'))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.csv", True), ("a.TSV", True), ("a.csv.gz", True), ("a.txt", False), ("a.gz", False)],
)
def test_tables_are_known_by_their_names(name, expected):
    assert is_table(Path(name)) == expected


def test_text_that_is_not_utf8(table):
    with pytest.raises(CorpusError, match="not valid UTF-8"):
        read_table(table("text,rating\nschön,1\n", "latin-1"))
    with pytest.raises(CorpusError, match="UTF-16"):
        read_table(table("text,rating\nx,1\n", "utf-16"))


def test_no_file(tmp_path):
    with pytest.raises(CorpusError, match="there is no file"):
        read_table(tmp_path / "nothing.csv")
