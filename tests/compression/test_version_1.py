"""Compact files of version 1, which are read, but no longer written."""

from pathlib import Path

import pytest
import torch

from bayesrnn.compression.file import read_compact
from bayesrnn.errors import CheckpointError

from .compact_files import check_values, forge, payload

FILES = Path(__file__).parent / "version_1"


def earlier_network():
    """What the files of version 1 in the folder of that name were written from."""
    numbers, line = torch.arange(400).view(20, 20), torch.arange(20)
    names = ("bitmap", "gaps", "holes", "all", "none", "rows", "columns", "corner")
    weights = {name: ((numbers + n) % 37 - 18) / 16 for n, name in enumerate(names)}
    weights["tied"] = weights["gaps"]
    weights["long"] = (torch.arange(3000) % 5 - 2) / 4
    weights["bias"] = torch.arange(9) / 8
    kept = {
        "bitmap": numbers % 3 == 0,
        "gaps": numbers % 90 == 0,
        "holes": numbers % 90 != 0,
        "all": numbers >= 0,
        "none": numbers < 0,
        "rows": (line < 3)[:, None].expand(20, 20),
        "columns": (line < 3)[None].expand(20, 20),
        "corner": (line > 9)[:, None] & (line < 9) & (numbers % 3 > 0),
        "long": torch.arange(3000) % 999 == 700,
    }
    return weights, kept


@pytest.mark.parametrize("values", ["float32", "int8"])
def test_files_of_version_1_are_read(values):
    """They hold every encoding of that version, rows and columns left out, and scales of int8."""
    path = FILES / f"{values}.safetensors"
    weights, kept = earlier_network()
    _, content = payload(path)
    encodings = {entry.get("encoding") for entry in content["tensors"].values()}
    assert (content["version"], encodings) == (1, {"bitmap", "gaps", "holes", "dense", None})
    found = read_compact(path)
    assert (list(found.weights), found.about) == (list(weights), {"step": 7})
    assert found.weights["tied"] is found.weights["gaps"]
    assert found.kept.keys() == kept.keys()
    for name, weight in weights.items():
        mask = kept["gaps" if name == "tied" else name] if name != "bias" else torch.ones(9).bool()
        kind = content["tensors"][name].get("values", "float16")
        check_values(found.weights[name], torch.where(mask, weight, 0.0), kind)
        if name in kept:
            assert torch.equal(found.kept[name], mask)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"encoding": "zip"}, "unknown encoding"),
        ({"encoding": "dense"}, "unknown encoding"),
        ({"encoding": "bitmap"}, "wrong length"),
        ({"encoding": "holes"}, "not as many values"),
        ({"shape": [2, 2]}, "damaged"),
    ],
)
def test_lies_of_version_1_are_found_out(tmp_path, change, said):
    earlier, path = FILES / "int8.safetensors", tmp_path / "file"
    path.write_bytes(earlier.read_bytes())
    forge(path, lambda content, arrays: content["tensors"]["gaps"].update(change))
    with pytest.raises(CheckpointError, match=said):
        read_compact(path)
