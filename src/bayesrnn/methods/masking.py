"""What the methods that put random masks on units of recurrent networks share."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from torch import nn

from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Hints, KLScale, Method, MinibatchLoss, Network, Objective
from bayesrnn.methods.dropout import dropout_rate, loss_with_masks, no_place_for_dropout
from bayesrnn.nn.dropout import dropping, scaled_rates
from bayesrnn.nn.masked import MaskedDropout, MaskedEmbedding, MaskStyle, alike_masks
from bayesrnn.nn.masked_recurrent import masked_recurrent
from bayesrnn.options import CheckedOptions, option
from bayesrnn.random import RandomStreams


class Rates(NamedTuple):
    """The share that is dropped.

    units: of the inputs of recurrent layers, and where the network has dropout layers.
    recurrent: of the states that flow from one time step to the next.
    words: of the word types.
    """

    units: float
    recurrent: float
    words: float


class MaskingOptions(CheckedOptions, ABC):
    """Options of any method that masks units."""

    @property
    @abstractmethod
    def rates(self) -> Rates:
        """The share that is dropped."""


@dataclass(frozen=True)
class MaskOptions(MaskingOptions):
    """Options of masks that last for a whole sequence."""

    dropout: float = dropout_rate()
    recurrent_dropout: float | None = option(
        None,
        "share of the recurrent connections that is dropped (default: as --dropout; "
        "naive-dropout: 0)",
        ge=0,
        lt=1,
        shown="recurrent dropout {}",
    )
    embedding_dropout: float | None = option(
        None,
        "share of the word types that a sequence goes without (default: as --dropout)",
        ge=0,
        lt=1,
        shown="embedding dropout {}",
    )
    gates: Literal["tied", "untied"] = option(
        "tied",
        "one mask for all gates of a recurrent cell, or one for each",
        shown="{} gates",
        shown_default=False,
    )

    @property
    def rates(self) -> Rates:
        """The rates with defaults filled in."""
        recurrent, words = self.recurrent_dropout, self.embedding_dropout
        return Rates(
            self.dropout,
            self.dropout if recurrent is None else recurrent,
            self.dropout if words is None else words,
        )


Options = TypeVar("Options", bound=MaskingOptions)


class Masking(Method[Options, nn.Module]):
    """A method that masks units at random while it trains, and predicts with all of them.

    The ordinary network is trained, with some of its layers replaced by ones that draw masks in
    training mode and are otherwise the same (`nn.masked`).
    """

    @property
    @abstractmethod
    def style(self) -> MaskStyle:
        """What the masks are like."""

    def build(self, module: nn.Module, hints: Hints) -> nn.Module:
        """The module, masks in place of its dropout and on its recurrent layers."""
        return place_masks(module, self.options.rates, self.style, hints)

    def loss(self, net: nn.Module, objective: Objective, kl_scale: KLScale) -> MinibatchLoss:
        """The negative log-likelihood with units masked."""
        return loss_with_masks(net, objective, self.streams)

    @property
    def draws_differ(self) -> bool:
        """Unless nothing is dropped."""
        return any(self.options.rates)

    def draw(self, net: nn.Module, seed: int) -> Network:
        """The network with one set of masks, the same at every call and for all of a batch.

        So it is one network: the output for a text does not depend on how it is cut into pieces,
        nor on the other texts of the batch.
        """
        factor = self.noise_factor

        def network(*args: Any, **kwargs: Any) -> Any:
            masks = RandomStreams(seed).as_default("dropout")
            with scaled_rates(net, factor), dropping(net), alike_masks(net), masks:
                return net(*args, **kwargs)

        return network

    @property
    def noise_can_change(self) -> bool:
        """The rates, unless all are 0."""
        return self.draws_differ


def place_masks(module: nn.Module, rates: Rates, style: MaskStyle, hints: Hints) -> nn.Module:
    """The module with masked layers in place of ordinary ones, under the same names.

    Recurrent layers mask their inputs and states, and embeddings drop words. Dropout layers share
    masks along the time axis, which is that of the recurrent layers; those that stand right
    before a recurrent layer are turned off, since it masks its inputs itself. In a network without
    recurrent layers there is no time axis, and only dropout layers are replaced.
    """
    layers = list(module.modules())
    recurrent = [layer for layer in layers if isinstance(layer, nn.RNNBase)]
    _require_known(layers, rates)
    batch_first = _batch_first(recurrent)
    time_axis = (1 if batch_first else 0) if recurrent else None
    before_recurrent = [module.get_submodule(name) for name in hints.before_recurrent]
    made: dict[nn.Module, nn.Module] = {}
    for layer in layers:
        if isinstance(layer, nn.RNNBase):
            made[layer] = masked_recurrent(layer, rates.units, rates.recurrent, style)
        elif isinstance(layer, nn.Embedding) and recurrent and rates.words:
            made[layer] = MaskedEmbedding(layer, rates.words, style, batch_first)
        elif isinstance(layer, nn.Dropout):
            rate = 0.0 if layer in before_recurrent else rates.units
            made[layer] = MaskedDropout(rate, style, time_axis)
    if not made:
        raise no_place_for_dropout()
    return _replaced(module, made)


def _replaced(module: nn.Module, made: dict[nn.Module, nn.Module]) -> nn.Module:
    """The module with layers replaced wherever they occur."""
    for name, layer in list(module.named_modules(remove_duplicate=False)):
        if name and layer in made:
            parent, _, child = name.rpartition(".")
            setattr(module.get_submodule(parent), child, made[layer])
    return made.get(module, module)


def _batch_first(recurrent: list[nn.RNNBase]) -> bool:
    found = {layer.batch_first for layer in recurrent}
    if len(found) > 1:
        raise ConfigError(
            "some recurrent layers of the network have batch_first and others do not, so where "
            "time is cannot be told; make them alike"
        )
    return True in found


def _require_known(layers: list[nn.Module], rates: Rates) -> None:
    for layer in layers:
        name = type(layer).__name__
        if isinstance(layer, nn.RNNCellBase):
            raise ConfigError(
                f"the network has a layer {name}, whose steps the network takes by itself, so "
                f"masks cannot be held over them; use nn.{name.removesuffix('Cell')}"
            )
        kinds = (nn.Embedding, MaskedEmbedding)
        if isinstance(layer, nn.Embedding) and type(layer) not in kinds and rates.words:
            raise ConfigError(
                f"the network has an embedding {name}, which words cannot be dropped from; use "
                "nn.Embedding, or set --embedding-dropout 0"
            )
