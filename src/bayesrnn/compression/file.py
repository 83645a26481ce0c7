"""The compact file of a pruned network: the weights that were kept, and where they belong.

One safetensors file. Its metadata has one entry, `bayesrnn`, a JSON manifest with a checksum of
itself: format and version, what the writer has to say about the network, and for each tensor its
shape, the type of its values, its encoding, how many entries were kept, and the sha256 of each of
its parts. The parts of a tensor are arrays with one axis:

    <name>.values     the kept entries, in order
    <name>.scales     int8 only: what 1 stands for, for each row (a vector is one row)
    <name>.index      which entries were kept, of the rows and columns that are left
    <name>.rows       a bit for each row, set if it is left; without it all are
    <name>.columns    the same for the columns

An index is a bitmap; or gaps: before each kept entry a byte for how many were dropped since the one
before, where 255 stands for 255 dropped ones and no entry; or holes, the same the other way round:
gaps between the dropped entries. `dense` has no index. Of all ways, that with the fewest bytes is
taken, those of bits for rows and columns and of scales counted.
"""

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesrnn.compression.masks import DENSE, Bits, Bytes, decoded_mask, encoded_mask, unpacked
from bayesrnn.durable import write_durably
from bayesrnn.errors import CheckpointError, ConfigError

#: The types that the values in a file can have; float32 is exact.
VALUES = ("float32", "float16", "int8")

_FORMAT, _VERSION, _KEY = "bayesrnn-compact", 1, "bayesrnn"

#: The longest header that safetensors reads.
_LONGEST_HEADER = 100_000_000

#: A file may stand for so many weights in any case, and for more if it is as large as that takes.
_WEIGHTS, _WEIGHTS_PER_BYTE = 2**28, 1024

Array = NDArray[Any]


@dataclass(frozen=True)
class CompactSize:
    """The bytes of a compact file.

    values: of the kept weights, with the scales of int8.
    indices: of what tells where they belong.
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
        """The part of the file that tells where the weights belong."""
        return self.indices / self.total


@dataclass(frozen=True, eq=False)
class Compact:
    """What a compact file holds.

    weights: float32, zero where an entry was dropped; tied weights are one tensor.
    kept: masks of the pruned tensors, true where an entry was kept; of tied ones under one name.
    about: what the writer said about the network.
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
        absolute value / 127; a tensor of which so little is left that the scales of its rows eat
        up the gain is float16 then, and so is a vector without a mask.
    about: anything that JSON can say.
    """
    if values not in VALUES:
        raise ConfigError(f"the values are to be {values!r}; there are: {', '.join(VALUES)}")
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
        manifest = _manifest({"about": dict(about), "tensors": entries})
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"what is said about the network cannot be written as JSON: {error}"
        ) from None
    data: bytes = safetensors.numpy.save(parts, {_KEY: manifest})
    if len(manifest) > _LONGEST_HEADER // 4 or dense // 4 > _most_weights(len(data)):
        raise ConfigError(f"{path} would not be readable: there are too many weights or words")
    write_durably(path, data)
    sizes = {True: 0, False: 0}
    for name, array in parts.items():
        sizes[name.endswith((".values", ".scales"))] += array.nbytes
    return CompactSize(len(data), values=sizes[True], indices=sizes[False], dense=dense)


def read_compact(path: Path) -> Compact:
    """Read a file of `write_compact`, after its sizes and checksums were found right."""
    data, content = _read(path)
    try:
        parts: dict[str, Array] = safetensors.numpy.load(data)
    except Exception as error:
        raise CheckpointError(f"{path} is damaged: {_line(error)}; write it again") from None
    try:
        return _decode_all(content, parts, _most_weights(len(data)))
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise CheckpointError(f"{path} is damaged: {_line(error)}; write it again") from None


def is_compact(path: Path) -> bool:
    """Whether a file says that it is a compact one; reading it tells whether it is whole."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return _KEY in _metadata(file.read(8), file.read, path.stat().st_size)
    except (OSError, ValueError, RecursionError):
        return False


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
    if mask is None:
        kept, encoding, places = np.ones(matrix.shape, np.bool_), DENSE, dict[str, Bytes]()
    else:
        kept, (encoding, places) = mask, encoded_mask(mask, 4 if kind == "int8" else 0)
    values: Array = matrix[kept]
    if not np.isfinite(values).all():
        raise ConfigError(f"{name} holds a NaN or an infinity; give a network of numbers")
    parts: dict[str, Array] = dict(places)
    if kind == "int8":
        scales, values = _quantised(matrix, kept)
        rows = places.get("rows")
        parts["scales"] = scales if rows is None else scales[unpacked(rows, len(scales))]
    elif kind == "float16":
        with np.errstate(over="ignore"):
            values = values.astype(np.float16)
        if not np.isfinite(values).all():
            raise ConfigError(f"{name} holds numbers too large for float16; take float32")
    parts["values"] = values
    entry = {
        "values": kind,
        "encoding": encoding,
        "pruned": mask is not None,
        "kept": int(values.size),
        "parts": {part: _sha256(array) for part, array in parts.items()},
    }
    return entry, parts


