"""A recurrent network that predicts a number or a label of a text."""

import math

import torch
from torch import Tensor, nn

from bayesrnn.nn.recurrent import WordNetwork


class TextPredictor(WordNetwork):
    """Embedding, recurrent layers, and a linear map from the features at a text's last word.

    With `classes` the outputs are one logit per class. Without, they are two numbers, the mean of a
    normal distribution and the logarithm of its variance. The logarithm of its root is `log_noise`,
    one learnt number, and with `noise_by_text` what the network makes of the text is added to it:
    else a text of unknown words is predicted as surely as any other. At the start it is about 0,
    where the negative log-likelihood is half the squared error, but for a constant. The temperature
    divides logits, or multiplies the root of the variance.
    """

    def __init__(
        self,
        vocabulary: int,
        hidden: int = 128,
        layers: int = 1,
        cell: str = "lstm",
        classes: int | None = None,
        noise_by_text: bool = False,
    ) -> None:
        super().__init__(vocabulary, classes or 1 + noise_by_text, hidden, layers, cell)
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
        mean, of_text = output[:, :1], output[:, 1:].sum(-1, keepdim=True)
        log_noise = self.log_noise + of_text
        if self.temperature != 1:
            log_noise = log_noise + math.log(self.temperature)
        return torch.cat([mean, 2 * log_noise], -1)
