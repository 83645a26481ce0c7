"""The compact file: what goes in comes out, or nothing at all; lies are refused."""

import hashlib
import os
import tempfile
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesrnn.compression.file import VALUE_TYPES, read_compact, write_compact
from bayesrnn.compression.manifest import is_compact, sha256
from bayesrnn.errors import CheckpointError, ConfigError, RunError

from .compact_files import as_matrix, bits, check_values, forge, payload

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


def values_of(name, arrays):
    """The values of a tensor, unpacked."""
    if f"{name}.packed" in arrays:
        return np.frombuffer(zlib.decompress(arrays[f"{name}.packed"].tobytes()), np.int8)
    return arrays[f"{name}.values"]


def places(name, arrays):
    """The parts of a tensor that say where its values belong."""
    parts = {part: arrays.get(f"{name}.{part}") for part in ("rows", "columns", "mask")}
    return {part: array for part, array in parts.items() if array is not None}


def check_places(parts, mask):
    """Rows and columns without a weight are named, if they are, and the mask is of the others."""
    of_lines = {"rows": mask.any(1), "columns": mask.any(0)}
    left = {n: of_lines[n] if n in parts else np.ones_like(of_lines[n]) for n in of_lines}
    inner = mask[left["rows"]][:, left["columns"]]
    for name, expected in {**of_lines, "mask": inner}.items():
        if name in parts:
            packed = zlib.decompress(parts[name].tobytes())
            assert packed == np.packbits(expected, bitorder="little").tobytes()
    assert "mask" in parts or inner.all()


@settings(max_examples=150, deadline=None)
@given(tensors(), tensors(), st.sampled_from(VALUE_TYPES))
def test_what_goes_in_comes_out(first, second, values):
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
    for name, weight in weights.items():
        mask = kept.get(name, torch.ones(weight.shape, dtype=torch.bool))
        masked = torch.where(mask, weight, 0.0)
        entry = content["tensors"][name]
        check_values(found.weights[name], masked, entry["values"])
        assert len(values_of(name, arrays)) == mask.sum() == entry["kept"]
        if name in kept:
            assert torch.equal(found.kept[name], mask)
        assert bool(places(name, arrays)) == (not mask.all())
        check_places(places(name, arrays), as_matrix(mask).numpy())
    assert size.indices == sum(a.nbytes for name in weights for a in places(name, arrays).values())
    assert size.indices + size.values == sum(array.nbytes for array in arrays.values())
    assert size.dense == 4 * sum(weight.numel() for weight in weights.values())


@pytest.mark.parametrize(
    ("values", "most"), [("float32", 0.23), ("float16", 0.13), ("int8", 0.085)]
)
def test_the_file_is_nearly_as_small_as_can_be(tmp_path, values, most):
    """No code for a random mask needs fewer bits than its entropy, 0.72 a weight at 80%."""
    numbers = torch.Generator().manual_seed(0)
    weights = {"a": torch.randn(2000, 200, generator=numbers), "b": torch.randn(2000)}
    kept = {"a": torch.rand(2000, 200, generator=numbers) < 0.2}
    size = write_compact(tmp_path / "file", weights, kept, {}, values)
    assert size.ratio == (tmp_path / "file").stat().st_size / (4 * 402_000)
    assert size.ratio < most
    entropy = -(0.2 * np.log2(0.2) + 0.8 * np.log2(0.8))
    assert 0.99 < size.indices * 8 / 400_000 / entropy < 1.03


def test_rows_and_columns_that_are_gone_take_no_place(tmp_path):
    """Where whole units are gone and nothing else, two bits for each of them say so."""
    numbers = torch.Generator().manual_seed(0)
    weight = torch.randn(2600, 650, generator=numbers)
    rows, columns = (torch.rand(n, generator=numbers) < 0.3 for n in weight.shape)
    size = write_compact(tmp_path / "file", {"a": weight}, {"a": rows[:, None] & columns}, {})
    arrays, content = payload(tmp_path / "file")
    assert content["version"] == 4
    assert set(arrays) == {"a.values", "a.rows", "a.columns"}
    assert size.indices < (2600 + 650) / 8 + 50
    assert size.values == 4 * rows.sum() * columns.sum()


def as_version_3(content, arrays):
    """Int8 values as they are, with scales in float32."""
    content["version"] = 3
    for name, entry in content["tensors"].items():
        if "packed" in entry.get("parts", ()):
            values = values_of(name, arrays)
            del arrays[f"{name}.packed"], entry["parts"]["packed"]
            older = {"values": values, "scales": np.float32(arrays[f"{name}.scales"])}
            arrays |= {f"{name}.{part}": array for part, array in older.items()}
            entry["parts"] |= {part: sha256(array) for part, array in older.items()}


