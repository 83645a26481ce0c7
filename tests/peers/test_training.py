"""The other libraries do the work that they are measured at."""

import importlib.util
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "other_libraries.py"
NAMES = ("blitz", "bayesian-torch", "torchbayesian")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("other_libraries", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there for annotations
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_all_are_installed(script):
    assert tuple(script.LIBRARIES) == tuple(script.installed()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_step_moves_every_weight_and_epochs_follow_each_other(script, name):
    library, nets = script.LIBRARIES[name], []

    def make_network(vocabulary, hidden):
        net, forward = library.make_network(vocabulary, hidden)
        nets.append(net)
        return net, forward

    vocabulary, batch, unroll = 11, 3, 4
    text = torch.arange(batch * (2 * unroll + 1)) % vocabulary  # two minibatches
    step = replace(library, make_network=make_network).make_step(
        text, vocabulary, batch, unroll, hidden=5
    )
    before = [parameter.clone() for parameter in nets[0].parameters()]
    assert all(math.isfinite(step()) for _ in range(3))
    for old, new in zip(before, nets[0].parameters(), strict=True):
        assert not torch.equal(old, new)


def test_the_table_has_ours_and_theirs(script, monkeypatch, tmp_path, capsys):
    made = []

    def measured(names, make_step, steps, slow):
        made.append((names, steps, slow))
        return {name: {"ratio": 1.0} for name in names}

    monkeypatch.setattr(script.bench, "measure_training", measured)
    file = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["x", "--libraries", "blitz", "--json", str(file)])
    script.main()
    assert made == [(["plain", "bbb", "blitz"], 4, ["blitz"])]
    assert capsys.readouterr().out.startswith("blitz: all weights Bayesian")
    assert '"blitz"' in file.read_text()
    monkeypatch.setattr(sys, "argv", ["x", "--libraries", "pyro"])
    with pytest.raises(SystemExit):
        script.main()
    assert "not installed: pyro" in capsys.readouterr().err
