"""Draws that stay in memory, for predictions on many short inputs."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice

import torch

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.noise import draw_seed
from bayesrnn.core.predictive import predictive
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Network
from bayesrnn.nn.dropout import modes_restored


class KeptDraws:
    """`samples` draws of a network's weights, made once and kept for any number of predictions.

        kept = br.KeptDraws(net, samples=20)
        for text in texts:
            prediction = br.predict(kept, text, samples=20)

    A prediction is that of `predict(net, ...)` with a generator in the same state, to the last bit.
    Drawing takes as long as reading some hundred words, so that on a sentence `predict` is two
    times as fast with draws that are there already. Each takes the memory of the weights, but of
    an embedding no more than what is read.

    The network must not be trained meanwhile: then its draws are no longer those of its posterior,
    and are refused.
    """

    def __init__(
        self, net: Bayesian, samples: int = 20, generator: torch.Generator | None = None
    ) -> None:
        if not isinstance(net, Bayesian):
            raise ConfigError(
                f"only the draws of a bayesrnn.Bayesian can be kept, not of a {type(net).__name__}"
            )
        if not isinstance(samples, int) or samples < 1:
            raise ConfigError(f"samples is {samples}; it has to be a whole number, 1 or more")
        self._net, self._age = net, _age(net)
        self._weights = [
            weights
            for first in range(0, samples, 2)
            for weights in predictive(
                net, draw_seed(generator), signs=(1, -1) if first + 1 < samples else (1,)
            )
        ]

    def __len__(self) -> int:
        return len(self._weights)

    @contextmanager
    def networks(self, samples: int) -> Iterator[Iterator[Network]]:
        """The first `samples` of them, each as a function of the network's inputs."""
        if samples > len(self):
            raise ConfigError(
                f"{samples} draws are asked for, and {len(self)} were kept; ask for as many or "
                "fewer, or keep more"
            )
        if _age(self._net) != self._age:
            raise ConfigError(
                "the network has changed since its draws were made; make new ones, "
                "br.KeptDraws(net, ...)"
            )
        with modes_restored(self._net):
            self._net.eval()
            yield (
                partial(self._net, weights=weights) for weights in islice(self._weights, samples)
            )


def _age(net: Bayesian) -> int:
    """A number that grows whenever a parameter is written to."""
    return sum(parameter._version for parameter in net.parameters())
