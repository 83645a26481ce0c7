"""A killed process of a run under torchrun costs nothing but time."""

import sys
from importlib import util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "rank_kills.py"


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_what_was_killed_ends_with_the_same_weights(tmp_path):
    """A fiftieth of the kills of the script by itself: torchrun takes its time to start."""
    spec = util.spec_from_file_location("rank_kills", SCRIPT)
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.compare(tmp_path, kills=1, processes=2, epochs=2, seed=3) == (1, True)
