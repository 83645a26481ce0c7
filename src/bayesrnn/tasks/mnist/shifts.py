"""Images that are not what a classifier was trained on, made from those that are."""

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from bayesrnn.tasks.mnist.data import BRIGHTEST


def rotated(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Turned by a quarter, counter-clockwise."""
    del generator
    side = math.isqrt(images.shape[1])
    return images.view(-1, side, side).rot90(1, (1, 2)).flatten(1)


def inverted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Dark where they were bright."""
    del generator
    return BRIGHTEST - images


def permuted(images: Tensor, generator: torch.Generator) -> Tensor:
    """The pixels in another order, the same for all images: only their brightness is left."""
    return images[:, torch.randperm(images.shape[1], generator=generator)]


def noise(images: Tensor, generator: torch.Generator) -> Tensor:
    """Nothing but noise: each pixel anywhere between dark and bright."""
    return BRIGHTEST * torch.rand(images.shape, generator=generator)


SHIFTS: Final[dict[str, Callable[[Tensor, torch.Generator], Tensor]]] = {
    "rotated": rotated,
    "inverted": inverted,
    "permuted": permuted,
    "noise": noise,
}
