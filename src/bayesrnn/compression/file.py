"""The compact file of a pruned network: the weights that were not dropped, and their places.

One safetensors file. Its metadata has one entry, `bayesrnn`, a JSON manifest with a checksum of
itself: format and version, a description of the network, and for each tensor its
shape, the type of its values, how many entries were kept, and the sha256 of each of its parts. The
parts of a tensor are arrays with one axis:

    <name>.values     the kept entries, in order
    <name>.packed     the same of int8, packed by zlib
    <name>.scales     int8 only: what 1 stands for, for each row of which something was kept
                      (a vector is one row); float16 where that is exact enough, else float32
    <name>.rows       rows that are left, <name>.columns likewise, and <name>.mask which entries of
                      them: see `compression.masks`

Files of version 3 have int8 values that are not packed; those of version 2 also have the mask of
all rows and columns; those of version 1 store the places of the values differently, see
`compression.version_1`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesrnn.compression.manifest import (
    KEY,
    LONGEST_HEADER,
    manifest_text,
    read_manifest,
    sha256,
)
from bayesrnn.compression.masks import Bits, mask_of_parts, mask_parts
from bayesrnn.compression.packing import pack, unpack
from bayesrnn.compression.version_1 import mask_of_version_1
from bayesrnn.durable import write_durably
from bayesrnn.errors import CheckpointError, ConfigError

#: The types that the values in a file can have; float32 is exact.
VALUE_TYPES = ("float32", "float16", "int8")

#: The most weights of a file: this many in any case, or as many for each of its bytes.
_WEIGHTS, _WEIGHTS_PER_BYTE = 2**28, 1024

Array = NDArray[Any]


@dataclass(frozen=True)
class CompactSize:
    """The bytes of a compact file.

    values: of the kept weights, with the scales of int8.
    indices: of their places.
    dense: what all weights take as float32, tied ones counted once.
    """

    total: int
    values: int
    indices: int
    dense: int

    @property
    def ratio(self) -> float:
        """The whole file against the dense weights."""
        return self.total / max(self.dense, 1)

    @property
    def index_share(self) -> float:
        """The share of the file that stores the places of the weights."""
        return self.indices / self.total


@dataclass(frozen=True, eq=False)
class Compact:
    """What a compact file holds.

    weights: float32, zero where an entry was dropped; tied weights are one tensor.
    kept: masks of the pruned tensors, true where an entry was kept; of tied ones under one name.
    about: the description of the network.
    """

    weights: dict[str, Tensor]
    kept: dict[str, Tensor]
    about: dict[str, Any]


def write_compact(
    path: Path,
    weights: Mapping[str, Tensor],
    kept: Mapping[str, Tensor],
    about: Mapping[str, Any],
    values: str = "float32",
) -> CompactSize:
    """Write weights without those that the masks drop; the file appears whole or not at all.

    values: float32 is exact. float16 rounds. int8 rounds each row to whole multiples of its largest
        absolute value / 127; a tensor of which too little is left for int8 and the scales of its
        rows to be smaller is float16 then, and so is a vector without a mask.
    about: a description, anything that JSON can represent.
    """
    if values not in VALUE_TYPES:
        raise ConfigError(f"the values are to be {values!r}; there are: {', '.join(VALUE_TYPES)}")
    for name in kept:
        if name not in weights:
            raise ConfigError(
                f"there is a mask for {name}, but no such weight; there are: {', '.join(weights)}"
            )
    entries: dict[str, Any] = {}
    parts: dict[str, Array] = {}
    masks = _masks_of_tied(weights, kept)
    dense = 0
    for name, same in _tied(weights).items():
        if same != name:
            entries[name] = {"same_as": same}
            continue
        matrix = _matrix(name, weights[name])
        mask = _mask(name, masks[name], matrix.shape, weights[name]) if name in masks else None
        kinds = _kinds(values, matrix, mask, weights[name].dim() > 1)
        encoded = [_encode(name, matrix, mask, kind) for kind in kinds]
        entry, made = min(encoded, key=lambda found: sum(part.nbytes for part in found[1].values()))
        entries[name] = {"shape": list(weights[name].shape), **entry}
        parts |= {f"{name}.{part}": array for part, array in made.items()}
        dense += 4 * matrix.size
    try:
        manifest = manifest_text({"about": dict(about), "tensors": entries})
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"what is said about the network cannot be written as JSON: {error}"
        ) from None
    data: bytes = safetensors.numpy.save(parts, {KEY: manifest})
    if len(manifest) > LONGEST_HEADER // 4 or dense // 4 > _most_weights(len(data)):
        raise ConfigError(f"{path} would not be readable: there are too many weights or words")
    write_durably(path, data)
    sizes = {True: 0, False: 0}
    for name, array in parts.items():
        sizes[name.endswith((".values", ".packed", ".scales"))] += array.nbytes
    return CompactSize(len(data), values=sizes[True], indices=sizes[False], dense=dense)


def read_compact(path: Path) -> Compact:
    """Read a file of `write_compact`, after its sizes and checksums were found right."""
    data, content = read_manifest(path)
    try:
        parts: dict[str, Array] = safetensors.numpy.load(data)
    except Exception as error:
        raise CheckpointError(f"{path} is damaged: {_line(error)}; write it again") from None
    try:
        return _decode_all(content, parts, _most_weights(len(data)))
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise CheckpointError(f"{path} is damaged: {_line(error)}; write it again") from None


# Writing


def _tied(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """For each name the first one that has the same tensor."""
    first: dict[Any, str] = {}
    found = {}
    for name, weight in weights.items():
        address = weight.untyped_storage().data_ptr()
        where = (address, weight.storage_offset(), weight.shape, weight.stride())
        found[name] = first.setdefault(where, name) if weight.numel() else name
    return found


def _masks_of_tied(weights: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The masks under the first name of each tensor."""
    same, masks = _tied(weights), dict[str, Tensor]()
    for name, mask in kept.items():
        if not torch.equal(masks.setdefault(same[name], mask), mask):
            raise ConfigError(
                f"{name} and {same[name]} are one tensor, but have two different masks; give one"
            )
    return masks


