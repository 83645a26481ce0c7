"""Standard normal noise for a set of weight tensors, from one seed.

A number depends on the seed, the place of its tensor among the others and its own place in it: not
on threads, the type of the tensor, or whether a C compiler was found.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bayesrnn.core.kernel import reference
from bayesrnn.core.kernel.compiled import kernel_for


@dataclass(frozen=True)
class Noise:
    """The noise of one draw: `sign` times the tensors that `seed` gives, unless it was scaled."""

    seed: int
    tensors: tuple[Tensor, ...]
    #: The sum of the squares of each tensor, in double precision.
    squares: Tensor
    sign: int = 1

    def mirrored(self) -> "Noise":
        """The same noise with the opposite sign, at no cost."""
        return replace(self, sign=-self.sign)

    def scaled(self, factor: float) -> "Noise":
        """The noise times `factor`: a draw with it has standard deviations `factor` times as large.

        The KL of such a draw is not that of the posterior: it is for prediction.
        """
        if factor == 1:
            return self
        tensors = tuple(tensor * factor for tensor in self.tensors)
        return replace(self, tensors=tensors, squares=self.squares * factor**2)


def draw_seed(generator: torch.Generator | None) -> int:
    """One seed from `generator`, or from torch's default generator."""
    device = generator.device if generator is not None else "cpu"
    return int(torch.randint(2**63 - 1, (), generator=generator, device=device).item())


def normal_noise(like: Sequence[Tensor], seed: int) -> Noise:
    """Independent N(0, 1) numbers in the shapes, types and places of `like`."""
    tensors = tuple(torch.empty_like(tensor, requires_grad=False) for tensor in like)
    loops = kernel_for(tensors) or reference
    squares = [loops.normal(tensor, seed, place) for place, tensor in enumerate(tensors)]
    if torch.compiler.is_compiling():
        return Noise(
            seed,
            tensors,
            torch.stack([torch.as_tensor(square, dtype=torch.double) for square in squares]),
        )
    return Noise(seed, tensors, torch.tensor(squares, dtype=torch.double))
