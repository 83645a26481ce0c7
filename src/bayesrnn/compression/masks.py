"""Which entries of a matrix were kept, told in few bytes.

bitmap: a bit for each entry. gaps: how many dropped entries lie before each kept one, in bytes.
holes: the same with kept and dropped entries exchanged. dense: all were kept, and nothing is said.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

DENSE = "dense"
_BITMAP, _GAPS, _HOLES = "bitmap", "gaps", "holes"


def encoded_mask(kept: Bits, bytes_per_row: int) -> tuple[str, dict[str, Bytes]]:
    """The encoding and the parts that tell which entries were kept, in the fewest bytes."""
    ways: list[tuple[int, int, str, dict[str, Bytes]]] = []
    for lines, rest in _left_out(kept):
        for encoding, index in _indices(rest):
            places = dict(lines) if index is None else {**lines, "index": index}
            size = sum(part.nbytes for part in places.values()) + len(rest) * bytes_per_row
            ways.append((size, len(ways), encoding, places))
    _, _, encoding, places = min(ways)
    return encoding, places


def _left_out(kept: Bits) -> Iterator[tuple[dict[str, Bytes], Bits]]:
    """The mask as it is; for a matrix also without the rows, the columns, or both that are gone."""
    yield {}, kept
    rows, columns = np.asarray(kept.any(axis=1)), np.asarray(kept.any(axis=0))
    if len(kept) > 1 and not rows.all():
        yield {"rows": _packed(rows)}, kept[rows]
    if len(kept) > 1 and not columns.all():
        yield {"columns": _packed(columns)}, kept[:, columns]
        if not rows.all():
            yield {"rows": _packed(rows), "columns": _packed(columns)}, kept[rows][:, columns]


def _indices(kept: Bits) -> Iterator[tuple[str, Bytes | None]]:
    if kept.all():
        yield DENSE, None
    yield _BITMAP, _packed(kept.ravel())
    yield _GAPS, _gaps(np.flatnonzero(kept))
    yield _HOLES, _gaps(np.flatnonzero(~kept))


def _packed(bits: Bits) -> Bytes:
    return np.packbits(bits, bitorder="little")


def _gaps(places: NDArray[np.int64]) -> Bytes:
    """How many places lie between those given, a byte each, after a 255 for each 255 of them."""
    between = np.diff(places, prepend=-1) - 1
    lengths = between // 255 + 1
    found = np.full(int(lengths.sum()), 255, np.uint8)
    found[np.cumsum(lengths) - 1] = between % 255
    return found


def decoded_mask(name: str, encoding: str, index: Bytes | None, size: int) -> Bits:
    """Which of so many entries were kept, by an index."""
    if encoding == DENSE and index is None:
        return np.ones(size, np.bool_)
    if encoding == _BITMAP and index is not None:
        return unpacked(index, size)
    if encoding in (_GAPS, _HOLES) and index is not None:
        found = np.full(size, encoding == _HOLES)
        found[_places(index)] = encoding == _GAPS
        return found
    raise ValueError(f"{name} has an unknown encoding")


def unpacked(packed: Bytes, size: int) -> Bits:
    """The bits that `_packed` was given; there are `size` of them."""
    if len(packed) != -(-size // 8):
        raise ValueError("a bitmap has the wrong length")
    return np.unpackbits(packed, count=int(size), bitorder="little").astype(np.bool_)


def _places(gaps: Bytes) -> NDArray[np.int64]:
    """The places that `_gaps` was given."""
    is_place = gaps < 255
    ends = np.cumsum(gaps.astype(np.int64) + is_place)
    found: NDArray[np.int64] = ends[is_place] - 1
    return found
