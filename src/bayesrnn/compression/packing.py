"""Parts of a compact file packed by zlib."""

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def pack(data: bytes) -> Bytes:
    """Packed by zlib; Z_FILTERED fits bytes without a pattern best."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 15, 9, zlib.Z_FILTERED)
    return np.frombuffer(packer.compress(data) + packer.flush(), np.uint8)


def unpack(packed: NDArray[Any], size: int, otherwise: str) -> bytes:
    """The inverse of `pack`, of `size` bytes; `ValueError` with what to say `otherwise`."""
    unpacker = zlib.decompressobj()
    try:
        # One byte too many is enough to see that there are more: they must not fill the memory.
        data = unpacker.decompress(packed.tobytes(), size + 1)
    except zlib.error as error:
        raise ValueError(f"{otherwise}: it cannot be unpacked: {error}") from None
    if len(data) != size or not unpacker.eof or unpacker.unused_data:
        raise ValueError(otherwise)
    return data
