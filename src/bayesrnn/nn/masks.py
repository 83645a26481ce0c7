"""Random factors on units: how they are distributed, and over what one of them is shared."""

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

#: Dropped units are zero; or all units are multiplied by Gaussian noise.
Noise = Literal["bernoulli", "gaussian"]
Gates = Literal["tied", "untied"]


def draw_mask(shape: tuple[int, ...], rate: float, noise: Noise, like: Tensor) -> Tensor:
    """Factors of mean 1 and variance p / (1 - p), where p is the rate, from torch's generator.

    bernoulli: 0 with probability p, else 1 / (1 - p) (Srivastava et al. 2014, "inverted").
    gaussian: N(1, p / (1 - p)) (the same paper, section 10).
    """
    mask = like.new_empty(shape)
    if noise == "gaussian":
        return mask.normal_(1.0, math.sqrt(rate / (1 - rate)))
    return mask.bernoulli_(1 - rate).div_(1 - rate)


@dataclass(frozen=True)
class MaskStyle:
    """What masks of a recurrent network are like.

    noise: how a factor is distributed.
    every_step: a new mask at each time step, instead of one for the whole sequence.
    gates: one mask for all gates of a cell, or one for each.
    alike: all sequences of a batch have the same mask, as if drawn for one network, instead of each
        its own.
    """

    noise: Noise = "bernoulli"
    every_step: bool = False
    gates: Gates = "tied"
    alike: bool = False

    def draw(self, rate: float, x: Tensor, gates: int = 1) -> Tensor | None:
        """A mask for `x` [time, batch, units]: [time or 1, batch, units], None at rate 0.

        With a mask for each of several gates: [time or 1, gates, batch, units].
        """
        if not rate:
            return None
        steps = len(x) if self.every_step else 1
        of_gates = (gates,) if self.gates == "untied" and gates > 1 else ()
        batch, *units = x.shape[1:]
        sequences = 1 if self.alike else batch
        mask = draw_mask((steps, *of_gates, sequences, *units), rate, self.noise, x)
        return mask.expand(steps, *of_gates, batch, *units)
