"""The compact file: what goes in comes out, in as few bytes as counted by hand, or not at all."""

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesrnn.compression import file as compact
from bayesrnn.compression.file import VALUES, is_compact, read_compact, write_compact
from bayesrnn.errors import CheckpointError, ConfigError, RunError

ABOUT = {"words": "naïve\n<eos>\n", "step": 7, "list": [1, None, 0.5]}
SPECIAL = [-0.0, 0.0, 1e-45, -1e-40, 3.0, -65504.0, 1e-8]


@st.composite
def tensors(draw):
    """A tensor and its mask (or None), with any share kept, and lines that vanish."""
    shape = draw(
        st.sampled_from([(), (1,), (9,), (700,), (1, 40), (40, 1), (6, 0), (13, 21), (4, 3, 5)])
        | st.tuples(st.integers(1, 30), st.integers(1, 30))
    )
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = numbers.normal(size=shape).astype(np.float32)
    odd = numbers.random(shape) < draw(st.sampled_from([0, 0.2, 1]))
    values = np.where(odd, numbers.choice(SPECIAL, size=shape), values).astype(np.float32)
    share = draw(st.sampled_from([None, 0.0, 0.003, 0.05, 0.2, 0.5, 0.97, 1.0]))
    if share is None:
        return torch.from_numpy(values), None
    mask = np.asarray(numbers.random(shape) < share)
    if mask.ndim > 1:
        mask[numbers.random(mask.shape[0]) < draw(st.sampled_from([0, 0.5, 0.9]))] = False
        mask[:, numbers.random(mask.shape[1]) < draw(st.sampled_from([0, 0.5, 0.9]))] = False
    return torch.from_numpy(values), torch.from_numpy(mask)


def bits(tensor):
    return tensor.contiguous().view(-1).view(torch.int32)


def as_matrix(tensor):
    return tensor.flatten(1) if tensor.dim() > 1 else tensor.reshape(1, -1)


def payload(path):
    """The arrays of a file and the content of its manifest, without the reader that is tested."""
    with safetensors.safe_open(path, "np") as file:
        assert list(file.metadata()) == ["bayesrnn"]
        content = json.loads(file.metadata()["bayesrnn"])["content"]
        return {name: file.get_tensor(name) for name in file.keys()}, content  # noqa: SIM118


def bytes_of_gaps(flags):
    """What the gaps before the true ones take, counted one by one."""
    size = gap = 0
    for flag in flags:
        gap += 1
        if flag:
            size += 1 + (gap - 1) // 255
            gap = 0
    return size


