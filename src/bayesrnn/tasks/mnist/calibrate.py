"""The calibration of a classifier of digits on validation images, and the verdict on it."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from torch import Tensor

from bayesrnn.methods.base import Network
from bayesrnn.random import seeded
from bayesrnn.runs.task import TrainedRun, ValidationScore
from bayesrnn.runs.verdict import (
    Verdict,
    classes_findings,
    draws_finding,
    unfamiliar_finding,
)
from bayesrnn.tasks.mnist.data import Images, ImageSet
from bayesrnn.tasks.mnist.shifts import rotated
from bayesrnn.uncertainty.average import AverageProbabilities
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.metrics import class_log_probabilities
from bayesrnn.uncertainty.scaling import tempered_log_probs

#: Validation images that are fitted to.
FITTED_IMAGES: Final = 5000


def image_score(run: TrainedRun[Any], data: Images, whole: bool) -> ValidationScore:
    """How probable the labels of validation images are."""
    images, labels = _of_validation(run, data, whole)
    labels = labels.cpu()

    def score(network: Network, temperatures: Sequence[float]) -> Tensor:
        return tempered_log_probs(class_log_probabilities(network, images), labels, temperatures)

    return ValidationScore("image", score, len(labels) == len(data.valid))


def image_verdict(run: TrainedRun[Any], data: Images) -> Verdict | None:
    """Draws against the mean, calibration error, and the likelihood against that of no model."""
    calibration = run.calibrated()
    if calibration is None:
        return None
    images, labels = _of_validation(run, data)
    generator = seeded(calibration.seed)
    draws = Draws(run.method, run.net, calibration.best_samples, generator, calibration.scaling)
    regular = averaged_probabilities(draws, images)
    turned = averaged_probabilities(draws, rotated(images))
    return Verdict(
        (
            draws_finding(calibration),
            *classes_findings(regular.mean.cpu().double(), labels.cpu(), data.train.labels.cpu()),
            unfamiliar_finding(regular.total(), turned.total(), "an image turned by a quarter"),
        ),
        predictions=len(labels),
        unit="image",
    )


def averaged_probabilities(
    draws: Draws, images: Tensor, advance: Callable[[int], object] | None = None
) -> AverageProbabilities:
    """The probabilities of the classes of images, averaged over draws."""
    average = AverageProbabilities()
    for network in draws.networks():
        average.add(class_log_probabilities(network, images, advance=advance))
    return average


def _of_validation(
    run: TrainedRun[Any], data: Images, whole: bool = False
) -> tuple[Tensor, Tensor]:
    valid: ImageSet = data.valid.to(run.device)
    count = len(valid) if whole else FITTED_IMAGES
    return valid.images[:count], valid.labels[:count]
