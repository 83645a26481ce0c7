"""The network of a forecaster: recurrent layers and a linear map to a distribution."""

import torch
from torch import Tensor, nn

from bayesrnn.nn.recurrent import State, initialise_weights, recurrent_layers
from bayesrnn.nn.temperature import Tempered
from bayesrnn.nn.units import Part, Units, recurrent_units
from bayesrnn.tasks.forecast.heads import HEADS


class ForecastNetwork(Tempered):
    """From inputs at each step to the parameters of the distribution of the value at that step.

    The dropout layers stand on the non-recurrent connections and do nothing until a rate is set.
    """

    def __init__(self, inputs: int, hidden: int, layers: int, cell: str, likelihood: str) -> None:
        super().__init__()
        self.head = HEADS[likelihood]
        self.recurrent = recurrent_layers(cell, hidden, layers, inputs)
        self.output = nn.Linear(hidden, self.head.outputs)
        self.input_dropout = nn.Dropout(0.0)
        self.output_dropout = nn.Dropout(0.0)

    def initialise(self, generator: torch.Generator) -> None:
        """Truncated normals with standard deviation 1 / sqrt(fan-in), biases zero."""
        initialise_weights(self, None, generator)

    def units(self) -> tuple[Units, ...]:
        """The units of the recurrent layers."""
        layers = recurrent_units("recurrent", self.recurrent)
        layers[-1] = layers[-1].with_parts(sends=(Part("output.weight", 1),))
        return tuple(layers)

    def forward(self, inputs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Parameters [time, batch, k] of the values at inputs [time, batch, n], and the state."""
        features, after = self.recurrent(self.input_dropout(inputs), state)
        raw = self.output(self.output_dropout(features)).float()
        parameters = self.head.parameters(raw)
        if self.temperature != 1:
            parameters = self.head.tempered(parameters, self.temperature)
        return parameters, after
