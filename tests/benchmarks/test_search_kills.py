"""The program that kills the workers of a search, with a tenth of its kills."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="the extra `search` brings optuna")

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "search_kills.py"


def test_ten_kills_change_nothing():
    # In a process of its own: this one has threads, which a fork would lose.
    command = [sys.executable, str(PROGRAM), "--kills", "10", "--trials", "3"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "10 kills of 3 workers, 3 trials told 3 times" in ran.stdout
    assert "as the quiet search to the last bit" in ran.stdout
