"""Does a classifier of digits know its errors, and images that show no digit of its kind?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bayesrnn.random import RandomStreams
from bayesrnn.runs.answers import (
    Advance,
    AnswerOptions,
    Answers,
    AnswerUncertainty,
    Exam,
    examine,
    label_answers,
)
from bayesrnn.runs.answers_report import answers_json, answers_page, answers_text
from bayesrnn.runs.task import TrainedRun, UncertaintyReport
from bayesrnn.tasks.mnist.calibrate import averaged_probabilities
from bayesrnn.tasks.mnist.config import MnistConfig
from bayesrnn.tasks.mnist.data import ImageSet, other_images
from bayesrnn.tasks.mnist.shifts import SHIFTS
from bayesrnn.tasks.mnist.task import TASK
from bayesrnn.uncertainty.draws import Draws


@dataclass(frozen=True, kw_only=True)
class ImageUncertaintyOptions(AnswerOptions):
    """What to measure; `shifts` are folders with test images in MNIST's format."""


def image_uncertainty(
    runs: Sequence[Path], settings: ImageUncertaintyOptions, checkpoint: str, device: str
) -> list[AnswerUncertainty]:
    """What is found of each run, on its own images and on shifted ones."""
    return examine(TASK, runs, settings, checkpoint, device, _exam, "image")


def _exam(run: TrainedRun[MnistConfig], settings: ImageUncertaintyOptions) -> Exam[ImageSet]:
    regular: ImageSet = getattr(TASK.load(run.config), settings.split)
    streams = RandomStreams(settings.seed)
    shifted = {
        name: ImageSet(shift(regular.images, streams[name]), regular.labels)
        for name, shift in SHIFTS.items()
    }
    for given in settings.shifts:
        folder = Path(given)
        shifted[folder.name or given] = other_images(folder, regular.images.shape[1])
    inputs = {"": regular, **shifted}
    return Exam({name: images.to(run.device) for name, images in inputs.items()}, _answers)


def _answers(draws: Draws, images: ImageSet, advance: Advance) -> Answers:
    average = averaged_probabilities(draws, images.images, advance)
    differ = draws.differing(len(draws)) > 1
    return label_answers(average.mean, average.aleatoric, images.labels.cpu(), differ)


REPORT = UncertaintyReport(
    ImageUncertaintyOptions, image_uncertainty, answers_page, answers_json, answers_text
)
