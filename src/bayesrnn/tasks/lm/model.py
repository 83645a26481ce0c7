"""A word-level recurrent language model."""

from torch import Tensor

from bayesrnn.nn.recurrent import State, WordNetwork
from bayesrnn.nn.units import Units


class LanguageModel(WordNetwork):
    """A recurrent network with one logit per word; `tied`: one matrix for input and output."""

    def __init__(
        self, vocabulary: int, hidden: int, layers: int = 2, cell: str = "lstm", tied: bool = False
    ) -> None:
        super().__init__(vocabulary, vocabulary, hidden, layers, cell)
        if tied:
            self.output.weight = self.embedding.weight

    def forward(self, words: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Logits [time, batch, vocabulary] for the word after each of `words` [time, batch]."""
        features, state = self.read(words, state)
        return self.tempered(self.output(self.output_dropout(features))), state

    def units(self) -> tuple[Units, ...]:
        """Those of every network that reads words, and the words that it may say."""
        return (*super().units(), self.word_units())
