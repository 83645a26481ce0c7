"""The process that trains: stop requests, freed memory, denormal numbers."""

import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch


class StopRequest:
    """Which signal asked to stop, if any did."""

    def __init__(self) -> None:
        self.signal_number: int | None = None


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Turn SIGINT, SIGTERM and SIGHUP into a stop request, honoured after the current step.

    SIGHUP comes when a terminal is closed; where it is ignored (nohup), it stays so. A second
    signal acts as it does outside of the block.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        request.signal_number = number
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Make the C library keep freed memory for reuse, and torch use large pages.

    Each training step needs the same large tensors again. By default glibc returns each to the
    system and gets it back page by page, which costs as much as the arithmetic on it. This is
    for the whole process, so programs call it, not the library; without glibc it does nothing.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # read by torch at its first large tensor
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Flush denormals to zero inside the block, in the calling thread, where the processor can.

    A gradient vanishes over some hundred steps of backpropagation. Between 1e-38 and 1e-45 a
    processor is many times slower, for digits that change no weight: without denormals the backward
    pass of an LSTM of 165 steps takes half as long.
    """
    smallest = torch.full((1,), 1e-40)
    already = not bool(smallest + smallest)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(already)
