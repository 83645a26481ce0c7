"""A recurrent network that says in words what an image shows."""

from torch import Tensor, nn
from torch.nn import functional as F

from bayesrnn.errors import ConfigError
from bayesrnn.nn.cut import layer_states
from bayesrnn.nn.recurrent import State, WordNetwork
from bayesrnn.nn.units import Part, Units


class Captioner(WordNetwork):
    """A language model that starts from an image in place of a state of zeros.

    That the image's representation is the initial state of the LSTM is from Fortunato et al.
    (2017), section 6.2. How it becomes one they do not say, and is our choice: a linear map turns
    the features into the cells that the recurrent layers start with, and their tanh is the output
    that they start with; where there are no cells, there is the latter only. Features are scaled
    to the length `feature_norm` first: their direction says what is in an image.
    """

    image: nn.Linear

    def __init__(
        self,
        features: int,
        vocabulary: int,
        hidden: int = 512,
        layers: int = 1,
        cell: str = "lstm",
        feature_norm: float = 1.0,
    ) -> None:
        image = nn.Linear(features, layers * hidden)
        super().__init__(vocabulary, vocabulary, hidden, layers, cell, image=image)
        self.feature_norm = feature_norm

    def forward(
        self, words: Tensor, features: Tensor | None = None, state: State | None = None
    ) -> tuple[Tensor, State]:
        """Logits [time, batch, vocabulary] for the word after each of `words` [time, batch].

        A caption starts from the `features` [batch, width] of its image, and goes on from a state.
        """
        if (features is None) == (state is None):
            given = "neither features nor a" if state is None else "both features and a"
            raise ConfigError(
                f"{given} state were given; give the features of images to start captions, or a "
                "state to go on with them"
            )
        if features is not None:
            state = self._seen(features)
        outputs, state = self.read(words, state)
        return self.tempered(self.output(self.output_dropout(outputs))), state

    def _seen(self, features: Tensor) -> State:
        """The state [layers, batch, hidden] of a network that has seen images."""
        found = self.image(F.normalize(features, dim=-1) * self.feature_norm)
        cells = layer_states(self.recurrent, found)
        outputs = cells.tanh()
        return (outputs, cells) if self.recurrent.mode == "LSTM" else outputs

    def units(self) -> tuple[Units, ...]:
        """Those of every network that reads words, which start from the image, and the words."""
        embedding, *layers = super().units()
        for number, units in enumerate(layers):
            start = number * units.count
            seen = (Part("image.weight", 0, start=start), Part("image.bias", 0, start=start))
            layers[number] = units.with_parts(receives=seen)
        return (embedding, *layers, self.word_units())
