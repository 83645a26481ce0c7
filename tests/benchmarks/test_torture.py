"""A small share of `benchmarks/torture.py`, and whether it notices what goes wrong."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it forks and looks at /proc")


@pytest.fixture
def torture(monkeypatch, tmp_path):
    """The program, in processes that have one thread; and where it keeps what it finds."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import torture

    from bayesrnn.tasks.captions import data

    monkeypatch.setattr(data, "_FLICKR_SPLITS", data._FLICKR_SPLITS)
    threads = torch.get_num_threads()
    yield torture
    torch.set_num_threads(threads)


def test_a_share_of_it(torture, tmp_path, monkeypatch, capsys):
    counts = {"kills": 1, "saves": 20, "mutations": 60, "inputs": 60, "limits": 0}
    counts |= {"steps": 0, "predictions": 0}
    options = [word for name, count in counts.items() for word in (f"--{name}", str(count))]
    monkeypatch.setattr(sys, "argv", ["torture.py", str(tmp_path), "--few", *options])
    fine = torture.main()
    table = capsys.readouterr().out
    bad = [
        line
        for path in tmp_path.glob("*.jsonl")
        for line in map(json.loads, path.read_text().splitlines())
        if line["end"] not in torture.GOOD
    ]
    assert fine == 0, bad
    assert len(torture.lines_of(tmp_path / "mutations.jsonl")) == 60
    assert len(torture.lines_of(tmp_path / "inputs.jsonl")) == 60
    assert len(torture.lines_of(tmp_path / "saves.jsonl")) == 20
    assert "| mutations |" in table


def test_what_goes_wrong_is_noticed(torture, tmp_path):
    worker = sys.modules["torture_worker"]
    said, results = worker.Said, tmp_path / "found.jsonl"
    well = said(0, "a", "")
    ends = {
        "same": well,
        "wrong": said(0, "b", ""),
        "refused": said(1, "", "bayesrnn: no\n"),
        "unclear": said(1, "", "no\n"),
        "traceback": said(None, "", "", "Traceback"),
    }
    for end, found in ends.items():
        assert worker.judged(found, well)["end"] == end

    def case(number):
        if number == 1:
            sys._exit_now()  # not there: a fault of the case itself
        if number == 2:
            os._exit(3)
        if number == 3:
            (tmp_path / worker.CANARY).touch()
        return {"end": "same"}

    worker.all_cases(case, 5, results, tmp_path, float("inf"))
    assert [line["end"] for line in torture.lines_of(results)] == [
        *("same", "crash", "crash", "executed", "same")
    ]
    text, fine = torture.table(tmp_path, {"found": 5})
    assert not fine
    assert text.count("\n") == 2


def test_a_hang_is_noticed(torture, tmp_path, monkeypatch):
    worker = sys.modules["torture_worker"]
    monkeypatch.setattr(worker, "PATIENCE", 0.3)

    def case(number):
        while not number:
            pass
        return {"end": "same"}

    worker.all_cases(case, 2, tmp_path / "found.jsonl", tmp_path, float("inf"))
    assert [line["end"] for line in torture.lines_of(tmp_path / "found.jsonl")] == ["hang", "same"]
