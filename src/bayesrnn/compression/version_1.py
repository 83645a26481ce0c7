"""Masks of compact files of version 1, which are read, but no longer written.

    <name>.rows       a bit for each row, set if an entry of it was kept; without it: all rows
    <name>.columns    the same for the columns
    <name>.index      which entries of these rows and columns were kept

The index is a bitmap; or gaps: before each kept entry a byte for how many were dropped since the
one before, where 255 stands for 255 dropped ones and no entry; or holes: gaps with kept and dropped
exchanged. Without an index ("dense") all were kept.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def mask_of_version_1(
    encoding: str, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]
) -> NDArray[np.bool_]:
    """Which entries of a matrix were kept."""
    rows, columns = (
        _unpacked(parts[part], size) if part in parts else np.ones(size, np.bool_)
        for part, size in zip(("rows", "columns"), shape, strict=True)
    )
    left = (int(rows.sum()), int(columns.sum()))
    mask = np.zeros(shape, np.bool_)
    mask[np.ix_(rows, columns)] = _entries(encoding, parts.get("index"), left).reshape(left)
    return mask


def _entries(
    encoding: str, index: NDArray[np.uint8] | None, shape: tuple[int, int]
) -> NDArray[np.bool_]:
    size = shape[0] * shape[1]
    if encoding == "dense" and index is None:
        return np.ones(size, np.bool_)
    if encoding == "bitmap" and index is not None:
        return _unpacked(index, size)
    if encoding in ("gaps", "holes") and index is not None:
        is_place = index < 255
        found = np.full(size, encoding == "holes")
        found[np.cumsum(index.astype(np.int64) + is_place)[is_place] - 1] = encoding == "gaps"
        return found
    raise ValueError("a mask has an unknown encoding")


def _unpacked(packed: NDArray[np.uint8], size: int) -> NDArray[np.bool_]:
    if len(packed) != -(-size // 8):
        raise ValueError("a bitmap has the wrong length")
    return np.unpackbits(packed, count=size, bitorder="little").astype(np.bool_)
