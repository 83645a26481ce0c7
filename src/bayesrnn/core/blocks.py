"""Walking through large tensors in pieces that stay in the processor's cache.

A chain of elementwise operations over tens of millions of weights is bound by memory when each
operation runs over whole tensors. Worked through in blocks, the intermediate results never leave
the cache.
"""

from collections.abc import Iterator

from torch import Tensor

#: Numbers in one block. Large enough that torch shares a block between threads, small enough that
#: a handful of float32 blocks fit the cache of one core.
BLOCK_SIZE = 98_304


def row_blocks(tensor: Tensor, size: int | None = None) -> Iterator[slice]:
    """Slices along the first axis that cover `tensor` in blocks of about `size` numbers.

    Without a size, it is BLOCK_SIZE.

    Only on the CPU is there a cache to stay in; elsewhere one block is the whole tensor.
    """
    rows = tensor.shape[0]
    size = BLOCK_SIZE if size is None else size
    if tensor.device.type != "cpu":
        size = max(size, tensor.numel())
    per_block = max(1, size * rows // max(tensor.numel(), 1))
    for start in range(0, rows, per_block):
        yield slice(start, min(start + per_block, rows))