def fewest_bytes(mask, scale):
    """The smallest index, by hand: rows and columns left out or not, in each encoding."""
    rows, columns = mask.any(1), mask.any(0)
    found = []
    for without_rows in (False, True):
        for without_columns in (False, True):
            left = mask[rows] if without_rows else mask
            left = left[:, columns] if without_columns else left
            extra = -(-len(rows) // 8) * without_rows + -(-len(columns) // 8) * without_columns
            flat = left.flatten().tolist()
            index = [-(-len(flat) // 8), bytes_of_gaps(flat), bytes_of_gaps([not f for f in flat])]
            found.append(min(index) + extra + scale * len(left))
    return min(found[:1] if len(rows) == 1 else found)


@settings(max_examples=150, deadline=None)
@given(tensors(), tensors(), st.sampled_from(VALUES))
def test_what_goes_in_comes_out_and_every_byte_is_counted(first, second, values):
    given_ = {"a": first, "b.weight": second}
    weights = {name: weight for name, (weight, _) in given_.items()}
    kept = {name: mask for name, (_, mask) in given_.items() if mask is not None}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        size = write_compact(path, weights, kept, ABOUT, values)
        found = read_compact(path)
        arrays, content = payload(path)
        assert size.total == path.stat().st_size
    assert found.about == ABOUT
    assert list(found.weights) == list(weights)
    assert found.kept.keys() == kept.keys()
    counted = 0
    for name, weight in weights.items():
        mask = kept.get(name, torch.ones(weight.shape, dtype=torch.bool))
        masked = torch.where(mask, weight, 0.0)
        kind = content["tensors"][name]["values"]
        check_values(found.weights[name], masked, kind)
        if name in kept:
            assert torch.equal(found.kept[name], mask)
            scale = 4 if kind == "int8" else 0
            counted += fewest_bytes(as_matrix(mask), scale)
            counted -= sum(len(arrays.get(f"{name}.scales", ())) for _ in range(scale))
        assert len(arrays[f"{name}.values"]) == mask.sum() == content["tensors"][name]["kept"]
    ends = (".index", ".rows", ".columns")
    assert size.indices == counted
    assert size.indices == sum(a.nbytes for n, a in arrays.items() if n.endswith(ends))
    assert size.indices + size.values == sum(array.nbytes for array in arrays.values())
    assert size.dense == 4 * sum(weight.numel() for weight in weights.values())


def check_values(found, masked, kind):
    assert (found.dtype, found.shape) == (torch.float32, masked.shape)
    if kind == "float32":
        assert torch.equal(bits(found), bits(masked))
    elif kind == "float16":
        assert torch.equal(bits(found), bits(masked.half().float()))
    else:
        rows, errors = as_matrix(masked), as_matrix((found - masked).abs())
        if rows.numel():
            half_a_step = rows.abs().amax(1, keepdim=True).double() / 127 / 2
            # The scale is rounded too; below the normal numbers, to steps of 1e-45.
            assert bool((errors <= half_a_step * (1 + 1e-4) + 127 * 1.5e-45).all())


@pytest.mark.parametrize(
    ("mask", "encoding", "lines"),
    [
        (torch.ones(20, 20), "dense", set()),
        ((torch.arange(400).view(20, 20) % 3 == 0) & (torch.arange(20) < 8), "bitmap", {"columns"}),
        (torch.arange(400).view(20, 20) % 3 == 0, "bitmap", set()),
        (torch.arange(400).view(20, 20) % 90 == 0, "gaps", set()),
        (torch.arange(400).view(20, 20) % 90 != 0, "holes", set()),
        (torch.zeros(20, 20), "gaps", set()),
        ((torch.arange(20) < 3)[:, None].expand(20, 20), "dense", {"rows"}),
        ((torch.arange(20) < 3)[None].expand(20, 20), "dense", {"columns"}),
        (torch.arange(20).gt(9)[:, None] & torch.arange(20).lt(9), "dense", {"rows", "columns"}),
    ],
)
@pytest.mark.parametrize("values", VALUES[:2])
def test_the_encoding_fits_the_pattern(tmp_path, mask, encoding, lines, values):
    mask = mask.bool()
    weight = torch.arange(1.0, 401).view(20, 20)
    write_compact(tmp_path / "file", {"w": weight}, {"w": mask}, {}, values)
    arrays, content = payload(tmp_path / "file")
    assert content["tensors"]["w"]["encoding"] == encoding
    parts = {name.removeprefix("w.") for name in arrays}
    assert parts & {"rows", "columns"} == lines
    found = read_compact(tmp_path / "file")
    assert torch.equal(found.weights["w"], weight * mask)
    assert torch.equal(found.kept["w"], mask)


@pytest.mark.parametrize("gap", [0, 1, 253, 254, 255, 256, 509, 510, 511, 1000])
def test_gaps_longer_than_a_byte(tmp_path, gap):
    mask = torch.zeros(5000, dtype=torch.bool)
    mask[[gap, 2 * gap + 1, 4999]] = True
    size = write_compact(tmp_path / "file", {"w": torch.ones(5000)}, {"w": mask}, {})
    assert size.indices == 3 + 2 * (gap // 255) + (4999 - 2 * gap - 2) // 255
    assert torch.equal(read_compact(tmp_path / "file").kept["w"], mask)


@pytest.mark.parametrize(("values", "most"), [("float32", 0.35), ("float16", 0.2), ("int8", 0.15)])
def test_the_file_is_as_small_as_promised(tmp_path, values, most):
    numbers = torch.Generator().manual_seed(0)
    weights = {"a": torch.randn(2000, 200, generator=numbers), "b": torch.randn(2000)}
    kept = {"a": torch.rand(2000, 200, generator=numbers) < 0.2}
    size = write_compact(tmp_path / "file", weights, kept, {}, values)
    assert size.ratio == (tmp_path / "file").stat().st_size / (4 * 402_000)
    assert size.ratio < most
    assert size.indices == 2000 * 200 / 8


def test_int8_takes_what_a_row_needs(tmp_path):
    rows = [[1.0, -0.5, 0.25, 9.0], [100.0, 1.0, -100.0, 0.0], [9.0, 9.0, 9.0, 9.0]]
    weight = torch.tensor(rows).repeat(1, 10)
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]).bool().repeat(1, 10)
    plain, few = torch.full((30,), 0.1), torch.full((9, 2), 0.1)
    cut = torch.tensor([2.0, 1.0]).repeat(10)
    weights = {"w": weight, "bias": plain, "cut": cut, "few": few, "large": few * 1e6}
    kept = {"w": mask, "cut": cut > 0, "few": few > 0}
    write_compact(tmp_path / "file", weights, kept, {}, "int8")
    arrays, _ = payload(tmp_path / "file")
    scales = arrays["w.scales"].tolist()
    assert scales[:2] == pytest.approx([1 / 127, 100 / 127])  # what is dropped does not count
    assert arrays["w.values"].tolist() == [127, -64, 32] * 10 + [127, 1, -127, 0] * 10
    assert arrays["cut.values"].tolist() == [127, 64] * 10
    assert arrays["bias.values"].dtype == arrays["few.values"].dtype == np.float16
    assert arrays["large.values"].dtype == np.int8
    found = read_compact(tmp_path / "file").weights
    assert torch.equal(found["bias"], plain.half().float())
    assert found["w"][0, :4].tolist() == pytest.approx([1.0, -64 / 127, 32 / 127, 0.0])


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path):
    weight = torch.randn(30, 10)
    mask = torch.rand(30, 10) < 0.5
    weights = {"in": weight, "bias": torch.ones(3), "out": weight, "like": weight.clone()}
    size = write_compact(tmp_path / "file", weights, {"out": mask}, {})
    assert size.dense == 4 * (2 * weight.numel() + 3)
    found = read_compact(tmp_path / "file")
    assert found.weights["in"] is found.weights["out"]
    assert list(found.weights) == list(weights)
    assert torch.equal(found.weights["out"], torch.where(mask, weight, 0.0))
    assert torch.equal(found.weights["like"], weight)
    assert list(found.kept) == ["in"]
    with pytest.raises(ConfigError, match="two different masks"):
        write_compact(tmp_path / "file", weights, {"out": mask, "in": ~mask}, {})


@pytest.fixture
def file(tmp_path):
    """A file with every part and encoding."""
    numbers = torch.Generator().manual_seed(1)
    mask = torch.rand(40, 100, generator=numbers) < 0.4
    mask[::2] = False
    mask[:, :50] = False
    weights = {
        "bitmap": torch.randn(40, 100, generator=numbers),
        "gaps": torch.randn(2, 600, generator=numbers),
        "bias": torch.randn(9, generator=numbers),
    }
    weights["tied"] = weights["gaps"]
    kept = {"bitmap": mask, "gaps": torch.rand(2, 600, generator=numbers) < 0.05}
    path = tmp_path / "file"
    write_compact(path, weights, kept, ABOUT, "int8")
    parts = {"bitmap.rows", "bitmap.columns", "bitmap.index", "gaps.index", "gaps.scales"}
    assert parts <= payload(path)[0].keys()
    return path


def same(found, expected):
    return (
        found.about == expected.about
        and found.weights.keys() == expected.weights.keys()
        and found.kept.keys() == expected.kept.keys()
        and all(torch.equal(bits(w), bits(expected.weights[n])) for n, w in found.weights.items())
        and all(torch.equal(mask, expected.kept[n]) for n, mask in found.kept.items())
    )


def test_changed_bytes_are_refused_or_harmless(file):
    whole, expected = file.read_bytes(), read_compact(file)
    numbers = np.random.default_rng(2)
    places = {*range(16), *numbers.integers(len(whole), size=600).tolist()}
    refused = []
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << int(numbers.integers(8))
        file.write_bytes(changed)
        try:
            found = read_compact(file)
        except CheckpointError as error:
            refused.append(str(error))
        else:
            assert same(found, expected), place
    assert len(refused) > 0.95 * len(places)
    assert all(str(file) in said and len(said.splitlines()) == 1 for said in refused)


def test_every_changed_byte_of_the_payload_is_refused(file):
    whole = file.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    for place in range(start, len(whole), 3):
        changed = bytearray(whole)
        changed[place] ^= 0x10
        file.write_bytes(changed)
        with pytest.raises(CheckpointError, match="checksum"):
            read_compact(file)


def test_files_that_end_too_early_or_too_late_are_refused(file):
    whole = file.read_bytes()
    for length in [*range(0, len(whole), 41), len(whole) - 1]:
        file.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="damaged"):
            read_compact(file)
    file.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError, match="damaged"):
        read_compact(file)