def test_files_of_version_3_are_read(file):
    expected = read_compact(file)
    forge(file, as_version_3)
    assert not any(name.endswith(".packed") for name in payload(file)[0])
    assert same(read_compact(file), expected)


@pytest.mark.parametrize("values", VALUE_TYPES)
def test_files_of_version_2_are_read(tmp_path, values):
    """They have a bit for each weight."""
    weights, kept = {"a": torch.randn(400, 300)}, {"a": torch.rand(400, 300) < 0.3}
    kept["a"][:300], kept["a"][:, ::3] = False, False
    write_compact(tmp_path / "file", weights, kept, ABOUT, values)
    expected = read_compact(tmp_path / "file")

    def older(content, arrays):
        as_version_3(content, arrays)
        content["version"] = 2
        parts = content["tensors"]["a"]["parts"]
        for part in places("a", arrays):
            del arrays[f"a.{part}"], parts[part]
        bits = np.packbits(kept["a"].numpy(), bitorder="little")
        arrays["a.mask"] = np.frombuffer(zlib.compress(bits.tobytes()), np.uint8)
        parts["mask"] = hashlib.sha256(arrays["a.mask"].tobytes()).hexdigest()

    assert set(places("a", payload(tmp_path / "file")[0])) == {"rows", "columns", "mask"}
    forge(tmp_path / "file", older)
    assert same(read_compact(tmp_path / "file"), expected)


def test_int8_takes_what_a_row_needs(tmp_path):
    rows = [[1.0, -0.5, 0.25, 9.0], [100.0, 1.0, -100.0, 0.0], [9.0, 9.0, 9.0, 9.0]]
    weight = torch.tensor(rows).repeat(1, 10)
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]).bool().repeat(1, 10)
    plain, few = torch.full((30,), 0.1), torch.linspace(0.1, 0.2, 18).reshape(9, 2)
    cut = torch.tensor([2.0, 1.0]).repeat(10)
    weights = {"w": weight, "bias": plain, "cut": cut, "few": few, "large": few * 1e6}
    kept = {"w": mask, "cut": cut > 0, "few": few > 0}
    write_compact(tmp_path / "file", weights, kept, {}, "int8")
    arrays, _ = payload(tmp_path / "file")
    scales = arrays["w.scales"].tolist()
    assert scales[:2] == np.float16([1 / 127, 100 / 127]).tolist()  # not of what is dropped
    assert values_of("w", arrays).tolist() == [127, -64, 32] * 10 + [127, 1, -127, 0] * 10
    assert values_of("cut", arrays).tolist() == [127, 64] * 10
    assert arrays["bias.values"].dtype == arrays["few.values"].dtype == np.float16
    assert values_of("large", arrays).dtype == np.int8
    found = read_compact(tmp_path / "file").weights
    assert torch.equal(found["bias"], plain.half().float())
    steps = [127 * scales[0], -64 * scales[0], 32 * scales[0], 0.0]
    assert found["w"][0, :4].tolist() == pytest.approx(steps)


@pytest.mark.parametrize("largest", [1e-7, 1e-3, 0.37, 900.0, 1e6, 3e9])
def test_scales_of_int8_are_halves_where_no_entry_moves_by_more_than_half_a_step(tmp_path, largest):
    numbers = torch.Generator().manual_seed(0)
    weight = largest * (2 * torch.rand(40, 300, generator=numbers) - 1)
    weight[:, 0] = largest
    write_compact(tmp_path / "file", {"w": weight}, {}, {}, "int8")
    arrays, _ = payload(tmp_path / "file")
    is_half = arrays["w.scales"].dtype == np.float16
    assert is_half == (1e-7 < largest < 1e9)
    found = read_compact(tmp_path / "file").weights["w"]
    assert bool(((found - weight).abs() <= 0.5001 * largest / 127).all())


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
    """A file with every part."""
    numbers = torch.Generator().manual_seed(1)
    weights = {
        "rows": torch.randn(40, 100, generator=numbers),
        "few": torch.randn(2, 600, generator=numbers),
        "bias": torch.randn(9, generator=numbers),
    }
    weights["tied"] = weights["few"]
    kept = {
        "rows": (torch.rand(40, 100, generator=numbers) < 0.4)
        & (torch.arange(40) % 2)[:, None].bool(),
        "few": torch.rand(2, 600, generator=numbers) < 0.05,
    }
    path = tmp_path / "file"
    write_compact(path, weights, kept, ABOUT, "int8")
    arrays, _ = payload(path)
    assert {"rows.mask", "rows.scales", "few.mask", "few.scales", "bias.values"} <= arrays.keys()
    assert len(arrays["rows.scales"]) == 20  # a row that is gone takes its scale along
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


