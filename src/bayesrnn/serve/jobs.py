"""One job at a time, few that wait, and none that lasts.

A job is a function that runs networks in a thread of its own. A thread cannot be killed: a job that
took too long, or whose client is gone, ends at the next call of a module, whichever network that
is part of, by an exception that a hook of torch raises there. Until then the next job waits.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from torch.nn.modules.module import register_module_forward_pre_hook

from bayesrnn.serve.refusal import Refusal

Result = TypeVar("Result")

#: Jobs that wait while one runs, and the seconds that one may take.
WAITING, SECONDS = 4, 30.0
ADVICE = "give less, or take fewer draws"


class Stopped(Exception):  # noqa: N818, ending on request is no error
    """Raised within a job that nobody waits for any more."""


class Jobs:
    """Runs jobs in the order in which they come."""

    def __init__(self, waiting: int = WAITING, seconds: float = SECONDS) -> None:
        self.waiting = waiting
        self.seconds = seconds
        self._turn = asyncio.Semaphore(1)
        self._pool = ThreadPoolExecutor(1, "job")
        self._inside = 0
        self._stop: threading.Event | None = None

    @property
    def inside(self) -> int:
        """Requests that have a place: the one that runs, and those that wait."""
        return self._inside

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """A place for a request, taken before its content is read, so that memory is bounded."""
        if self._inside > self.waiting:
            raise Refusal(
                503,
                f"busy: one request is being answered and {self.waiting} are waiting; try again in "
                "a moment",
                retry_after=1,
            )
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    async def run(self, work: Callable[[], Result], advice: str = ADVICE) -> Result:
        """What `work` gives, when its turn has come. Cancelling this stops the work.

        advice: what to do where it takes too long.
        """
        await self._turn.acquire()
        stop = threading.Event()
        self._stop = stop
        running = asyncio.get_running_loop().run_in_executor(self._pool, _stoppable, work, stop)
        running.add_done_callback(self._ended)
        try:
            return await asyncio.wait_for(asyncio.shield(running), self.seconds)
        except asyncio.TimeoutError:
            raise Refusal(
                504,
                f"stopped: an answer may take {self.seconds:g} seconds, and this one was not "
                f"finished; {advice}",
            ) from None
        finally:
            stop.set()

    def close(self) -> None:
        """Stop what runs; nothing runs afterwards."""
        if self._stop is not None:
            self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ended(self, future: "asyncio.Future[Any]") -> None:
        # Looked at, so that asyncio does not complain of one that nobody waited for.
        _ = future.cancelled() or future.exception()
        self._turn.release()


def _stoppable(work: Callable[[], Result], stop: threading.Event) -> Result:
    """Run `work` until it ends, or until it calls a module after `stop` was set."""
    thread = threading.get_ident()

    def check(module: object, inputs: object) -> None:
        if stop.is_set() and threading.get_ident() == thread:
            raise Stopped

    if stop.is_set():
        raise Stopped
    hook = register_module_forward_pre_hook(check)
    try:
        return work()
    finally:
        hook.remove()
