"""Standard normal noise for a set of weight tensors, from one seed.

The noise of a seed is the same whatever the number of threads. The compiled kernel computes it from
the seed and the place; without it, tensors are cut into lanes, each lane has its own generator, and
threads only decide who fills which lane.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bayesrnn.core.kernel.compiled import kernel_for
from bayesrnn.core.kernel.reference import row_blocks, sum_of_squares

LANE_SIZE = 1 << 19


@dataclass(frozen=True)
class Noise:
    """The noise of one draw: `sign` times the tensors that `seed` gives."""

    seed: int
    tensors: tuple[Tensor, ...]
    #: The sum of the squares of each tensor.
    squares: tuple[float, ...]
    sign: int = 1

    def mirrored(self) -> "Noise":
        """The same noise with the opposite sign, at no cost."""
        return replace(self, sign=-self.sign)


def draw_seed(generator: torch.Generator | None) -> int:
    """One seed from `generator`, or from torch's default generator."""
    device = generator.device if generator is not None else "cpu"
    return int(torch.randint(2**63 - 1, (), generator=generator, device=device).item())


def normal_noise(like: Sequence[Tensor], seed: int) -> Noise:
    """Independent N(0, 1) numbers in the shapes, types and places of `like`."""
    tensors = tuple(torch.empty_like(tensor, requires_grad=False) for tensor in like)
    kernel = kernel_for(tensors)
    if kernel is not None:
        squares = [kernel.normal(tensor, seed, place) for place, tensor in enumerate(tensors)]
    else:
        _fill(tensors, seed)
        squares = [sum_of_squares(tensor) for tensor in tensors]
    return Noise(seed, tensors, tuple(squares))


def _fill(tensors: Sequence[Tensor], seed: int) -> None:
    """Fill with torch's generators, lane by lane, in as many threads as torch has."""
    lanes = list(_lanes(tensors, seed))
    if torch.get_num_threads() == 1 or sum(t.numel() for t in tensors) <= LANE_SIZE:
        for lane, generator in lanes:
            lane.normal_(generator=generator)
    else:
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            list(pool.map(lambda pair: pair[0].normal_(generator=pair[1]), lanes))


def _lanes(tensors: Sequence[Tensor], seed: int) -> Iterator[tuple[Tensor, torch.Generator]]:
    number = 0
    for tensor in tensors:
        for rows in row_blocks(tensor, LANE_SIZE):
            # A torch CPU generator hears 32 bits of its seed, so all 64 bits of ours and the
            # number of the lane are mixed into them.
            mixed = np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1)
            yield tensor[rows], torch.Generator(tensor.device).manual_seed(int(mixed[0]))
            number += 1
