"""Which entries of a matrix were kept, as the parts of a compact file.

    <name>.rows       a bit for each row, set if an entry of it was kept; without it: all rows
    <name>.columns    the same for the columns
    <name>.mask       a bit for each entry of these rows and columns, set if it was kept; without it
                      all were kept

Each is packed by zlib. Rows and columns are told apart only if the file is smaller for it.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesrnn.compression.packing import Bytes, pack, unpack

Bits = NDArray[np.bool_]

#: What a part takes beside its own bytes: its name and its hash.
_PER_PART = 200


def mask_parts(kept: Bits) -> dict[str, Bytes]:
    """The parts of the mask of a matrix."""
    if kept.all():
        return {}
    plain = {"mask": _compressed(kept)}
    lines = {"rows": np.asarray(kept.any(axis=1)), "columns": np.asarray(kept.any(axis=0))}
    inner = kept[np.ix_(lines["rows"], lines["columns"])]
    cut = {name: _compressed(line) for name, line in lines.items() if not line.all()}
    if not inner.all():
        cut["mask"] = _compressed(inner)
    return min((plain, cut), key=_size)


def mask_of_parts(parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Bits:
    """Which entries of a matrix were kept; `ValueError` if the parts do not say it."""
    rows, columns = (
        _decompressed(parts[name], (size,)) if name in parts else np.ones(size, np.bool_)
        for name, size in zip(("rows", "columns"), shape, strict=True)
    )
    inner = (int(rows.sum()), int(columns.sum()))
    entries = _decompressed(parts["mask"], inner) if "mask" in parts else np.ones(inner, np.bool_)
    mask = np.zeros(shape, np.bool_)
    mask[np.ix_(rows, columns)] = entries
    return mask


def _size(parts: Mapping[str, Bytes]) -> int:
    return sum(_PER_PART + part.nbytes for part in parts.values())


def _compressed(kept: Bits) -> Bytes:
    return pack(np.packbits(kept, bitorder="little").tobytes())


def _decompressed(packed: NDArray[Any], shape: tuple[int, ...]) -> Bits:
    """The inverse of `_compressed`."""
    size = math.prod(shape)
    bits = unpack(packed, -(-size // 8), "a mask has not one bit for each weight")
    flat = np.unpackbits(np.frombuffer(bits, np.uint8), count=size, bitorder="little")
    return flat.astype(np.bool_).reshape(shape)