def forge(path, change):
    """Change what a file says and give it the right checksums."""
    arrays, content = payload(path)
    change(content, arrays)
    path.write_bytes(safetensors.numpy.save(arrays, {"bayesrnn": compact._manifest(content)}))


def entry(**changes):
    def change(content, arrays):
        content["tensors"]["gaps"].update(changes)

    return change


def other_part(name, make):
    def change(content, arrays):
        tensor, _, part = name.rpartition(".")
        arrays[name] = make(arrays[name])
        content["tensors"][tensor]["parts"][part] = compact._sha256(arrays[name])

    return change


def test_a_forgery_without_a_lie_is_read(file):
    expected = read_compact(file)
    forge(file, lambda content, arrays: None)
    assert same(read_compact(file), expected)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content, arrays: content.update(version=2), "version 2; this bayesrnn reads"),
        (lambda content, arrays: content.update(format="other"), "not a compact file"),
        (lambda content, arrays: content.update(about=[]), "damaged"),
        (lambda content, arrays: content.update(tensors=[]), "damaged"),
        (lambda content, arrays: content.pop("tensors"), "damaged"),
        (lambda content, arrays: arrays.pop("gaps.index"), "parts that its manifest lists"),
        (lambda content, arrays: arrays.update(more=np.zeros(3)), "parts that its manifest lists"),
        (entry(shape=[2**20, 2**20]), "more weights than"),
        (entry(shape=[2**60, 0]), "more weights than"),
        (entry(shape=[-2, 600]), "a shape is not"),
        (entry(shape=[2, 600.0]), "a shape is not"),
        (entry(shape=1200), "a shape is not"),
        (entry(shape=[2, 2]), "damaged"),
        (entry(shape=[40, 30]), "one scale for each row"),
        (entry(kept=5), "not as many values"),
        (entry(values="int4"), "unknown type"),
        (entry(values="float32"), "wrong type"),
        (entry(values=[]), "damaged"),
        (entry(encoding="zip"), "unknown encoding"),
        (entry(encoding="dense"), "unknown encoding"),
        (entry(encoding="bitmap"), "wrong length"),
        (entry(encoding="holes"), "not as many values"),
        (entry(parts={}), "parts that its manifest lists"),
        (entry(same_as="nothing"), "damaged"),
        (entry(same_as=[]), "damaged"),
        (other_part("gaps.index", lambda index: index[:-1]), "not as many values"),
        (other_part("gaps.index", lambda index: np.full_like(index, 254)), "damaged"),
        (other_part("gaps.values", lambda values: values[None]), "wrong type"),
        (other_part("gaps.scales", lambda scales: scales[1:]), "one scale for each row"),
        (other_part("bitmap.rows", lambda rows: rows[1:]), "wrong length"),
        (other_part("bitmap.rows", lambda rows: rows | 3), "wrong length"),
    ],
)
def test_lies_are_found_out(file, change, said):
    forge(file, change)
    with pytest.raises(CheckpointError, match=said) as caught:
        read_compact(file)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04 something else",
        (2**63).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (50_000).to_bytes(8, "little") + b"[" * 50_000,
        safetensors.numpy.save({"w": np.zeros(3)}),
        safetensors.numpy.save({"w": np.zeros(3)}, {"format": "pt"}),
    ],
)
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    assert not is_compact(path)
    with pytest.raises(CheckpointError, match="damaged, or not a compact file"):
        read_compact(path)


