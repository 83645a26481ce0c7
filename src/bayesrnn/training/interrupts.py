"""Ctrl-C and SIGTERM as a wish to stop that is granted at the next safe moment."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):  # noqa: N818, stopping on request is no error
    """Training was stopped by a signal, and everything is saved."""

    def __init__(self, signal_number: int, message: str) -> None:
        super().__init__(message)
        self.signal_number = signal_number


class StopWish:
    """Which signal asked to stop, if any did."""

    def __init__(self) -> None:
        self.signal_number: int | None = None


@contextmanager
def stop_wish() -> Iterator[StopWish]:
    """Note SIGINT and SIGTERM instead of dying of them; a second one gets its usual way."""
    wish = StopWish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        wish.signal_number = number
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, note)
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