def entry(**changes):
    def change(content, arrays):
        content["tensors"]["few"].update(changes)

    return change


def other_part(name, make):
    def change(content, arrays):
        tensor, _, part = name.rpartition(".")
        arrays[name] = make(arrays[name])
        content["tensors"][tensor]["parts"][part] = sha256(arrays[name])

    return change


def packed(size):
    """The mask of so many entries, all of them dropped."""
    packer, (blocks, rest) = zlib.compressobj(), divmod(-(-size // 8), 2**20)
    parts = [packer.compress(bytes(2**20)) for _ in range(blocks)]
    return np.frombuffer(b"".join(parts) + packer.compress(bytes(rest)) + packer.flush(), np.uint8)


def test_a_forgery_without_a_lie_is_read(file):
    expected = read_compact(file)
    forge(file, lambda content, arrays: None)
    assert same(read_compact(file), expected)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content, arrays: content.update(version=5), "version 5; this bayesrnn reads"),
        (lambda content, arrays: content.update(version=1), "damaged: 'encoding'"),
        (lambda content, arrays: content.update(format="other"), "not a compact file"),
        (lambda content, arrays: content.update(about=[]), "damaged"),
        (lambda content, arrays: content.update(tensors=[]), "damaged"),
        (lambda content, arrays: content.pop("tensors"), "damaged"),
        (lambda content, arrays: arrays.pop("few.mask"), "parts that its manifest lists"),
        (lambda content, arrays: arrays.update(more=np.zeros(3)), "parts that its manifest lists"),
        (entry(shape=[2**20, 2**20]), "more weights than"),
        (entry(shape=[2**60, 0]), "more weights than"),
        (entry(shape=[-2, 600]), "a shape is not"),
        (entry(shape=[2, 600.0]), "a shape is not"),
        (entry(shape=1200), "a shape is not"),
        (entry(shape=[2, 2]), "one bit for each weight"),
        (entry(shape=[0, 600]), "one bit for each weight"),
        (entry(shape=[40, 30]), "one scale for each row"),
        (entry(kept=5), "not as many values"),
        (entry(values="int4"), "unknown type"),
        (entry(values="float32"), "wrong type"),
        (entry(values=[]), "damaged"),
        (entry(parts={}), "parts that its manifest lists"),
        (entry(same_as="nothing"), "damaged"),
        (entry(same_as=[]), "damaged"),
        (other_part("bias.values", lambda values: values[None]), "wrong type"),
        (other_part("bias.values", lambda values: values[1:]), "not as many values"),
        (other_part("few.packed", lambda values: values[:-1]), "not as many values"),
        (other_part("few.packed", lambda values: values[1:]), "not as many values"),
        (other_part("few.packed", lambda values: values.view(np.int8)), "wrong type"),
        (other_part("few.scales", lambda scales: scales[1:]), "one scale for each row"),
        (other_part("few.scales", lambda scales: scales * np.float16("nan")), "NaN or an infinity"),
        (
            other_part("few.scales", lambda scales: scales.astype(np.float32) * 0 + 3e38),
            "NaN or an infinity",
        ),
        (
            other_part("bias.values", lambda values: values + np.float16("inf")),
            "NaN or an infinity",
        ),
        (other_part("few.mask", lambda mask: mask[:-1]), "one bit for each weight"),
        (other_part("few.mask", lambda mask: np.append(mask, mask)), "one bit for each weight"),
        (other_part("few.mask", lambda mask: mask[1:]), "cannot be unpacked"),
        (other_part("few.mask", lambda mask: packed(1201)), "one bit for each weight"),
        (other_part("few.mask", lambda mask: packed(1200)), "not as many values"),
    ],
)
def test_lies_are_found_out(file, change, said):
    forge(file, change)
    with pytest.raises(CheckpointError, match=said) as caught:
        read_compact(file)
    assert len(str(caught.value).splitlines()) == 1


def test_a_mask_grows_no_further_than_its_shape(file):
    """64 MB of zeros are 64 KB of file; no more than the 150 bytes that belong there are made."""
    forge(file, other_part("few.mask", lambda mask: packed(2**29)))
    tracemalloc.start()
    with pytest.raises(CheckpointError, match="one bit for each weight"):
        read_compact(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**24


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
    for values in VALUE_TYPES:
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
