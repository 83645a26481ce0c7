"""Keep the memory that training frees, to use it again in the next step."""

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Ask the C library not to give large blocks back to the system, and torch for large pages.

    Each training step needs the same large tensors again. By default glibc returns each to the
    system and gets it back page by page, which costs as much as the arithmetic on it. For the
    whole process, so it is for programs to call, not for the library; elsewhere than glibc it does
    nothing.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # read by torch at its first large tensor
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