def test_what_is_not_a_file_is_refused(tmp_path, file):
    assert is_compact(file)
    assert not is_compact(tmp_path)
    assert not is_compact(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="is not a file"):
        read_compact(tmp_path)
    with pytest.raises(CheckpointError, match="is missing"):
        read_compact(tmp_path / "nothing")


W = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (({"w": W}, {"v": W > 0}, {}), "there is a mask for v, but no such weight"),
        (({"w": W}, {"w": W[0] > 0}, {}), "the mask of w has the shape"),
        (({"w": W.int()}, {}, {}), "w holds torch.int32"),
        (({"w": W / 0}, {}, {}), "w holds a NaN or an infinity"),
        (({"w": W * 1e5}, {}, {}, "float16"), "too large for float16"),
        (({"w": W}, {}, {}, "int4"), "there are: float32, float16, int8"),
        (({"w": W}, {}, {"path": Path()}), "cannot be written as JSON"),
        (({"w": W}, {}, {"nan": float("nan")}), "cannot be written as JSON"),
    ],
)
def test_what_cannot_be_written_leaves_the_old_file(file, arguments, said):
    before = file.read_bytes()
    with pytest.raises(ConfigError, match=said):
        write_compact(file, *arguments)
    assert file.read_bytes() == before


def test_what_is_dropped_may_be_anything(tmp_path):
    weight = torch.tensor([1.0, torch.nan, torch.inf, 1e30])
    kept = {"w": torch.tensor([True, False, False, False])}
    for values in VALUES:
        write_compact(tmp_path / "file", {"w": weight}, kept, {}, values)
        found = read_compact(tmp_path / "file").weights["w"]
        assert found.tolist() == pytest.approx([1.0, 0.0, 0.0, 0.0])


