"""dropout: Zaremba, Sutskever & Vinyals (2014), on the non-recurrent connections only."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Hints, KLScale, Method, MinibatchLoss, Network, Objective
from bayesrnn.nn.dropout import dropping, scaled_rates
from bayesrnn.nn.masked_recurrent import MaskedRecurrent
from bayesrnn.options import CheckedOptions, option
from bayesrnn.random import RandomStreams


def dropout_rate() -> Any:
    """The option of all methods that drop units."""
    return option(0.5, "share of the units that is dropped", ge=0, lt=1, shown="dropout {}")


@dataclass(frozen=True)
class DropoutOptions(CheckedOptions):
    """Options of dropout."""

    dropout: float = dropout_rate()


class Dropout(Method[DropoutOptions, nn.Module]):
    """Drop units at random while training; predict with all of them.

    The rate is set on the dropout layers that the module has, those between the layers of
    `nn.LSTM` and its like included. Layers of `br.nn` drop at that rate what enters each of them,
    by masks that last for a sequence, as they do with every method.
    """

    name: ClassVar[str] = "dropout"
    summary: ClassVar[str] = "dropout on the non-recurrent connections (Zaremba et al. 2014)"
    options_type: ClassVar[type] = DropoutOptions

    def build(self, module: nn.Module, hints: Hints) -> nn.Module:
        """The module, its dropout layers set to the rate."""
        found = False
        for layer in module.modules():
            if isinstance(layer, MaskedRecurrent):
                layer.input_rate = self.options.dropout
                found = True
            elif isinstance(layer, nn.Dropout):
                layer.p = self.options.dropout
                found = True
            elif isinstance(layer, nn.RNNBase) and layer.num_layers > 1:
                layer.dropout = self.options.dropout
                found = True
        if not found:
            raise no_place_for_dropout()
        return module

    def loss(self, net: nn.Module, objective: Objective, kl_scale: KLScale) -> MinibatchLoss:
        """The negative log-likelihood with units dropped."""
        return loss_with_masks(net, objective, self.streams)

    @property
    def draws_differ(self) -> bool:
        """Unless nothing is dropped."""
        return self.options.dropout > 0

    def draw(self, net: nn.Module, seed: int) -> Network:
        """The network with dropout left on (MC dropout)."""
        return with_passing_masks(net, seed, self.noise_factor)

    @property
    def noise_can_change(self) -> bool:
        """The rate, unless it is 0."""
        return self.draws_differ


def loss_with_masks(net: nn.Module, objective: Objective, streams: RandomStreams) -> MinibatchLoss:
    """The negative log-likelihood while layers draw masks."""
    net.train()
    with streams.as_default("dropout"):
        nll, state = objective(net)
    return MinibatchLoss(nll, state, {"nll": nll.item()})


def with_passing_masks(net: nn.Module, seed: int, factor: float = 1.0) -> Network:
    """The network with new masks at every call, as at every time step; rates times `factor`."""
    masks = RandomStreams(seed)

    def network(*args: Any, **kwargs: Any) -> Any:
        with scaled_rates(net, factor), dropping(net), masks.as_default("dropout"):
            return net(*args, **kwargs)

    return network


def no_place_for_dropout() -> ConfigError:
    """The error for a network in which nothing can be dropped."""
    return ConfigError(
        "the network has no place for dropout: no nn.Dropout, and no recurrent layers one above "
        "the other"
    )
