"""Draws of a network that can be read in turn, chunk by chunk, without keeping their weights."""

from typing import Any

import torch
from torch import nn

from bayesrnn.methods import Method, Network


class Draws:
    """`samples` networks drawn by a method; each is drawn again whenever it is asked for.

    So a long text can be read by all of them chunk after chunk, while only one set of weights is
    in memory. `draws[3]` always gives the same network; it is valid until the next is asked for.
    """

    def __init__(
        self, method: Method[Any], net: nn.Module, samples: int, generator: torch.Generator
    ) -> None:
        self._method = method
        self._net = net
        self._states = []
        for _ in range(samples):
            self._states.append(generator.get_state())
            # Leaves the generator where one draw after the other would: the same seed gives the
            # same networks here and in `likelihood`.
            with torch.no_grad():
                method.sample(net, generator)

    def __len__(self) -> int:
        return len(self._states)

    def differing(self, samples: int) -> int:
        """How many networks have to be read for the first `samples` draws; 0: the mean alone."""
        return samples if self._method.draws_differ else 0

    @torch.no_grad()
    def __getitem__(self, number: int) -> Network:
        generator = torch.Generator()
        generator.set_state(self._states[number])
        return self._method.sample(self._net, generator)

    def mean(self) -> Network:
        """The one network that stands for all."""
        return self._method.mean(self._net)
