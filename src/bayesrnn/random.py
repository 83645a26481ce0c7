"""All randomness of a run, from one root seed.

The only place that saves, restores or replaces random state. Library code takes a generator as an
argument; programs take theirs from a `RandomStreams`.
"""

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from bayesrnn.errors import ConfigError


def seeded(seed: int) -> torch.Generator:
    """A generator that starts from a seed of the user's."""
    if not 0 <= seed < 2**63:
        raise ConfigError(f"--seed is {seed}; it has to be from 0 to 2^63 - 1")
    return torch.Generator().manual_seed(seed)


class RandomStreams:
    """Named, independent generators: the same seed and name always give the same numbers."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, torch.Generator] = {}

    def __getitem__(self, name: str) -> torch.Generator:
        if name not in self._streams:
            mixed = np.random.SeedSequence(self.seed, spawn_key=(zlib.crc32(name.encode()),))
            seed = int(mixed.generate_state(1, np.uint64)[0])
            self._streams[name] = torch.Generator().manual_seed(seed)
        return self._streams[name]

    def of_shard(self, number: int) -> "RandomStreams":
        """The streams of a part of each minibatch, from 1 on; part 0 has these ones."""
        mixed = np.random.SeedSequence(self.seed, spawn_key=(zlib.crc32(b"shard"), number))
        return RandomStreams(int(mixed.generate_state(1, np.uint64)[0] >> np.uint64(1)))

    @contextmanager
    def as_default(self, name: str) -> Iterator[None]:
        """Let torch's default CPU generator continue the stream `name` inside the block.

        For torch functions that take no generator, such as dropout. On other devices the default
        generator is seeded from the stream.
        """
        stream = self[name]
        cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        devices = list(range(torch.cuda.device_count())) if cuda else []
        with torch.random.fork_rng(devices):
            if devices:
                # From a copy: an interrupted block leaves the stream where it was.
                seed = torch.randint(2**63 - 1, (), generator=stream.clone_state())
                torch.cuda.manual_seed_all(int(seed))
            torch.set_rng_state(stream.get_state())
            yield
            stream.set_state(torch.get_rng_state())

    def state(self) -> dict[str, Tensor]:
        """The state of every stream that was used."""
        return {name: generator.get_state() for name, generator in self._streams.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue every stream where `state` was taken."""
        for name, value in state.items():
            self[name].set_state(value)
