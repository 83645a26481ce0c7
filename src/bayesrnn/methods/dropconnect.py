"""dropconnect: drop single recurrent weights (Wan et al. 2013; Merity, Keskar & Socher 2018)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from bayesrnn.core.functional import run_with
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Hints, KLScale, Method, MinibatchLoss, Network, Objective
from bayesrnn.nn.dropout import scaled_rate
from bayesrnn.options import CheckedOptions, option
from bayesrnn.random import RandomStreams


@dataclass(frozen=True)
class DropConnectOptions(CheckedOptions):
    """Options of dropconnect."""

    weight_dropout: float = option(
        0.5,
        "share of the recurrent weights that is dropped",
        ge=0,
        lt=1,
        shown="weight dropout {}",
    )


class DropConnect(Method[DropConnectOptions, nn.Module]):
    """Set single weights between the states of two time steps to zero at random.

    One mask serves all sequences and time steps of a minibatch, so the network runs as it is, with
    other weights. Those that are not dropped are divided by 1 - p. In a network without recurrent
    layers, the weights of linear layers are dropped.
    """

    name: ClassVar[str] = "dropconnect"
    summary: ClassVar[str] = "dropout of single recurrent weights (Merity et al. 2018)"
    options_type: ClassVar[type] = DropConnectOptions

    def build(self, module: nn.Module, hints: Hints) -> nn.Module:
        """The module itself."""
        if not _droppable(module):
            raise ConfigError(
                "the network has no weights for dropconnect: no recurrent and no linear layers"
            )
        return module

    def loss(self, net: nn.Module, objective: Objective, kl_scale: KLScale) -> MinibatchLoss:
        """The negative log-likelihood with weights dropped."""
        rate = self.options.weight_dropout
        nll, state = objective(_dropped(net.train(), rate, self.streams))
        return MinibatchLoss(nll, state, {"nll": nll.item()})

    @property
    def draws_differ(self) -> bool:
        """Unless nothing is dropped."""
        return self.options.weight_dropout > 0

    def draw(self, net: nn.Module, seed: int) -> Network:
        """The network without the weights that the seed drops."""
        rate = scaled_rate(self.options.weight_dropout, self.noise_factor)
        network = _dropped(net, rate, RandomStreams(seed))

        def evaluated(*args: Any, **kwargs: Any) -> Any:
            net.eval()
            return network(*args, **kwargs)

        return evaluated

    @property
    def noise_can_change(self) -> bool:
        """The share that is dropped, unless it is 0."""
        return self.draws_differ


def _dropped(net: nn.Module, rate: float, streams: RandomStreams) -> Network:
    """The network with one mask on its weights, drawn now."""
    weights: dict[str, Tensor] = {}
    with streams.as_default("dropout"):
        for names in _droppable(net):
            dropped = F.dropout(net.get_parameter(names[0]), rate)
            weights.update(dict.fromkeys(names, dropped))

    def network(*args: Any, **kwargs: Any) -> Any:
        # Each place is named: a matrix that is an embedding as well is dropped here alone.
        return run_with(net, weights, args, kwargs, tie_weights=False)

    return network


def _droppable(net: nn.Module) -> list[list[str]]:
    """The names of the weights that are dropped, those of the same weights together."""
    recurrent = any(isinstance(layer, nn.RNNBase) for layer in net.modules())
    kind, prefix = (nn.RNNBase, "weight_hh") if recurrent else (nn.Linear, "weight")
    found: dict[nn.Parameter, list[str]] = {}
    for path, layer in net.named_modules():
        if isinstance(layer, kind):
            for leaf, parameter in layer.named_parameters(path, recurse=False):
                if leaf.rpartition(".")[2].startswith(prefix):
                    found.setdefault(parameter, []).append(leaf)
    return list(found.values())
