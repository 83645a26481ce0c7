"""Draws of a network that can be run in turn, chunk by chunk, without storing their weights."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from bayesrnn.core.noise import draw_seed
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Method, Network
from bayesrnn.nn.temperature import at_temperature
from bayesrnn.uncertainty.scaling import UNSCALED, Scaling


class Draws:
    """`samples` networks drawn by a method; each is drawn again whenever it is asked for.

    So all of them can process a long text chunk after chunk, while only one set of weights is in
    memory: a draw is stored as its seed. `draws[3]` always has the same weights; a method that
    draws new masks at every step restarts the same sequence of masks at each call.

    Where a method has several networks, the draws go through them in turn, in random order.

    scaling: a factor on the noise of the draws, and temperatures of the draws and of the mean.
    """

    def __init__(
        self,
        method: Method[Any],
        net: nn.Module,
        samples: int,
        generator: torch.Generator,
        scaling: Scaling = UNSCALED,
    ) -> None:
        if samples < 0:
            raise ConfigError(f"samples is {samples}; it has to be 0 (the mean) or more")
        self._method = method
        self._net = net
        self._scaling = scaling
        self._members = method.members(net)
        seeds = [draw_seed(generator) for _ in range(samples)]
        if self._members > 1:
            order = torch.randperm(self._members, generator=generator).tolist()
            seeds = [
                seed // self._members * self._members + order[number % self._members]
                for number, seed in enumerate(seeds)
            ]
        self._seeds = seeds
        self._most_kept = 0
        self._kept: dict[int, Network] = {}

    def keep(self, megabytes: float) -> "Draws":
        """Keep the weights of as many draws as fit, for many short texts; the others are redrawn.

        The network must not be trained meanwhile. A network that draws new masks at each step is
        made anew at each call, at no cost.
        """
        weights = self._method.mean_module(self._net).parameters()
        size = sum(weight.numel() * weight.element_size() for weight in weights)
        self._most_kept = int(megabytes * 2**20 // max(size, 1))
        return self

    def __len__(self) -> int:
        return len(self._seeds)

    def differing(self, samples: int) -> int:
        """How many networks have to run for the first `samples` draws; 0: the mean alone."""
        return _differing(self._method, self._members, samples)

    def __getitem__(self, number: int) -> Network:
        if number in self._kept:
            return self._kept[number]
        network = self._drawn(number)
        if self._method.draws_can_be_kept and len(self._kept) < self._most_kept:
            self._kept[number] = network
        return network

    @torch.no_grad()
    def _drawn(self, number: int) -> Network:
        method, net, noise = self._method, self._net, self._scaling.noise
        before = method.noise_factor
        method.set_noise(net, before * noise)
        try:
            return self._tempered(
                lambda: method.draw(net, self._seeds[number]), self._scaling.temperature
            )
        finally:
            method.set_noise(net, before)

    def mean(self) -> Network:
        """The one network that stands for all."""
        return self._tempered(lambda: self._method.mean(self._net), self._scaling.mean_temperature)

    def networks(self) -> Iterator[Network]:
        """Every network that has to run for all draws; the mean, if there are none."""
        different = self.differing(len(self))
        return map(self.__getitem__, range(different)) if different else iter([self.mean()])

    def _tempered(self, make: Callable[[], Network], temperature: float) -> Network:
        """A network at a temperature, which others of the same weights do not have."""
        if temperature == 1:
            return make()
        net = self._net
        with at_temperature(net, temperature):
            network = make()  # a copy of the network takes the temperature along

        def tempered(*args: Any, **kwargs: Any) -> Any:
            with at_temperature(net, temperature):
                return network(*args, **kwargs)

        return tempered


def networks_to_read(method: Method[Any], net: nn.Module, samples: int) -> int:
    """How many networks `Draws.networks` gives."""
    return max(1, _differing(method, method.members(net), samples))


def _differing(method: Method[Any], members: int, samples: int) -> int:
    if method.draws_differ:
        return samples
    return min(samples, members) if members > 1 else 0
