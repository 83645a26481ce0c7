"""A small share of `benchmarks/torture.py`, and whether it notices what goes wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it forks and looks at /proc")


@pytest.fixture
def torture(monkeypatch):
    """The program, from its folder."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import torture

    return torture


def test_a_share_of_it(tmp_path):
    # In a process of its own: one that has trained cannot be forked and train.
    counts = {"kills": 1, "saves": 20, "mutations": 60, "inputs": 60, "limits": 0}
    counts |= {"steps": 0, "predictions": 0}
    options = [word for name, count in counts.items() for word in (f"--{name}", str(count))]
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "torture.py", tmp_path, "--few", *options],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    lines = [
        line
        for path in tmp_path.glob("*.jsonl")
        for line in map(json.loads, path.read_text().splitlines())
    ]
    bad = [line for line in lines if line["end"] not in ("equal", "same", "refused")]
    assert not bad
    assert done.returncode == 0, done.stderr
    assert len(lines) >= 141
    assert "| mutations |" in done.stdout


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
