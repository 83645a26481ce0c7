"""Files that are written for spreadsheets, and what a terminal is shown."""

import csv
import io

import pytest

from bayesrnn.errors import RunError
from bayesrnn.progress import say, visible
from bayesrnn.report.text import printable
from bayesrnn.runs.output import csv_text, write_text
from bayesrnn.training.run_directory import RunDirectory


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


def test_an_older_file_is_whole_where_a_new_one_cannot_be_written(tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    write_text("old", page)

    def full(path, data):
        path.write_bytes(data[:1])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("bayesrnn.durable.write_synced", full)
        with pytest.raises(RunError, match=r"page\.html: the disk is full"):
            write_text("new", page)
    assert page.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    link = tmp_path / "link.html"
    link.symlink_to(page)
    write_text("new", link)
    assert link.is_symlink()
    assert page.read_text() == "new"
    write_text("anything", tmp_path.joinpath("/dev/null"))


def test_figures_that_cannot_be_kept_are_shown(runs, program, monkeypatch):
    def refused(self, name, result):
        raise RunError("cannot make results: the file system is read-only")

    monkeypatch.setattr(RunDirectory, "write_result", refused)
    code, out, errors = program("evaluate", runs / "plain")
    assert code == 0
    assert "perplexity" in out
    assert errors.count("could not be kept in the run: cannot make results: the file") == 1
