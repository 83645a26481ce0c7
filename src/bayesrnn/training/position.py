"""Where a training stands: what a checkpoint holds of the loop itself."""

from dataclasses import dataclass
from typing import Any


@dataclass
class Position:
    """The position in training, and the sums behind the metrics that it shows."""

    epoch: int = 0
    minibatch: int = 0
    step: int = 0
    state: Any = None
    epoch_nll: float = 0.0
    best: float | None = None
    #: The metric that `best` is a value of; None before the first epoch is over.
    best_by: str | None = None
    #: The step of the best epoch, how many networks the method had by then, and the share of the
    #: weights that was dropped.
    best_step: int | None = None
    best_kept: int = 0
    best_dropped: float = 0.0
    #: Whether the averaged parameters were better in the last whole epoch of the round. Then they
    #: are the model of a checkpoint, and the current ones a part of its state.
    averaged: bool = False
