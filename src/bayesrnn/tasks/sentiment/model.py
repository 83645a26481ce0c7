"""A recurrent network that predicts a number or a label of a text."""

import math

import torch
from torch import Tensor, nn

from bayesrnn.nn.recurrent import WordNetwork

#: The parameters that say how far predicted numbers are off.
NOISE = ("log_noise", "unknown_noise")


class TextPredictor(WordNetwork):
    """Embedding, recurrent layers, and a linear map from the features at a text's last word.

    With `classes` the outputs are one logit per class. Without, they are two numbers, the mean of a
    normal distribution and the logarithm of its variance. The logarithm of its root is `log_noise`,
    one learnt number, which starts at 0, where the negative log-likelihood is half the squared
    error, but for a constant. With the number of the word that stands for `unknown` ones, the size
    of another learnt number times their share of the text is added to it: else a text of unknown
    words is predicted as surely as any other. Its sign does not count, because whoever knows fewer
    words cannot be surer: where there is little to learn from, chance alone made it negative. The
    temperature divides logits, or multiplies the root of the variance.
    """

    def __init__(
        self,
        vocabulary: int,
        hidden: int = 128,
        layers: int = 1,
        cell: str = "lstm",
        classes: int | None = None,
        unknown: int | None = None,
    ) -> None:
        super().__init__(vocabulary, classes or 1, hidden, layers, cell)
        self.log_noise = None if classes else nn.Parameter(torch.zeros(()))
        self.unknown = None if classes else unknown
        if self.unknown is not None:
            self.unknown_noise = nn.Parameter(torch.zeros(()))

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
        log_noise: Tensor = self.log_noise
        if self.unknown is not None:
            number = self.unknown_noise
            size = torch.where(number < 0, -number, number)  # abs has no gradient at 0, its start
            log_noise = log_noise + size * self._unknown_share(words, lengths)
        if self.temperature != 1:
            log_noise = log_noise + math.log(self.temperature)
        return torch.cat([output, (2 * log_noise).expand_as(output)], -1)

    def _unknown_share(self, words: Tensor, lengths: Tensor) -> Tensor:
        """The share of each text's words that are unknown, [batch, 1]."""
        is_word = torch.arange(len(words), device=words.device)[:, None] < lengths
        unknown = ((words == self.unknown) & is_word).sum(0)
        return (unknown / lengths)[:, None]
