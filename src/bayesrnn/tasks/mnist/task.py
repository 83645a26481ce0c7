"""The MNIST task: a feed-forward network that classifies handwritten digits."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from bayesrnn.core.init import absolute
from bayesrnn.data.batches import Batch, ShuffledBatches
from bayesrnn.methods.base import Hints, Method, Network, Objective, Outcome
from bayesrnn.random import RandomStreams
from bayesrnn.runs.config import Recipes
from bayesrnn.runs.evaluation import EvaluationSettings
from bayesrnn.runs.held_out import Chunk, HeldOut
from bayesrnn.runs.load import load_run
from bayesrnn.runs.places import moved
from bayesrnn.runs.tab import Tab
from bayesrnn.runs.task import Measure, Task, TrainedRun, UncertaintyReport, ValidationScore
from bayesrnn.runs.verdict import Verdict
from bayesrnn.tasks.mnist import ENTRY
from bayesrnn.tasks.mnist.calibrate import image_score, image_verdict
from bayesrnn.tasks.mnist.config import PIXELS, RECIPES, MnistConfig
from bayesrnn.tasks.mnist.data import (
    Images,
    ImageSet,
    available_images,
    load_images,
)
from bayesrnn.tasks.mnist.evaluate import ImageEvaluation, ImageRow, evaluate_images, row_text
from bayesrnn.tasks.mnist.model import MLP
from bayesrnn.uncertainty.fitting import fitted_nll
from bayesrnn.uncertainty.metrics import class_log_probabilities, score_log_probabilities
from bayesrnn.uncertainty.scaling import tempered_log_probs

_CLASSES = 10


def _initialise(module: nn.Module, generator: torch.Generator) -> None:
    assert isinstance(module, MLP)
    module.initialise(generator)


HINTS = Hints(sigma_init={"*": absolute(0.02)}, initialise=_initialise, after_dropout=("output",))


class MnistTask(Task[MnistConfig, Images]):
    """Learn which digit an image shows (Blundell et al. 2015, section 5.1)."""

    name: ClassVar[str] = MnistConfig.task
    summary: ClassVar[str] = ENTRY.summary
    example: ClassVar[str] = "bayesrnn train mnist --method bbb --epochs 20"
    config_type: ClassVar[type[MnistConfig]] = MnistConfig
    recipes: ClassVar[Recipes] = RECIPES
    unit: ClassVar[str] = "image"
    data_key: ClassVar[str] = "images"
    can_start_from: ClassVar[bool] = True

    def resolve(
        self,
        given: Mapping[str, Any],
        file: Mapping[str, Any] | None = None,
        saved: bool = False,
    ) -> MnistConfig:
        """A full configuration; `auto` becomes the name of the images that were found."""
        config = super().resolve(given, file, saved)
        if config.images == "auto":
            config = replace(config, images=available_images(config.data_dir))
        return config

    def run_name(self, config: MnistConfig) -> str:
        """Named by images, method and seed."""
        return f"{config.images}-{config.method}-seed{config.seed}"

    def load(self, config: MnistConfig) -> Images:
        """The images."""
        return load_images(config.images, config.data_dir)

    def fingerprint(self, data: Images) -> str:
        """A hash of the training images and labels."""
        digest = hashlib.sha256(data.train.images.numpy().tobytes())
        digest.update(data.train.labels.numpy().tobytes())
        return digest.hexdigest()

    def measure(self, read: Callable[[str], str]) -> Measure:
        """The share of images that are taken for another digit."""
        del read
        return Measure("error", "error in %", 100)

    def build(
        self,
        config: MnistConfig,
        files: Mapping[str, str],
        method: Method[Any],
        streams: RandomStreams,
    ) -> nn.Module:
        """A network between pixels and classes."""
        module = MLP(PIXELS[config.images], _CLASSES, config.hidden, config.layers)
        _initialise(module, streams["init"])
        return method.build(module, HINTS)

    def problem(
        self,
        config: MnistConfig,
        data: Images,
        method: Method[Any],
        net: nn.Module,
        device: torch.device,
    ) -> "DigitProblem":
        """Classify the training images."""
        return DigitProblem(
            train=data.train.to(device),
            valid=data.valid.to(device),
            batch_size=config.batch_size,
            seed=config.seed,
            method=method,
            net=net,
        )

    def open_run(
        self, path: Path, checkpoint: str = "best", device: str = "auto"
    ) -> TrainedRun[MnistConfig]:
        """A trained classifier of digits."""
        return load_run(self, path, checkpoint, device, TrainedRun[MnistConfig])

    def evaluate(self, path: Path, settings: EvaluationSettings, options: Any) -> ImageEvaluation:
        """Error, likelihood and calibration on a split of the run's own images."""
        run = moved(self, self.open_run(path, settings.checkpoint, settings.device), settings)
        images: ImageSet = getattr(self.load(run.config), settings.split)
        return evaluate_images(run, images.to(run.device), settings)

    def held_out(self, run: TrainedRun[MnistConfig], data: Images, most: int) -> HeldOut:
        """Validation images."""
        images = data.valid.images[:most].to(run.device)

        def outputs(network: Network, state: Any) -> tuple[torch.Tensor, Any]:
            return network(images), state

        return HeldOut([Chunk(outputs, data.valid.labels[:most])], data.train.labels)

    def tab(self) -> Tab:
        """Its tab on the page of `bayesrnn serve`."""
        from bayesrnn.tasks.mnist.tab import TAB  # late: it opens runs of this task

        return TAB

    def score(
        self, run: TrainedRun[MnistConfig], data: Images, whole: bool = False
    ) -> ValidationScore:
        """The likelihood of the labels of validation images."""
        return image_score(run, data, whole)

    def verdict(self, run: TrainedRun[MnistConfig], data: Images) -> Verdict | None:
        """Whether its probabilities can be believed."""
        return image_verdict(run, data)

    def line(self, row: ImageRow) -> str:
        """The metrics of a row."""
        return row_text(row)

    def uncertainty(self) -> UncertaintyReport:
        """Calibration, selective prediction, and shifted images told from regular ones."""
        from bayesrnn.tasks.mnist.uncertainty import REPORT  # late: it opens runs of this task

        return REPORT

    def network(self, config: Mapping[str, Any]) -> str:
        """Layers and units."""
        return f"mlp {config['layers']}x{config['hidden']}"


@dataclass(frozen=True)
class DigitProblem:
    """The training loop's view of the MNIST task."""

    train: ImageSet
    valid: ImageSet
    batch_size: int
    seed: int
    method: Method[Any]
    net: nn.Module

    def minibatches(self, epoch: int) -> ShuffledBatches[Batch]:
        """The training images in another order in every epoch."""
        return ShuffledBatches(self.train, self.batch_size, self.seed, epoch)

    def objective(self, batch: Batch, state: Any) -> Objective:
        """The mean loss of a minibatch; there is no state."""
        del state

        def objective(network: Network) -> Outcome:
            return Outcome(F.cross_entropy(network(batch.inputs), batch.targets), None)

        return objective

    def loss_metrics(self, nll: float) -> dict[str, float]:
        """The loss itself."""
        return {"nll": nll}

    def validate(self) -> dict[str, float]:
        """How well the mean weights classify the validation images."""
        log_probs = class_log_probabilities(self.method.mean(self.net), self.valid.images)
        labels = self.valid.labels.cpu()
        return {
            **asdict(score_log_probabilities(log_probs, labels)),
            "fitted_nll": fitted_nll(lambda ts: tempered_log_probs(log_probs, labels, ts)),
        }


TASK = MnistTask()
