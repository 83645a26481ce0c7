"""Drop weights while training: ever more of them, the least important first.

What is dropped stays 0, and the other weights go on learning, with their posterior where they have
one. So they can take over what the dropped ones did, which they cannot after training.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesrnn.compression.pruning import dropped_weights
from bayesrnn.compression.ranking import Ranking, importance
from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.posterior import DROPPED_RHO
from bayesrnn.training.averaging import ParameterAverage

#: Weights are ranked anew, and more of them dropped, so many times in the course of the schedule,
#: but no more often than each so many steps: a ranking takes as long as some steps.
ROUNDS, EVERY = 50, 200


@dataclass(frozen=True)
class DropSchedule:
    """The share of the weights that is dropped by each moment of training.

    It rises from 0 after `start` epochs to `share` after `end`, fast at first and ever more slowly
    (Zhu & Gupta 2017):

        share (1 - (1 - (epoch - start) / (end - start))^3)

    kl_factor: what the KL's weight is multiplied by when all are dropped that are to be; on the way
        there it grows as the share does. The weights that go take their noise with them, and with
        less noise the others would learn more by heart.
    """

    share: float
    start: float
    end: float
    kl_factor: float = 1.0

    def at(self, epoch: float) -> float:
        """The share to be dropped after so many epochs, a fraction of one counted."""
        if epoch >= self.end:
            return self.share
        if epoch <= self.start:
            return 0.0
        passed = (epoch - self.start) / (self.end - self.start)
        return self.share * (1 - (1 - passed) ** 3)


class Dropping:
    """Drops weights of `net` on a schedule, or none without one.

    They are ranked over the whole network, by |mean| / sigma where there is a posterior, else by
    magnitude; where parameters are averaged, by their averages, which are less noisy.

    module: the ordinary module inside `net`, whose parameters are trained.
    """

    def __init__(
        self,
        net: nn.Module,
        module: nn.Module,
        schedule: DropSchedule | None,
        average: ParameterAverage,
    ) -> None:
        self.net, self.module, self.average = net, module, average
        self.schedule = schedule
        #: The share of the weights that is dropped by now, and which these are.
        self.share = 0.0
        self._masks: dict[str, Tensor] = {}

    @property
    def kl_factor(self) -> float:
        """What the KL's weight is multiplied by, for as many weights as are dropped by now."""
        if self.schedule is None:
            return 1.0
        return 1 + (self.schedule.kl_factor - 1) * self.share / self.schedule.share

    @torch.no_grad()
    def mask_gradients(self) -> None:
        """Leave the dropped weights out of the gradient, and so out of its norm."""
        for name, mask in self._masks.items():
            gradient = self.module.get_parameter(name).grad
            if gradient is not None:
                gradient.masked_fill_(mask, 0.0)

    def after_step(self, step: int, steps: int) -> None:
        """After the `step`-th step, of `steps` in an epoch: drop what is due, and keep it so."""
        if self.schedule is None:
            self._fill()
            return
        share = self.schedule.at(step / steps)
        every = max(1, min(EVERY, int((self.schedule.end - self.schedule.start) * steps / ROUNDS)))
        is_last = share == self.schedule.share
        if share > self.share and (is_last or step % every == 0):
            self._drop(share)
        else:
            self._fill()  # an optimiser with a memory moves them, too

    def _drop(self, share: float) -> None:
        with self.average.in_place(self.average.is_ready):
            found = importance(self.net, self.module)
        for name, mask in self._masks.items():
            found[name].masked_fill_(mask, -1.0)  # below all others, those of no importance, too
        self.impose(Ranking(found).kept(share))
        self.share = share

    def impose(self, kept: Mapping[str, Tensor]) -> None:
        """Drop the weights where a mask of `kept` is false, and no others."""
        device = next(self.module.parameters()).device
        self._masks = {name: ~mask.to(device) for name, mask in kept.items()}
        self.share = dropped_weights(kept) / sum(mask.numel() for mask in kept.values())
        with self.average.in_place(self.average.is_ready):
            self._fill()
        self._fill()
        if isinstance(self.net, Bayesian):
            self.net.drop(self._masks)

    @torch.no_grad()
    def _fill(self) -> None:
        """Set the dropped weights to what a dropped weight is."""
        for name, mask in self._masks.items():
            self.module.get_parameter(name).masked_fill_(mask, 0.0)
            if isinstance(self.net, Bayesian):
                self.net.rho.get_parameter(name).masked_fill_(mask, DROPPED_RHO)

    def record(self) -> dict[str, float]:
        """What the log of an epoch says of it."""
        return {"dropped_share": self.share} if self._masks else {}

    def words(self) -> str:
        """What the line of an epoch says of it."""
        return f"  {self.share:.1%} dropped" if self._masks else ""

    def state(self) -> dict[str, Any]:
        """What has to be saved beside the parameters."""
        return {"share": self.share, "masks": dict(self._masks)}

    def restore(self, state: dict[str, Any] | None) -> None:
        """Continue where `state` was taken; None comes from a checkpoint of an earlier version."""
        if state is not None:
            self.share = float(state["share"])
            device = next(self.module.parameters()).device
            self._masks = {name: mask.to(device) for name, mask in state["masks"].items()}
