"""What an examination of a run has found: figures, without a judgement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bayesrnn.runs.calibration import Calibration
from bayesrnn.runs.doctor.course import Course
from bayesrnn.runs.doctor.gradients import GradientNoise, TrainingLoss
from bayesrnn.runs.doctor.posterior import TensorReport
from bayesrnn.runs.held_out import PredictionScore
from bayesrnn.runs.verdict import KeptVerdict, Verdict


@dataclass(frozen=True)
class Nats:
    """What a prediction of the training set costs and brings, in nats.

    base: its loss by the best constant prediction, which needs no network; None if not known.
    kl: KL[q || p] of all weights, shared by the predictions of an epoch.
    kl_weight: the factor with which training charges it.
    numbers: whether numbers are predicted, not classes.
    """

    train: TrainingLoss
    base: float | None
    kl: float | None
    kl_weight: float
    numbers: bool = False

    @property
    def gained(self) -> float | None:
        """What draws of the network predict better than the constant."""
        return None if self.base is None else self.base - self.train.draws

    @property
    def charged(self) -> float | None:
        """What training charges for the weights."""
        return None if self.kl is None else self.kl * self.kl_weight

    @property
    def free_energy(self) -> float | None:
        """The loss of draws and the KL, as charged."""
        return None if self.charged is None else self.train.draws + self.charged


@dataclass(frozen=True)
class Validation:
    """The same part of the validation set by the mean weights, and by the average of draws.

    Both are calibrated where the run is.

    draws: None where all draws are the same network.
    mean_as_trained: by the mean weights before calibration, where that has changed them.
    """

    mean: PredictionScore
    draws: PredictionScore | None
    samples: int
    mean_as_trained: PredictionScore | None = None


@dataclass(frozen=True)
class Settings:
    """What a run was trained with, as far as advice depends on it.

    options: those of the method.
    average: the decay of averaged parameters; 0 without.
    can_average, own_optimiser: see `Method`.
    hold_epochs: at the full learning rate, which is then multiplied by `decay` in each epoch.
    kl_warmup: epochs in which the weight of the KL rises.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    average: float = 0.0
    can_average: bool = True
    own_optimiser: bool = False
    hold_epochs: int = 1
    decay: float = 1.0
    kl_warmup: float = 0.0


@dataclass(frozen=True)
class Examination:
    """All that was found.

    tensors: of the posterior; empty where the method has none.
    left_out: what could not be measured, and why.
    calibration: that of the step that was examined.
    kept_verdict: the one in the folder of the run, maybe on another step.
    checkpoint: as the user named it.
    minibatches: in an epoch.
    """

    path: Path
    method: str
    task: str
    measure: str
    step: int
    checkpoint: str
    minibatches: int
    clip: float | None
    course: Course
    nats: Nats
    tensors: Sequence[TensorReport] = ()
    gradients: dict[str, GradientNoise] = field(default_factory=dict)
    validation: Validation | None = None
    calibration: Calibration | None = None
    kept_verdict: KeptVerdict | None = None
    settings: Settings = field(default_factory=Settings)
    left_out: Sequence[str] = ()

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the step that was examined, if there is one."""
        kept = self.kept_verdict
        return kept.verdict if kept is not None and kept.step == self.step else None

    @property
    def gap(self) -> float:
        """The nats by which the mean weights, as trained, predict training better than new data."""
        if self.validation is None:
            return 0.0
        as_trained = self.validation.mean_as_trained or self.validation.mean
        return as_trained.nll - self.nats.train.mean

    @property
    def lost(self) -> float | None:
        """The share of what the mean weights gained on training data that they lack on new data."""
        if self.validation is None or self.nats.base is None:
            return None
        gained = self.nats.base - self.nats.train.mean
        return self.gap / gained if gained > 0 else None
