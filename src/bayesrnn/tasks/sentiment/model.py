"""A recurrent network that predicts a number or a label of a text."""

import math

import torch
from torch import Tensor, nn

from bayesrnn.nn.recurrent import WordNetwork


class TextPredictor(WordNetwork):
    """Embedding, recurrent layers, and a linear map from the features at a text's last word.

    With `classes` the outputs are one logit per class. Without, they are two numbers, the mean of a
    normal distribution and the logarithm of its variance. The variance is the same for all texts:
    `log_noise`, the logarithm of its root, is one learnt number. It starts at 0, where the negative
    log-likelihood is half the squared error, but for a constant. The temperature divides logits, or
    multiplies the root of the variance.
    """

    def __init__(
        self,
        vocabulary: int,
        hidden: int = 128,
        layers: int = 1,
        cell: str = "lstm",
        classes: int | None = None,
    ) -> None:
        super().__init__(vocabulary, classes or 1, hidden, layers, cell)
        self.log_noise = None if classes else nn.Parameter(torch.zeros(()))

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Outputs [batch, 2 or classes] for `words` [time, batch].

        `lengths` [batch] says how many words of each column count; the rest is padding.
        """
        features, _ = self.read(words)
        columns = torch.arange(len(lengths), device=lengths.device)
        # Of the axis of time, one step is left: layers that drop the same at all steps need it.
        last = features[(lengths - 1)[None], columns[None]]
        output: Tensor = self.output(self.output_dropout(last))[0]
        if self.log_noise is None:
            return self.tempered(output)
        log_variance = 2 * self.log_noise
        if self.temperature != 1:
            log_variance = log_variance + 2 * math.log(self.temperature)
        return torch.cat([output, log_variance.expand_as(output)], -1)
