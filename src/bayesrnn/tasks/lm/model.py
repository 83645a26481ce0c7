"""A word-level recurrent language model."""

from typing import cast

import torch
from torch import Tensor, nn

from bayesrnn.nn.recurrent import State, initialise_weights, recurrent_layers


class LanguageModel(nn.Module):
    """Embedding, recurrent layers, and a linear map to one logit per word.

    The dropout layers stand where Zaremba et al. (2014) put them, on the non-recurrent
    connections, and do nothing until a rate is set.
    """

    def __init__(
        self, vocabulary: int, hidden: int, layers: int = 2, cell: str = "lstm", tied: bool = False
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.recurrent = recurrent_layers(cell, hidden, layers)
        self.output = nn.Linear(hidden, vocabulary)
        self.input_dropout = nn.Dropout(0.0)
        self.output_dropout = nn.Dropout(0.0)
        if tied:
            self.output.weight = self.embedding.weight

    def initialise(self, uniform: float | None, generator: torch.Generator) -> None:
        """Set all weights: uniformly within +-`uniform`, or truncated normals if it is None.

        The normals have standard deviation 1 / sqrt(fan-in); biases are zero, and embeddings
        N(0, 1) unless they are the output matrix as well.
        """
        tied = self.output.weight is self.embedding.weight
        initialise_weights(self, uniform, generator, embedding=not tied)

    def forward(self, words: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Logits [time, batch, vocabulary] for the word after each of `words` [time, batch]."""
        features, state = self.recurrent(self.input_dropout(self.embedding(words)), state)
        return self.output(self.output_dropout(features)), cast(State, state)