def test_a_failed_write_leaves_the_old_file_and_nothing_else(file, monkeypatch):
    before = file.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"cannot write .* the disk is full"):
        write_compact(file, {"w": W}, {}, {})
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == [file.name]  # noqa: PTH208
    with pytest.raises(RunError, match="cannot write"):
        write_compact(file.parent / "no" / "folder", {"w": W}, {}, {})


def test_the_same_network_gives_the_same_bytes(tmp_path):
    weights = {name: torch.ones(3, 4) for name in ("b", "a", "c")}
    for name in ("one", "two"):
        write_compact(tmp_path / name, weights, {"a": W.new_ones(3, 4) > 0}, ABOUT)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_row_that_is_gone_takes_its_scale_along(tmp_path):
    mask = torch.zeros(24, 60, dtype=torch.bool)
    left = [row for row in range(24) if row not in (3, 9, 14, 20)]
    for row in left:
        mask[row, [(7 * row + 10 * step) % 60 for step in range(6)]] = True
    parts = {}
    for values in ("float16", "int8"):
        write_compact(tmp_path / "file", {"w": torch.ones(24, 60)}, {"w": mask}, {}, values)
        parts[values], _ = payload(tmp_path / "file")
        assert torch.equal(read_compact(tmp_path / "file").weights["w"].round(), mask.float())
    assert "w.rows" not in parts["float16"]  # its three bytes would gain nothing
    assert len(parts["int8"]["w.rows"]) == 3
    assert len(parts["int8"]["w.scales"]) == len(left)
