"""`inspect --csv`, a row a word, and `--per line`, a row a line."""

import csv
import json
import math

import pytest

from bayesrnn.data.vocabulary import EOS

LOG = "The truth is out.\n\nIt is a truth; =1+1 is not!\n  Xyzzy \x1b[31m plugh.\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text(LOG)
    return path


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_a_word(runs, program, log, tmp_path):
    out = tmp_path / "words.csv"
    code, _, errors = program("inspect", runs / "bbb", "--file", log, "--csv", out, "--samples", 2)
    assert code == 0, errors
    rows = rows_of(out)
    assert [row["word"] for row in rows[:6]] == ["the", "truth", "is", "out", ".", EOS]
    assert "'=" in [row["word"] for row in rows]
    assert {row["known"] for row in rows} == {"True", "False"}
    assert all(0 < float(row["probability"]) < 1 for row in rows)
    assert all(float(row["low"]) <= float(row["high"]) for row in rows)


def test_a_row_a_line(runs, program, log, tmp_path):
    out, found = tmp_path / "lines.csv", tmp_path / "lines.json"
    given = ("--file", log, "--per", "line", "--csv", out, "--json", found, "--samples", "0")
    html = tmp_path / "lines.html"
    code, shown, errors = program("inspect", runs / "plain", *given, "--html", html)
    assert code == 0, errors
    rows = rows_of(out)
    assert [row["line"] for row in rows] == ["1", "3", "4"], "a blank line is none"
    assert [row["text"] for row in rows] == [
        "The truth is out.",
        "It is a truth; =1+1 is not!",
        "Xyzzy \x1b[31m plugh.",
    ]
    words = json.loads(found.read_text())["words"]
    own = words[: int(rows[0]["words"])]
    assert own[-1]["word"] == EOS
    surprise = -sum(math.log(word["probability"]) for word in own) / len(own)
    assert float(rows[0]["surprise"]) == pytest.approx(surprise, rel=1e-5)
    assert float(rows[0]["perplexity"]) == pytest.approx(math.exp(surprise), rel=1e-5)
    assert sum(int(row["words"]) for row in rows) == len(words)
    assert int(rows[2]["unknown"]) >= 2
    assert "The least expected lines" in shown
    assert "\x1b" not in shown
    assert "The least expected lines" in html.read_text()


def test_a_line_is_read_after_those_before_it(runs, program, tmp_path):
    text = ("--text", "it is a truth\nit is a truth", "--per", "line", "--json", "-")
    code, shown, _ = program("inspect", runs / "plain", *text, "--samples", "0")
    assert code == 0
    first, second = json.loads(shown)["lines"]
    assert first["words"] == second["words"] == 5
    assert first["surprise"] != second["surprise"]


def test_a_file_without_words_is_refused(runs, program, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    code, _, errors = program("inspect", runs / "plain", "--file", empty, "--per", "line")
    assert code == 1
    assert "has no words" in errors
    code, _, errors = program("inspect", runs / "plain", "--text", "it is", "--csv", tmp_path)
    assert code == 1
    assert "cannot write" in errors


def test_what_is_written_cannot_give_orders(runs, program, monkeypatch):
    monkeypatch.setattr(
        "bayesrnn.tasks.lm.generate.continuation", lambda *_, **__: ["a\x1b[2J", "\u202eb"]
    )
    code, shown, _ = program("generate", runs / "plain")
    assert code == 0
    assert shown == "A\ufffd[2J \ufffdb\n"
