"""What the recurrent networks of all tasks have in common."""

import math
from typing import cast

import torch
from torch import Tensor, nn

from bayesrnn.errors import ConfigError
from bayesrnn.nn.temperature import Tempered
from bayesrnn.nn.units import Part, Units, recurrent_units

#: The recurrent state: one tensor for rnn and gru, (h, c) for lstm; [layers, batch, hidden] each.
State = Tensor | tuple[Tensor, Tensor]

CELLS: dict[str, type[nn.LSTM] | type[nn.GRU] | type[nn.RNN]] = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "rnn": nn.RNN,
}


def recurrent_layers(cell: str, hidden: int, layers: int, inputs: int | None = None) -> nn.RNNBase:
    """Recurrent layers by name; without a number of inputs, as wide as these are."""
    if cell not in CELLS:
        raise ConfigError(f"cell is {cell!r}; there are: {', '.join(CELLS)}")
    made = CELLS[cell](hidden if inputs is None else inputs, hidden, layers)
    if cell != "gru":
        # torch adds two biases where the papers have one; the second stays zero. (In a GRU
        # the two are not interchangeable.)
        for name, parameter in made.named_parameters():
            if name.startswith("bias_hh"):
                parameter.requires_grad_(False).zero_()
    return made


def initialise_weights(
    module: nn.Module, uniform: float | None, generator: torch.Generator, embedding: bool = True
) -> None:
    """Set all weights: uniformly within +-`uniform`, or truncated normals if it is None.

    The normals have standard deviation 1 / sqrt(fan-in); biases are zero, and what is called
    embedding is N(0, 1) unless `embedding` is False. Single numbers are no weights, and are zero.
    """
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        if not parameter.dim():
            nn.init.zeros_(parameter)
        elif uniform is not None:
            nn.init.uniform_(parameter, -uniform, uniform, generator=generator)
        elif parameter.dim() == 1:
            nn.init.zeros_(parameter)
        elif name.startswith("embedding") and embedding:
            nn.init.normal_(parameter, generator=generator)
        else:
            std = 1 / math.sqrt(parameter.shape[1])
            nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std, generator=generator)


class WordNetwork(Tempered):
    """Embedding, recurrent layers as wide, and a linear map to `outputs` numbers.

    The dropout layers stand where Zaremba et al. (2014) put them, on the non-recurrent
    connections, and do nothing until a rate is set.

    first: further layers by name, which come before the others in the order of the parameters:
        that decides which random numbers the weights of each start from.
    """

    def __init__(
        self,
        vocabulary: int,
        outputs: int,
        hidden: int,
        layers: int,
        cell: str,
        **first: nn.Module,
    ) -> None:
        super().__init__()
        for name, layer in first.items():
            self.add_module(name, layer)
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.recurrent = recurrent_layers(cell, hidden, layers)
        self.output = nn.Linear(hidden, outputs)
        self.input_dropout = nn.Dropout(0.0)
        self.output_dropout = nn.Dropout(0.0)

    def initialise(self, uniform: float | None, generator: torch.Generator) -> None:
        """Set all weights: uniformly within +-`uniform`, or truncated normals if it is None.

        The normals have standard deviation 1 / sqrt(fan-in); biases are zero, and embeddings
        N(0, 1) unless they are the output matrix as well.
        """
        tied = self.output.weight is self.embedding.weight
        initialise_weights(self, uniform, generator, embedding=not tied)

    def read(self, words: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """The features [time, batch, hidden] at each of `words` [time, batch], and the state."""
        features, state = self.recurrent(self.input_dropout(self.embedding(words)), state)
        return features, cast(State, state)

    def units(self) -> tuple[Units, ...]:
        """The dimensions of the embedding and the units of the recurrent layers.

        With one matrix for input and output words, the last layer's units and the dimensions share
        its columns, so that they go and stay together.
        """
        layers = recurrent_units("recurrent", self.recurrent)
        entered, left = Part("embedding.weight", 1), Part("recurrent.weight_ih_l0", 1)
        layers[-1] = layers[-1].with_parts(sends=(Part("output.weight", 1),))
        if self.output.weight is self.embedding.weight:
            layers[-1] = layers[-1].with_parts(receives=(entered,), sends=(left,))
            return tuple(layers)
        return (Units("embedding", self.embedding.embedding_dim, (entered,), (left,)), *layers)

    def word_units(self) -> Units:
        """The words that a network has an output for each of."""
        return Units("output", self.output.out_features, (Part("output.weight", 0),))
