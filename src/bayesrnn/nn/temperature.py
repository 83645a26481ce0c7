"""A temperature of predictions: one number that makes a network surer or less sure."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn


class Tempered(nn.Module):
    """A network with a temperature, which its `forward` divides logits by.

    It is a setting of prediction, not a weight: training leaves it at 1, where the outputs are what
    they are without it, and no checkpoint has it.
    """

    temperature: float = 1.0

    def tempered(self, logits: Tensor) -> Tensor:
        """The logits, divided by the temperature."""
        return logits if self.temperature == 1 else logits / self.temperature


def set_temperature(net: nn.Module, temperature: float) -> None:
    """Set the temperature of every part of a network that has one."""
    for layer in net.modules():
        if isinstance(layer, Tempered):
            layer.temperature = temperature


@contextmanager
def at_temperature(net: nn.Module, temperature: float) -> Iterator[None]:
    """Inside the block the network has this temperature; afterwards the one that it had."""
    before = {layer: layer.temperature for layer in net.modules() if isinstance(layer, Tempered)}
    set_temperature(net, temperature)
    try:
        yield
    finally:
        for layer, value in before.items():
            layer.temperature = value