def _quantised(
    matrix: NDArray[np.float32], kept: Bits
) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """The scale of each row, and the kept entries in its whole multiples."""
    largest = np.where(kept, np.abs(matrix), 0).max(axis=1, initial=0)
    scales = (largest.astype(np.float64) / 127).astype(np.float32)
    rows, _ = np.nonzero(kept)
    divisors = np.where(scales > 0, scales, 1).astype(np.float64)[rows]
    multiples = np.rint(matrix[kept] / divisors).clip(-127, 127)
    return scales, multiples.astype(np.int8)


def _manifest(content: dict[str, Any]) -> str:
    """The one way to write a manifest, so that every changed value can be found."""
    content = json.loads(_canonical({"format": _FORMAT, "version": _VERSION, **content}))
    checksum = hashlib.sha256(_canonical(content).encode()).hexdigest()
    return _canonical({"content": content, "checksum": checksum})


def _canonical(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _sha256(array: Array) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def _most_weights(size: int) -> int:
    """How many weights a file of this size may stand for: a lie must not fill the memory."""
    return max(_WEIGHTS, _WEIGHTS_PER_BYTE * size)


# Reading


def _read(path: Path) -> tuple[bytes, dict[str, Any]]:
    """The bytes of a file, and the content of its manifest."""
    try:
        if not path.exists():
            raise CheckpointError(f"{path} is missing; give a file of `bayesrnn prune --out`")
        if not path.is_file():
            raise CheckpointError(f"{path} is not a file; give one of `bayesrnn prune --out`")
        with path.open("rb") as file:
            size = path.stat().st_size
            # The whole file is read only if its beginning says that it is one of ours.
            start = file.read(8)
            manifest = _metadata(start, file.read, size).get(_KEY)
            file.seek(0)
            if not isinstance(manifest, str):
                raise ValueError
            data = file.read()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        raise CheckpointError(
            f"{path} is damaged, or not a compact file; give one of `bayesrnn prune --out`, or the "
            "folder of a run"
        ) from None
    return data, _content(path, manifest)


def _metadata(start: bytes, read: Any, size: int) -> dict[str, Any]:
    """The metadata of a safetensors file of this size that begins with these 8 bytes."""
    if len(start) < 8:
        raise ValueError("the file is too short")
    (length,) = struct.unpack("<Q", start)
    if length > min(_LONGEST_HEADER, size - 8):
        raise ValueError("the header is longer than the file")
    header = json.loads(read(length).decode())
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def _content(path: Path, manifest: str) -> dict[str, Any]:
    try:
        content = json.loads(manifest)["content"]
        kind, version, about = content["format"], content["version"], content["about"]
        checksum = hashlib.sha256(_canonical(content).encode()).hexdigest()
        intact = json.loads(manifest)["checksum"] == checksum and isinstance(about, dict)
    except (ValueError, LookupError, TypeError, RecursionError):
        kind, version, intact = _FORMAT, _VERSION, False
    if kind != _FORMAT:
        raise CheckpointError(f"{path} is not a compact file; give one of `bayesrnn prune --out`")
    if not intact:
        raise CheckpointError(
            f"{path} is damaged: its manifest does not match its checksum; write it again"
        )
    if version != _VERSION:
        raise CheckpointError(
            f"{path} has format version {version!r}; this bayesrnn reads version {_VERSION}, so "
            "take a newer one, or write the file again"
        )
    assert isinstance(content, dict)
    return content


def _decode_all(content: dict[str, Any], parts: dict[str, Array], most: int) -> Compact:
    """All tensors of a file; anything that does not fit is some built-in exception."""
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
        matrix, mask = _decode(name, entry, {p: parts[f"{name}.{p}"] for p in entry["parts"]})
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
    name: str, entry: dict[str, Any], parts: dict[str, Array]
) -> tuple[NDArray[np.float32], Bits]:
    """The dense matrix and its mask."""
    kind = entry["values"]
    types = {"values": kind, "scales": "float32", "index": "u1", "rows": "u1", "columns": "u1"}
    if kind not in VALUES:
        raise ValueError(f"{name} has values of an unknown type")
    for part, array in parts.items():
        if array.ndim != 1 or array.dtype != np.dtype(types[part]):
            raise ValueError(f"{name} has {part} of a wrong type")
        if _sha256(array) != entry["parts"][part]:
            raise ValueError(f"the {part} of {name} do not match their checksum")
    shape = _matrix_shape(_shape(entry))
    rows, columns = (
        unpacked(parts[part], size) if part in parts else np.ones(size, np.bool_)
        for part, size in zip(("rows", "columns"), shape, strict=True)
    )
    left = decoded_mask(name, entry["encoding"], parts.get("index"), rows.sum() * columns.sum())
    if not left.sum() == entry["kept"] == len(parts["values"]):
        raise ValueError(f"{name} has not as many values as entries that were kept")
    mask = np.zeros(shape, np.bool_)
    mask[np.ix_(rows, columns)] = left.reshape(rows.sum(), columns.sum())
    values = parts["values"].astype(np.float32)
    if kind == "int8":
        if len(parts["scales"]) != rows.sum():
            raise ValueError(f"{name} has not one scale for each row")
        scales = np.zeros(shape[0], np.float32)
        scales[rows] = parts["scales"]
        values *= scales[np.nonzero(mask)[0]]
    matrix = np.zeros(shape, np.float32)
    matrix[mask] = values
    return matrix, mask


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
