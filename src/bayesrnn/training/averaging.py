"""Averaged parameters: a moving average over the steps of training.

At a high learning rate the parameters circle around a good place; the mean of their path lies
nearer to it than any point of the path (Polyak & Juditsky 1992).
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bayesrnn.training.problem import Problem

#: The metrics of `Problem.validate` that can choose the best epoch, the first one that there is.
#: They are proper scores: an error goes on falling while a network becomes far too sure of itself,
#: and a likelihood does not. Where too much confidence is all that is wrong, and a temperature
#: mends it after training, the likelihood after that tells which epoch is the best.
CHOOSE = ("fitted_nll", "nll")

#: Steps from one update of the average to the next. An update costs memory traffic over all
#: parameters, and neighbouring steps hardly differ.
EVERY = 10


class ParameterAverage:
    """An exponential moving average of the trained parameters of `net`, corrected for its start.

    With D = decay^EVERY and theta_k the parameters after step k * EVERY, after n updates it is

        (1 - D) / (1 - D^n)  sum over k = 1 ... n of  D^(n-k) theta_k:

    the weights add up to 1, and a parameter that is s steps old counts decay^s times as much as the
    newest. Frozen parameters and buffers are not averaged: those of the moment go with it. With a
    decay of 0 there is no average.
    """

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.decay = decay
        #: Steps since the start, or since the last `restart`.
        self.steps = 0
        named = net.named_parameters() if decay else ()
        self._parameters = {name: p for name, p in named if p.requires_grad}
        self._averages = {name: torch.zeros_like(p) for name, p in self._parameters.items()}

    @property
    def is_ready(self) -> bool:
        """Whether there is an average yet."""
        return self.decay > 0 and self.steps >= EVERY

    def restart(self) -> None:
        """Forget all steps."""
        self.steps = 0

    @torch.no_grad()
    def update(self) -> None:
        """Count a step, and take the parameters after it into the average if it is time to."""
        self.steps += 1
        if self.decay and self.steps % EVERY == 0:
            # (1 - D) / (1 - D^n), exact also for a decay next to 1. The first is 1: nothing of
            # what was there before stays.
            log_decay = math.log(self.decay)
            weight = math.expm1(EVERY * log_decay) / math.expm1(self.steps * log_decay)
            torch._foreach_lerp_(self._tensors(), list(self._parameters.values()), weight)

    @contextmanager
    def in_place(self, used: bool = True) -> Iterator[None]:
        """Inside the block the network has the averaged parameters (if they are to be `used`).

        The tensors of the average, and so its `state`, hold the current parameters meanwhile.
        """
        if used:
            self._exchange()
        try:
            yield
        finally:
            if used:
                self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        """Swap the values of the parameters and of their averages, one tensor after the other.

        The parameters stay the objects that an optimiser refers to, and layers have laid out.
        """
        for parameter, average in zip(self._parameters.values(), self._tensors(), strict=True):
            current = parameter.clone()
            parameter.copy_(average)
            average.copy_(current)

    def state(self) -> dict[str, Any]:
        """What has to be saved beside the parameters."""
        return {"steps": self.steps, "averages": dict(self._averages)}

    @torch.no_grad()
    def restore(self, state: dict[str, Any] | None, in_place: bool) -> None:
        """Continue where `state` was taken; None comes from a checkpoint of an earlier version.

        in_place: whether the averaged parameters were in the network's place, and still are.
        """
        if state is None:
            return
        self.steps = int(state["steps"])
        for name, average in self._averages.items():
            average.copy_(state["averages"][name])
        if in_place:
            self._exchange()

    def _tensors(self) -> list[Tensor]:
        return list(self._averages.values())


class Validation(NamedTuple):
    """Metrics on the validation set.

    metrics: of the parameters to predict with.
    averaged: whether these are the averaged ones.
    others: of those that were worse; nothing where there is no average.
    by: the metric that says what is worse.
    """

    metrics: dict[str, float]
    by: str
    averaged: bool = False
    others: dict[str, float] | None = None

    def both(self) -> dict[str, dict[str, float]]:
        """The metrics of the averaged and of the current parameters, the better first."""
        if self.others is None:
            return {}
        names = ("averaged", "current") if self.averaged else ("current", "averaged")
        return dict(zip(names, (self.metrics, self.others), strict=True))

    def record(self) -> dict[str, float]:
        """What the log of an epoch says beside the metrics to predict with."""
        made = {
            f"valid_{which}_{name}": value
            for which, metrics in self.both().items()
            for name, value in metrics.items()
            if not name.startswith("train_")
        }
        return {**made, "averaged": self.averaged} if made else {}

    def shown(self, measure: str) -> list[tuple[str, float]]:
        """Words and values of a metric to show, the one to predict with first."""
        found = [(f" {which}", metrics[measure]) for which, metrics in self.both().items()]
        return found or [("", self.metrics[measure])]


def validate(problem: Problem, average: ParameterAverage, by: str | None = None) -> Validation:
    """Validate the current parameters and, if there is one, their average.

    The average is what to predict with if its metric `by` is lower.
    """
    current = problem.validate()
    by = by or next(name for name in CHOOSE if name in current)
    if not average.is_ready:
        return Validation(current, by)
    with average.in_place():
        averaged = problem.validate()
    if averaged[by] < current[by]:
        return Validation(averaged, by, averaged=True, others=current)
    return Validation(current, by, others=averaged)