def _matrix(name: str, weight: Tensor) -> NDArray[np.float32]:
    """As rows and columns: a vector is one row, further axes are columns too."""
    if not weight.is_floating_point():
        raise ConfigError(f"{name} holds {weight.dtype}; a compact file holds real numbers")
    rows, columns = _matrix_shape(list(weight.shape))
    matrix: NDArray[np.float32] = weight.detach().to("cpu", torch.float32).numpy()
    return matrix.reshape(rows, columns)


def _matrix_shape(shape: list[int]) -> tuple[int, int]:
    return (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, math.prod(shape))


def _mask(name: str, mask: Tensor, shape: tuple[int, ...], weight: Tensor) -> Bits:
    if mask.shape != weight.shape:
        raise ConfigError(
            f"the mask of {name} has the shape {tuple(mask.shape)}, but the weight has "
            f"{tuple(weight.shape)}; give one entry for each weight"
        )
    bits: Bits = mask.detach().cpu().bool().numpy()
    return bits.reshape(shape)


def _kinds(
    values: str, matrix: NDArray[np.float32], mask: Bits | None, is_matrix: bool
) -> list[str]:
    """The types that a tensor's values can have, the more exact one first."""
    if values != "int8":
        return [values]
    if mask is None and not is_matrix:
        return ["float16"]
    largest = np.abs(matrix[... if mask is None else mask]).max(initial=0)
    return ["float16", "int8"] if largest <= np.finfo(np.float16).max else ["int8"]


def _encode(
    name: str, matrix: NDArray[np.float32], mask: Bits | None, kind: str
) -> tuple[dict[str, Any], dict[str, Array]]:
    """A tensor's entry in the manifest, and its parts."""
    kept = np.ones(matrix.shape, np.bool_) if mask is None else mask
    values: Array = matrix[kept]
    if not np.isfinite(values).all():
        raise ConfigError(f"{name} holds a NaN or an infinity; give a network of numbers")
    parts: dict[str, Array] = {**mask_parts(kept)}
    if kind == "int8":
        scales, multiples = _quantised(matrix, kept)
        parts["scales"] = scales[kept.any(axis=1)]
        parts["packed"] = pack(multiples.tobytes())
    elif kind == "float16":
        with np.errstate(over="ignore"):
            parts["values"] = values.astype(np.float16)
        if not np.isfinite(parts["values"]).all():
            raise ConfigError(f"{name} holds numbers too large for float16; take float32")
    else:
        parts["values"] = values
    entry = {
        "values": kind,
        "pruned": mask is not None,
        "kept": int(values.size),
        "parts": {part: sha256(array) for part, array in parts.items()},
    }
    return entry, parts


