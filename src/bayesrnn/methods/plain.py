"""plain: maximum likelihood, no regularisation."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from bayesrnn.methods.base import Hints, KLScale, Method, MinibatchLoss, Network, Objective
from bayesrnn.options import CheckedOptions


@dataclass(frozen=True)
class PlainOptions(CheckedOptions):
    """Plain training has no options of its own."""


class Plain(Method[PlainOptions, nn.Module]):
    """Minimise the negative log-likelihood of the data, nothing else."""

    name: ClassVar[str] = "plain"
    summary: ClassVar[str] = "maximum likelihood, no regularisation"
    options_type: ClassVar[type] = PlainOptions
    can_share_noise: ClassVar[bool] = True

    def build(self, module: nn.Module, hints: Hints) -> nn.Module:
        """The module itself."""
        return module

    def loss(self, net: nn.Module, objective: Objective, kl_scale: KLScale) -> MinibatchLoss:
        """The negative log-likelihood."""
        nll, state = objective(net.train())
        return MinibatchLoss(nll, state, {"nll": nll.item()})

    @property
    def draws_differ(self) -> bool:
        """No: there is one network."""
        return False

    def draw(self, net: nn.Module, seed: int) -> Network:
        """The network itself: there is nothing to draw."""
        return self.mean(net)
