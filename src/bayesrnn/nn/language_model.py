"""A word-level recurrent language model."""

import math
from typing import cast

import torch
from torch import Tensor, nn

from bayesrnn.errors import ConfigError

#: The recurrent state: one tensor for rnn and gru, (h, c) for lstm; [layers, batch, hidden] each.
State = Tensor | tuple[Tensor, Tensor]

CELLS: dict[str, type[nn.LSTM] | type[nn.GRU] | type[nn.RNN]] = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "rnn": nn.RNN,
}


class LanguageModel(nn.Module):
    """Embedding, recurrent layers, and a linear map to one logit per word.

    The dropout layers stand where Zaremba et al. (2014) put them, on the non-recurrent
    connections, and do nothing until a rate is set.
    """

    def __init__(
        self, vocabulary: int, hidden: int, layers: int = 2, cell: str = "lstm", tied: bool = False
    ) -> None:
        super().__init__()
        if cell not in CELLS:
            raise ConfigError(f"cell is {cell!r}; there are: {', '.join(CELLS)}")
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.recurrent = CELLS[cell](hidden, hidden, layers)
        self.output = nn.Linear(hidden, vocabulary)
        self.input_dropout = nn.Dropout(0.0)
        self.output_dropout = nn.Dropout(0.0)
        if tied:
            self.output.weight = self.embedding.weight
        if cell != "gru":
            # torch adds two biases where the papers have one; the second stays zero. (In a GRU
            # the two are not interchangeable.)
            for name, parameter in self.recurrent.named_parameters():
                if name.startswith("bias_hh"):
                    parameter.requires_grad_(False).zero_()

    def initialise(self, uniform: float | None, generator: torch.Generator) -> None:
        """Set all weights: uniformly within +-`uniform`, or truncated normals if it is None.

        The normals have standard deviation 1 / sqrt(fan-in); biases are zero, and embeddings
        N(0, 1) unless they are the output matrix as well.
        """
        tied = self.output.weight is self.embedding.weight
        for name, parameter in self.named_parameters():
            if not parameter.requires_grad:
                continue
            if uniform is not None:
                nn.init.uniform_(parameter, -uniform, uniform, generator=generator)
            elif parameter.dim() == 1:
                nn.init.zeros_(parameter)
            elif name.startswith("embedding") and not tied:
                nn.init.normal_(parameter, generator=generator)
            else:
                std = 1 / math.sqrt(parameter.shape[1])
                nn.init.trunc_normal_(
                    parameter, std=std, a=-2 * std, b=2 * std, generator=generator
                )

    def forward(self, words: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Logits [time, batch, vocabulary] for the word after each of `words` [time, batch]."""
        features, state = self.recurrent(self.input_dropout(self.embedding(words)), state)
        return self.output(self.output_dropout(features)), cast(State, state)
