"""naive-dropout: new masks at every time step, the contrast of Gal & Ghahramani (2016)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from bayesrnn.methods.base import Network
from bayesrnn.methods.dropout import dropout_rate, with_passing_masks
from bayesrnn.methods.masking import Masking, MaskingOptions, Rates
from bayesrnn.nn.masked import MaskStyle
from bayesrnn.options import option


@dataclass(frozen=True)
class NaiveDropoutOptions(MaskingOptions):
    """Options of naive dropout."""

    dropout: float = dropout_rate()
    recurrent_dropout: float = option(
        0.0,
        "share of the recurrent connections that is dropped",
        ge=0,
        lt=1,
        shown="recurrent dropout {}",
    )

    @property
    def rates(self) -> Rates:
        """No words are dropped."""
        return Rates(self.dropout, self.recurrent_dropout, words=0.0)


class NaiveDropout(Masking[NaiveDropoutOptions]):
    """Mask the inputs and outputs of recurrent layers anew at every time step.

    With a rate for them, recurrent connections too: then each step multiplies the state by new
    noise, which accumulates along the sequence until it exceeds the signal.
    """

    name: ClassVar[str] = "naive-dropout"
    summary: ClassVar[str] = "dropout with new masks at every time step"
    options_type: ClassVar[type] = NaiveDropoutOptions
    trains_like: ClassVar[str] = "dropout"

    @property
    def style(self) -> MaskStyle:
        """New masks at every step."""
        return MaskStyle(every_step=True)

    def draw(self, net: nn.Module, seed: int) -> Network:
        """The network with new masks at every call, as at every time step."""
        return with_passing_masks(net, seed, self.noise_factor)
