"""How well a run classifies images, calibration included."""

from dataclasses import asdict, dataclass

from bayesrnn.methods.base import Bounded
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.runs.evaluation import (
    Evaluation,
    EvaluationSettings,
    Inference,
    Row,
    about,
    asked_row,
    inference_rows,
    kl_text,
)
from bayesrnn.runs.task import TrainedRun
from bayesrnn.tasks.mnist.config import MnistConfig
from bayesrnn.tasks.mnist.data import ImageSet
from bayesrnn.uncertainty.bound import example_minibatches, likelihood_bound
from bayesrnn.uncertainty.draws import networks_to_read
from bayesrnn.uncertainty.metrics import classification


@dataclass(frozen=True, kw_only=True)
class ImageRow(Row):
    """Metrics over `examples` images; of a bound only the likelihood.

    The error of a network that has seen the labels means nothing.
    """

    nll: float
    examples: int
    error: float | None = None
    ece: float | None = None
    brier: float | None = None
    kl: float | None = None
    standard_error: float | None = None


@dataclass(frozen=True, kw_only=True)
class ImageEvaluation(Evaluation):
    """The rows of a classifier of digits."""

    images: str


def evaluate_images(
    run: TrainedRun[MnistConfig], data: ImageSet, settings: EvaluationSettings
) -> ImageEvaluation:
    """The rows of a classifier of digits on a split of its own images."""

    def averaged(inference: Inference) -> ImageRow:
        networks = networks_to_read(run.method, run.net, inference.samples)
        with progress_bar(networks * len(data), " images", "evaluating") as bar:
            found = classification(
                run.method,
                run.net,
                data.images,
                data.labels,
                samples=inference.samples,
                generator=seeded(settings.seed),
                advance=bar.update,
                scaling=inference.scales,
            )
        return ImageRow(**inference._asdict(), **asdict(found))

    def bounded(inference: Inference, method: Bounded) -> ImageRow:
        minibatches = example_minibatches(data.images, data.labels, run.config.batch_size)
        with progress_bar(len(data), " images", "bounding") as bar:
            found = likelihood_bound(
                method, run.net, minibatches, seeded(settings.seed), bar.update
            )
        return ImageRow(
            **inference._asdict(),
            nll=found.nll,
            kl=found.kl,
            standard_error=found.standard_error,
            examples=found.tokens,
        )

    rows = inference_rows(run, settings, averaged, bounded)
    return ImageEvaluation(
        **about(run, settings),
        images=run.config.images,
        rows=tuple(rows),
        asked=asked_row(rows, settings.samples),
    )


def row_text(row: ImageRow) -> str:
    """A row as text."""
    if row.error is None:
        return (
            f"nll <= {row.nll:.4f}{kl_text(row.kl, row.standard_error)} ({row.examples:,} images)"
        )
    return (
        f"error {row.error:.2%}, nll {row.nll:.4f}, calibration error {row.ece:.2%}, "
        f"Brier score {row.brier:.4f} ({row.examples:,} images)"
    )
