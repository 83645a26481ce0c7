"""Trained: a network together with the method that trained it, which knows how to predict."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from bayesrnn.methods.base import Method


@dataclass(frozen=True)
class Trained:
    """What a method has trained.

    net: what it built around the ordinary module, such as a `Bayesian`; has all that is learnt.
    """

    net: nn.Module
    method: Method[Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the network that stands for all: the mean weights, or no dropout."""
        return self.method.mean(self.net)(*args, **kwargs)

    @property
    def module(self) -> nn.Module:
        """The ordinary module that was given, with the mean weights or those of one network."""
        return self.method.mean_module(self.net)