def _quantised(matrix: NDArray[np.float32], kept: Bits) -> tuple[Array, NDArray[np.int8]]:
    """The scale of each row, and the kept entries in its whole multiples."""
    largest = np.where(kept, np.abs(matrix), 0).max(axis=1, initial=0).astype(np.float64)
    scales: Array = (largest / 127).astype(np.float32)
    with np.errstate(over="ignore"):
        halves = scales.astype(np.float16)
    # The largest multiple is still within half a step of what it is of.
    if (np.abs(largest - 127 * halves.astype(np.float64)) <= 0.5 * scales).all():
        scales = halves
    rows, _ = np.nonzero(kept)
    divisors = np.where(scales > 0, scales, 1).astype(np.float64)[rows]
    multiples = np.rint(matrix[kept] / divisors).clip(-127, 127)
    return scales, multiples.astype(np.int8)


def _most_weights(size: int) -> int:
    """How many weights a file of this size may have: a forged shape must not fill the memory."""
    return max(_WEIGHTS, _WEIGHTS_PER_BYTE * size)


# Reading


def _decode_all(content: dict[str, Any], parts: dict[str, Array], most: int) -> Compact:
    """All tensors of a file; a mismatch raises a built-in exception."""
    weights: dict[str, Tensor] = {}
    kept: dict[str, Tensor] = {}
    entries = content["tensors"]
    listed = {
        f"{name}.{part}" for name, entry in entries.items() for part in entry.get("parts", ())
    }
    if listed != parts.keys():
        raise ValueError("it has not the parts that its manifest lists")
    own = {name: entry for name, entry in entries.items() if "same_as" not in entry}
    shapes = [_shape(entry) for entry in own.values()]
    if max([sum(map(math.prod, shapes)), *(n for shape in shapes for n in shape)]) > most:
        raise ValueError("it claims to have more weights than such a file can have")
    for name, entry in own.items():
        own_parts = {part: parts[f"{name}.{part}"] for part in entry["parts"]}
        matrix, mask = _decode(name, entry, own_parts, content["version"])
        weights[name] = torch.from_numpy(matrix).view(entry["shape"])
        if entry["pruned"]:
            kept[name] = torch.from_numpy(mask).view(entry["shape"])
    for name, entry in entries.items():
        if name not in own:
            weights[name] = weights[entry["same_as"]]
    return Compact({name: weights[name] for name in entries}, kept, content["about"])


def _shape(entry: dict[str, Any]) -> list[int]:
    shape = entry["shape"]
    if not isinstance(shape, list) or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError("a shape is not a list of whole numbers")
    return shape


def _decode(
    name: str, entry: dict[str, Any], parts: dict[str, Array], version: int
) -> tuple[NDArray[np.float32], Bits]:
    """The dense matrix and its mask."""
    kind = entry["values"]
    if kind not in VALUE_TYPES:
        raise ValueError(f"{name} has values of an unknown type")
    types: dict[str, tuple[str, ...]] = {"values": (kind,), "scales": ("float32", "float16")}
    types["packed"] = ("uint8",) if kind == "int8" else ()
    for part, array in parts.items():
        if array.ndim != 1 or str(array.dtype) not in types.get(part, ("uint8",)):
            raise ValueError(f"{name} has {part} of a wrong type")
        if sha256(array) != entry["parts"][part]:
            raise ValueError(f"the {part} of {name} do not match their checksum")
    shape = _matrix_shape(_shape(entry))
    if version == 1:
        mask = mask_of_version_1(entry["encoding"], parts, shape)
    else:
        mask = mask_of_parts(parts, shape)
    miscounted = f"{name} has not as many values as entries that were kept"
    if "packed" in parts:
        multiples = unpack(parts["packed"], int(mask.sum()), miscounted)
        parts["values"] = np.frombuffer(multiples, np.int8)
    if not mask.sum() == entry["kept"] == len(parts["values"]):
        raise ValueError(miscounted)
    values = parts["values"].astype(np.float32)
    if kind == "int8":
        with np.errstate(over="ignore", invalid="ignore"):
            values *= _scales(name, parts["scales"], mask)[np.nonzero(mask)[0]]
    if not np.isfinite(values).all():
        raise ValueError(f"{name} holds a NaN or an infinity")
    matrix = np.zeros(shape, np.float32)
    matrix[mask] = values
    return matrix, mask


def _scales(name: str, given: Array, mask: Bits) -> NDArray[np.float32]:
    """The scale of each row, from those of all rows (version 1) or of those that are left."""
    given = given.astype(np.float32)
    left = np.asarray(mask.any(axis=1))
    if len(given) == len(left):
        return given
    if len(given) != left.sum():
        raise ValueError(f"{name} has not one scale for each row")
    scales = np.zeros(len(left), np.float32)
    scales[left] = given
    return scales


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
