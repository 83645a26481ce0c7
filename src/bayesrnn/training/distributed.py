"""The processes that train one network together, and what they tell each other.

One process is a group as well, so that the training loop need not know how many there are.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import safetensors.torch
import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous

from bayesrnn.errors import PeerError
from bayesrnn.progress import silenced
from bayesrnn.training.launch import Launch, launched
from bayesrnn.training.state import pack, unpack

#: The bytes of a number that says how long a part of a packed value is.
_NUMBER = 8


def in_order(term: Callable[[int], Tensor], first: int, count: int) -> Tensor:
    """The sum of `count` terms from number `first` on, always added in the same order.

    By halves while they are even in number, else one after the other: so a process that has 2, 4,
    ... successive terms gives a partial sum that is also one of the whole. The terms are
    overwritten.
    """
    if count > 1 and count % 2 == 0:
        half = count // 2
        return in_order(term, first, half).add_(in_order(term, first + half, half))
    total = term(first)
    for number in range(first + 1, first + count):
        total.add_(term(number))
    return total


class Group:
    """The processes of a run: this one alone, or `Processes`.

    rank: the number of this process; the first one, 0, prints and writes.
    sent: the bytes that this process has sent to others in `total`.
    """

    def __init__(self, launch: Launch | None = None) -> None:
        self.launch = launch or Launch()
        self.rank, self.size = self.launch.rank, self.launch.size
        self.sent = 0

    @property
    def is_first(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    def total(self, vector: Tensor) -> Tensor:
        """The sum of the vectors of all processes, added `in_order` of their ranks."""
        return vector

    def largest(self, *numbers: int) -> list[int]:
        """The largest of each number over all processes."""
        return list(numbers)

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes by rank: nested state, as a checkpoint can hold."""
        return [value]

    def wait(self) -> None:
        """Wait until all processes are here."""


class Processes(Group):
    """Several processes, joined by `torch.distributed`."""

    def __init__(self, launch: Launch, timeout: float) -> None:
        super().__init__(launch)
        self.timeout = timeout

    def total(self, vector: Tensor) -> Tensor:
        """The sum of the vectors: each process adds up one part of them, and tells the others.

        That is the traffic of the usual ring, but the order of the sums is known.
        """
        part = -(-len(vector) // self.size)
        padded = torch.nn.functional.pad(vector, (0, part * self.size - len(vector)))
        received = torch.empty_like(padded)
        with self._peers():
            dist.all_to_all_single(received, padded)
            own = in_order(received.view(self.size, part).__getitem__, 0, self.size)
            # To every process the same, by the call that was quickest with gloo.
            dist.all_to_all_single(padded, own.repeat(self.size))
        self.sent += 2 * (self.size - 1) * part * vector.element_size()
        return padded[: len(vector)]

    def largest(self, *numbers: int) -> list[int]:
        """The largest of each number over all processes."""
        found = torch.tensor(numbers)
        with self._peers():
            dist.all_reduce(found, dist.ReduceOp.MAX)
        return [int(number) for number in found]

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes by rank; what travels is JSON and tensors, and no pickle."""
        own = _to_bytes(value)
        (longest,) = self.largest(len(own))
        padded = torch.nn.functional.pad(own, (0, longest - len(own)))
        found = [torch.empty_like(padded) for _ in range(self.size)]
        with self._peers():
            dist.all_gather(found, padded)
        return [_from_bytes(each) for each in found]

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.largest(0)

    @contextmanager
    def _peers(self) -> Iterator[None]:
        """Say in a sentence what is wrong with the other processes."""
        try:
            yield
        except RuntimeError as error:
            late = "timed out" in str(error).lower() or "timeout" in str(error).lower()
            what = (
                f"another process has not answered for {self.timeout:g} seconds (--peer-timeout): "
                "it hangs, or its machine cannot be reached"
                if late
                else "another process has ended, or its machine cannot be reached"
            )
            raise PeerError(
                f"process {self.rank} of {self.size} stops: {what}. The last checkpoint is whole; "
                "go on with the same command and --resume"
            ) from error


@contextmanager
def joined(timeout: float) -> Iterator[Group]:
    """The group that this process belongs to, as its launcher says; others than the first are mute.

    timeout: seconds after which a process that does not answer is given up.
    """
    launch = launched()
    if launch is None or launch.size == 1:
        yield Group(launch)
        return
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(launch.local_rank % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl"
    group = Processes(launch, timeout)
    wait = timedelta(seconds=timeout)
    try:
        store, rank, size = next(rendezvous("env://", launch.rank, launch.size, timeout=wait))
        met = _met(store, rank, size, timeout)
        dist.init_process_group(backend, store=met, rank=rank, world_size=size, timeout=wait)
    except (RuntimeError, ValueError) as error:
        raise PeerError(
            f"process {launch.rank} of {launch.size} does not reach the others: "
            f"{str(error).splitlines()[0]}"
        ) from error
    try:
        with silenced(not group.is_first):
            yield group
    except PeerError:
        raise  # nothing can be agreed with who is gone
    except BaseException:
        dist.destroy_process_group()
        raise
    dist.destroy_process_group()


def _met(store: Any, rank: int, size: int, timeout: float) -> Any:
    """The part of a store that belongs to these very processes.

    Under torchrun one store lives through all restarts, and holds the addresses of processes that
    are gone. So each process asks by a name that nobody had before, and the first one answers by
    the name of a new part. (How often torchrun has restarted it, each machine counts by itself.)
    """
    if rank:
        own = uuid4().hex
        store.set(f"asks/{rank}", own)
        name = store.get(f"answer/{own}").decode()
        store.set(f"{name}/has/{rank}", "")
        return dist.PrefixStore(name, store)  # type: ignore[attr-defined]
    name, end = uuid4().hex, time.monotonic() + timeout
    while missing := [r for r in range(1, size) if not store.check([f"{name}/has/{r}"])]:
        for other in missing:
            if store.check([f"asks/{other}"]):
                store.set(f"answer/{store.get(f'asks/{other}').decode()}", name)
        if time.monotonic() > end:
            raise RuntimeError(f"{len(missing)} of {size} have not come for {timeout:g} seconds")
        time.sleep(0.01)
    return dist.PrefixStore(name, store)  # type: ignore[attr-defined]


def _to_bytes(value: Any) -> Tensor:
    """Nested state as a vector of bytes: two lengths, its JSON value, its tensors."""
    tensors, plain = pack(value)
    parts = [json.dumps(plain).encode(), safetensors.torch.save(_apart(tensors))]
    lengths = [len(part).to_bytes(_NUMBER, "little") for part in parts]
    return torch.frombuffer(bytearray(b"".join([*lengths, *parts])), dtype=torch.uint8)


def _from_bytes(vector: Tensor) -> Any:
    """What `_to_bytes` made, whatever follows it."""
    data = vector.numpy().tobytes()
    text, tensors = (int.from_bytes(data[at : at + _NUMBER], "little") for at in (0, _NUMBER))
    start = 2 * _NUMBER
    plain = json.loads(data[start : start + text])
    start += text
    return unpack(safetensors.torch.load(data[start : start + tensors]), plain)


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in memory of their own: a file cannot hold two that share it."""
    return {name: tensor.clone() for name, tensor in tensors.items()}
