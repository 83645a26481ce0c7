"""Draws of a network that can be read in turn, chunk by chunk, without keeping their weights."""

from typing import Any

import torch
from torch import nn

from bayesrnn.core import draw_seed
from bayesrnn.methods import Method, Network


class Draws:
    """`samples` networks drawn by a method; each is drawn again whenever it is asked for.

    So a long text can be read by all of them chunk after chunk, while only one set of weights is
    in memory: a draw is kept as its seed. `draws[3]` always has the same weights. With the same
    generator they are those that `likelihood` draws; a method that draws masks instead, such as
    dropout, starts the same masks anew at each call, whatever they then fall on.
    """

    def __init__(
        self, method: Method[Any], net: nn.Module, samples: int, generator: torch.Generator
    ) -> None:
        self._method = method
        self._net = net
        self._seeds = [draw_seed(generator) for _ in range(samples)]

    def __len__(self) -> int:
        return len(self._seeds)

    def differing(self, samples: int) -> int:
        """How many networks have to be read for the first `samples` draws; 0: the mean alone."""
        return samples if self._method.draws_differ else 0

    @torch.no_grad()
    def __getitem__(self, number: int) -> Network:
        return self._method.draw(self._net, self._seeds[number])

    def mean(self) -> Network:
        """The one network that stands for all."""
        return self._method.mean(self._net)
