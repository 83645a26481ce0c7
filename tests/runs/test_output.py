"""Files that are written for spreadsheets, and what a terminal is shown."""

import csv
import io

import pytest

from bayesrnn.progress import say, visible
from bayesrnn.report.text import printable
from bayesrnn.runs.output import csv_text


@pytest.mark.parametrize("order", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"])
def test_cells_that_a_spreadsheet_would_run_are_texts(order):
    written = csv_text([{"word": order, "p": -0.25, "count": -3, "none": None}])
    header, row = csv.reader(io.StringIO(written, newline=""))
    assert header == ["word", "p", "count", "none"]
    assert row == [f"'{order}".replace("\r", "\n"), "-0.25", "-3", ""]


def test_other_cells_stay():
    assert csv_text([{"a": "x=1", "b": "don't"}]) == "a,b\nx=1,don't\n"
    assert csv_text([]) == ""


def test_a_terminal_gets_no_orders(capsys):
    orders = "a\x1b[2Jb\u202ec\x9bd\x07"
    assert visible(orders) == "a\ufffd[2Jb\ufffdc\ufffdd\ufffd"
    assert visible("two\nlines, \u06a9\u200c\u0627") == "two\nlines, \u06a9\u200c\u0627"
    assert printable("two\nlines\u200c") == "two\ufffdlines\u200c"
    say(orders)
    assert capsys.readouterr().err == visible(orders) + "\n"


def test_a_path_in_an_error_cannot_give_orders(program, tmp_path):
    code, _, errors = program("evaluate", f"{tmp_path}/no\x1b[31mrun\u202e")
    assert code == 1
    assert "no\ufffd[31mrun\ufffd" in errors
    assert "\x1b" not in errors
