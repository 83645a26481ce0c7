"""A feed-forward classifier."""

import math

import torch
from torch import Tensor, nn

from bayesrnn.nn.temperature import Tempered
from bayesrnn.nn.units import Part, Units


class MLP(Tempered):
    """Layers of rectified linear units, and a linear map to one logit per class.

    The defaults are the smallest network of Blundell et al. (2015) on MNIST. The dropout layer
    after each hidden layer does nothing until a rate is set.
    """

    def __init__(self, inputs: int, classes: int, hidden: int = 400, layers: int = 2) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for layer in range(layers):
            blocks += [nn.Linear(hidden if layer else inputs, hidden), nn.ReLU(), nn.Dropout(0.0)]
        self.hidden = nn.Sequential(*blocks)
        self.output = nn.Linear(hidden, classes)

    def initialise(self, generator: torch.Generator) -> None:
        """Set all weights: N(0, 2 / fan-in) before a rectifier (He et al. 2015), biases zero.

        The output layer has no rectifier, so there the variance is 1 / fan-in.
        """
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                gain = 1 if layer is self.output else 2
                std = math.sqrt(gain / layer.in_features)
                nn.init.normal_(layer.weight, std=std, generator=generator)
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, classes] of the inputs `x` [batch, inputs]."""
        return self.tempered(self.output(self.hidden(x)))

    def units(self) -> tuple[Units, ...]:
        """The units of the hidden layers: a rectifier leaves a 0 as it is."""
        names = [f"hidden.{place}" for place in range(0, len(self.hidden), 3)]
        return tuple(
            Units(
                name,
                self.get_parameter(f"{name}.bias").numel(),
                (Part(f"{name}.weight", 0), Part(f"{name}.bias", 0)),
                (Part(f"{after}.weight", 1),),
            )
            for name, after in zip(names, [*names[1:], "output"], strict=True)
        )
