"""Numbers that scale predictions after training: the noise of draws, and temperatures."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scaling:
    """How predictions differ from those of the trained network; all 1: not at all.

    noise: a factor on the noise of draws: on sigma, or on the rate of dropout.
    temperature: divides the logits of each draw before their probabilities are averaged; where
        numbers are predicted, it multiplies the standard deviation of the noise of the data.
    mean_temperature: the same for the mean weights.
    """

    noise: float = 1.0
    temperature: float = 1.0
    mean_temperature: float = 1.0


UNSCALED = Scaling()


def tempered_log_probs(logits: Tensor, targets: Tensor, temperatures: Sequence[float]) -> Tensor:
    """log softmax(logits / T) at the targets, for several T at once: [temperatures, targets].

    `logits` are [targets, classes].
    """
    logits = logits - logits.amax(-1, keepdim=True)
    of_targets = logits.gather(-1, targets[:, None])[:, 0]
    room = torch.empty_like(logits)  # for all temperatures: memory takes longer than arithmetic
    return torch.stack(
        [
            of_targets / t - torch.mul(logits, 1 / t, out=room).exp_().sum(-1).log_()
            for t in temperatures
        ]
    )
