"""The example of regression with a gap does what it says, with fewer steps."""

import sys
from importlib import util
from pathlib import Path

import pytest
import torch

PATH = Path(__file__).parents[2] / "examples" / "gap.py"


@pytest.fixture(scope="module")
def gap():
    spec = util.spec_from_file_location("gap", PATH)
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_mixture_widens_in_the_gap_where_one_posterior_does_not(gap):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        singles, mixture = gap.compare(seed=1, steps=500)
    finally:
        torch.set_num_threads(threads)
    assert all(one.ratio < 1 for one in singles)
    assert mixture.ratio > 2
    assert mixture.inside > 0.85 > sum(one.inside for one in singles) / len(singles)


def test_the_data_leave_the_gap_free(gap):
    x, y = gap.data(1)
    assert gap.EDGE <= x.abs().min() <= x.abs().max() <= 1
    assert x.min() < 0 < x.max()
    assert (y - gap.function(x)).std() == pytest.approx(gap.NOISE, rel=0.1)


def test_the_script_prints_a_table(gap, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(PATH), "--seeds", "1", "--steps", "10"])
    gap.main()
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[1] for row in rows] == ["bbb 1", "bbb 2", "bbb 3", "mixture of 3"]


def test_the_picture_has_both(gap, tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `plot` brings it")
    path = tmp_path / "gap.svg"
    gap.plot(gap.trained(1, steps=3), 1, str(path))
    drawn = path.read_text()
    assert "<!-- one posterior -->" in drawn
    assert "<!-- a mixture of 3 -->" in drawn
