"""What evaluating a run finds: a row for each inference, such as the mean weights or draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from bayesrnn.data.files import SPLITS
from bayesrnn.methods.base import Bounded
from bayesrnn.options import option
from bayesrnn.runs.arguments import CalibrationOptions, DataOptions, NetworkOptions, seed_option
from bayesrnn.runs.calibration import scaling_words
from bayesrnn.uncertainty.draws import networks_to_read
from bayesrnn.uncertainty.scaling import UNSCALED, Scaling

if TYPE_CHECKING:
    from bayesrnn.runs.task import TrainedRun

#: Draws to average over where an evaluation shows their average unasked.
DEFAULT_SAMPLES = 10

#: The end of the name of an inference that is calibrated.
CALIBRATED = "-calibrated"


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(NetworkOptions, CalibrationOptions, DataOptions):
    """What is evaluated, and how, whatever the task."""

    split: str = option("test", "which part of the data", choices=SPLITS)
    samples: int = option(
        0,
        "0: the mean weights, uncalibrated, and what predicts best by `bayesrnn calibrate`; N: "
        "average the probabilities of N draws (of a captioner all in memory at once). A run of "
        "sharpened shows both in any case (10 draws if this is 0), and a bound",
        ge=0,
        zero="the mean",
    )
    seed: int = seed_option()


@dataclass(frozen=True, kw_only=True)
class Row:
    """The metrics of one inference, which a task adds; None where there is no such metric.

    inference: a short name, which the result's file has as well.
    label: the name that people read.
    scaling: the fitted noise and temperatures, where the prediction is calibrated.
    """

    #: Fields that are stored in the run's results, but not shown.
    stored_only: ClassVar[tuple[str, ...]] = ()

    inference: str
    label: str
    samples: int
    scaling: Scaling | None = None

    def as_json(self, all_fields: bool = False) -> dict[str, Any]:
        """The metrics by name, without those that are only stored unless asked for."""
        left_out = () if all_fields else self.stored_only
        found = {n: value for n, value in asdict(self).items() if n not in left_out}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """All rows, and what they have in common. A task adds what its runs were trained on."""

    task: str
    method: str
    split: str
    step: int
    seed: int
    rows: tuple[Row, ...]
    #: The row that was asked for, where others are shown as well.
    asked: Row

    def about(self) -> dict[str, Any]:
        """What the rows have in common."""
        own = [item.name for item in fields(self) if item.name not in ("rows", "asked")]
        found = {name: getattr(self, name) for name in own}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def part(self) -> str:
        """What of the data was evaluated."""
        return self.split

    def as_json(self) -> dict[str, Any]:
        """The row that was asked for at the top, and all rows."""
        rows = [row.as_json() for row in self.rows]
        return {**self.about(), **self.asked.as_json(), "rows": rows}


def about(run: TrainedRun[Any], settings: EvaluationSettings) -> dict[str, Any]:
    """The fields of an `Evaluation` that every task has, but for its rows."""
    config = run.config
    return {
        "task": config.task,
        "method": config.method,
        "split": settings.split,
        "step": run.step,
        "seed": settings.seed,
    }


class Inference(NamedTuple):
    """How a prediction is made: the first fields of its `Row`."""

    inference: str
    label: str
    samples: int
    scaling: Scaling | None = None

    @property
    def scales(self) -> Scaling:
        """How predictions are scaled, for `Draws`."""
        return self.scaling or UNSCALED


AnyRow = TypeVar("AnyRow", bound=Row)


def inference_rows(
    run: TrainedRun[Any],
    settings: EvaluationSettings,
    averaged: Callable[[Inference], AnyRow],
    bounded: Callable[[Inference, Bounded], AnyRow],
) -> list[AnyRow]:
    """The mean weights or an average over draws; all there is for a method that gives a bound.

    `averaged` evaluates the mean weights (0 samples) or the average over that many draws. For
    methods with several networks the average over all is always reported too. The mean weights are
    not calibrated, which is what the literature reports; draws are, if the run is, and so is a
    further row for what predicts best on validation data.
    """
    method, samples = run.method, settings.samples
    calibration = run.calibrated(settings.uncalibrated)
    scaling = None if calibration is None else calibration.scaling
    if not isinstance(method, Bounded):
        members = method.members(run.net)
        wanted = [samples] if samples or members == 1 else [0, members]
        rows = [_inference(run, draws, scaling if draws else None) for draws in wanted]
        if not samples and calibration is not None:
            best = _inference(run, calibration.best_samples, scaling)
            rows = [*(row for row in rows if row.inference != best.inference), best]
        return [averaged(row) for row in rows]
    bound = Inference("bound", "sharpened bound, NLL + KL", 0)
    return [
        averaged(_inference(run, 0, None, "phi ")),
        averaged(_inference(run, samples or DEFAULT_SAMPLES, scaling, "phi ")),
        bounded(bound, method),
    ]


def asked_row(rows: list[AnyRow], samples: int) -> AnyRow:
    """The first row with as many draws as were asked for."""
    return next(row for row in rows if row.samples == samples)


def _inference(
    run: TrainedRun[Any], samples: int, scaling: Scaling | None, name: str = ""
) -> Inference:
    method = run.method
    inference, label = "mean", f"{name}mean" if name else method.mean_label
    if samples:
        networks = networks_to_read(method, run.net, samples)
        noun = "draw" if method.draws_differ else "network"
        counted = f"{networks} {noun}{'s' * (networks > 1)}"
        inference, label = f"samples{samples}", f"{name}averaged over {counted}"
    if scaling is not None:
        inference = f"{inference}{CALIBRATED}"
        label = f"{label}, {scaling_words(scaling, samples)}"
    return Inference(inference, label, samples, scaling)


def perplexity_row_text(row: Any, unit: str = "word", more: str = "") -> str:
    """The likelihood of the words of a row with `perplexity`, `nll` and `tokens`."""
    at_most = "<= " if row.inference.endswith("bound") else ""
    return (
        f"perplexity {at_most}{row.perplexity:.2f} ({at_most}{row.nll:.4f} nats a {unit}"
        f"{kl_text(row.kl, row.standard_error)}, {row.tokens:,} {unit}s{more})"
    )


def kl_text(kl: float | None, standard_error: float | None) -> str:
    """How much of a bound is KL, where it is one, and how exact it is, where that is known."""
    if kl is None:
        return ""
    error = "" if standard_error is None else f", standard error {standard_error:.4f}"
    return f", {kl:.4f} of it KL{error}"
