"""What the README promises a stranger, who has nothing but it: each thing in the lines shown.

Its commands train for minutes: that there are such is seen in `test_documentation.py`.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayesrnn as br

from .test_tutorials import assert_alike, blocks, run_python

README = Path(__file__).parents[1] / "README.md"
#: The lines of each block of Python: model and loop, prediction, and what comes after training.
MODEL_AND_LOOP, PREDICTION, AFTERWARDS = 42, 4, 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("readme")


@pytest.fixture(scope="module")
def names(folder) -> dict[str, Any]:
    """All that the blocks of Python have made, in their order; what they print is what is shown."""
    made: dict[str, Any] = {}
    printed, lines = "", []
    threads, here = torch.get_num_threads(), Path.cwd()
    torch.set_num_threads(1)
    os.chdir(folder)
    try:
        with torch.random.fork_rng(devices=[]):
            for language, block in blocks(README):
                if language == "python":
                    printed = run_python(block, made)
                    lines.append(len([line for line in block.splitlines() if line.strip()]))
                elif language == "text":
                    assert_alike(printed, block)
    finally:
        os.chdir(here)
        torch.set_num_threads(threads)
    assert len(lines) == 3
    assert all(
        count <= most
        for count, most in zip(lines, (MODEL_AND_LOOP, PREDICTION, AFTERWARDS), strict=True)
    )
    return made


def right(net, names) -> float:
    """How often it names the kind of wave, over all places of all sequences."""
    # Half of the masks drop the only input there is: of a few draws all may.
    chance = torch.Generator().manual_seed(0)
    found = br.predict(net, names["x"], samples=20, generator=chance, output=lambda out: out[0])
    return (found.mean.argmax(-1) == names["y"]).float().mean().item()


def test_it_wraps_an_lstm_of_ones_own(names):
    module = names["net"].module
    assert type(module) is names["Model"]
    assert type(module.lstm) is nn.LSTM


def test_it_trains_with_two_methods(names):
    assert right(names["net"], names) > 0.9
    assert names["other"].method.name == "variational-dropout"
    assert right(names["other"], names) > 0.9


def test_it_knows_what_it_does_not_know(names):
    noise = br.predict(names["net"], names["new"], samples=20, output=lambda out: out[0])
    waves = br.predict(names["net"], names["x"], samples=20, output=lambda out: out[0])
    assert noise.epistemic.mean() > 5 * waves.epistemic.mean()


@torch.no_grad()
def test_what_is_saved_is_loaded_and_exported(names, folder):
    part = names["x"][:20]
    wanted = names["net"].eval()(part)[0]
    assert torch.equal(names["same"].eval()(part)[0], wanted)
    assert torch.equal(
        br.load(folder / "waves.safetensors", names["Model"]()).eval()(part)[0], wanted
    )
    exported = torch.export.load(folder / "waves.pt2").module()
    torch.testing.assert_close(exported(part)[0], wanted, rtol=1e-4, atol=1e-4)
