import math
from dataclasses import replace
from importlib import import_module

import pytest
import torch

from bayesrnn.studies import rivals
from bayesrnn.studies.rivals import RIVALS, installed_rivals


def test_without_the_other_libraries_there_is_nothing_to_measure(monkeypatch):
    monkeypatch.setattr(rivals, "find_spec", lambda package: None)
    assert installed_rivals() == []


def test_a_library_is_measured_when_its_package_is_there(monkeypatch):
    monkeypatch.setattr(rivals, "find_spec", lambda package: package == "bayesian_torch" or None)
    assert installed_rivals() == ["bayesian-torch"]


def test_what_is_measured_can_be_imported():
    for name in installed_rivals():
        assert import_module(RIVALS[name].package).__name__ == RIVALS[name].package


@pytest.mark.parametrize("name", RIVALS)
def test_a_note_is_one_line(name):
    assert RIVALS[name].note.strip()
    assert "\n" not in RIVALS[name].note


@pytest.mark.parametrize("name", RIVALS)
def test_a_step_moves_every_weight_and_epochs_follow_each_other(name):
    rival, nets = RIVALS[name], []
    pytest.importorskip(rival.package)

    def make_network(vocabulary, hidden):
        net, forward = rival.make_network(vocabulary, hidden)
        nets.append(net)
        return net, forward

    vocabulary, batch, unroll = 11, 3, 4
    text = torch.arange(batch * (2 * unroll + 1)) % vocabulary  # two minibatches
    step = replace(rival, make_network=make_network)(text, vocabulary, batch, unroll, hidden=5)
    before = [parameter.clone() for parameter in nets[0].parameters()]
    assert all(math.isfinite(step()) for _ in range(3))
    for old, new in zip(before, nets[0].parameters(), strict=True):
        assert not torch.equal(old, new)
