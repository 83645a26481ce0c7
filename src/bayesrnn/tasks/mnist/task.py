"""The MNIST task: a feed-forward network that tells handwritten digits apart."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from bayesrnn.core.init import absolute
from bayesrnn.data.batches import Batch
from bayesrnn.methods.base import Hints, Method, Network, Objective, Outcome
from bayesrnn.random import RandomStreams
from bayesrnn.runs.config import resolve
from bayesrnn.runs.load import load_network
from bayesrnn.runs.start import RunArguments, train_run
from bayesrnn.runs.task import Task, TrainedRun
from bayesrnn.tasks.mnist.config import PIXELS, MnistConfig, mnist_defaults
from bayesrnn.tasks.mnist.data import (
    Images,
    ImageSet,
    ShuffledBatches,
    available_images,
    load_images,
)
from bayesrnn.tasks.mnist.model import MLP
from bayesrnn.uncertainty.metrics import classification

_CLASSES = 10


def _initialise(module: nn.Module, generator: torch.Generator) -> None:
    assert isinstance(module, MLP)
    module.initialise(generator)


HINTS = Hints(sigma_init={"*": absolute(0.02)}, initialise=_initialise)


class MnistTask(Task[MnistConfig, Images]):
    """Learn which digit an image shows (Blundell et al. 2015, section 5.1)."""

    name: ClassVar[str] = MnistConfig.task

    def resolve(
        self, given: Mapping[str, Any], file: Mapping[str, Any] | None = None
    ) -> MnistConfig:
        """A full configuration; `auto` becomes the name of the images that were found."""
        config = resolve(MnistConfig, mnist_defaults, given, file)
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

    def files(self, data: Images) -> dict[str, str]:
        """None: the configuration says all."""
        del data
        return {}

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
    ) -> "WhichDigit":
        """Tell the digits of the training images."""
        train, valid = on_device(data.train, device), on_device(data.valid, device)
        return WhichDigit(train, valid, config.batch_size, config.seed, method, net)


@dataclass(frozen=True)
class WhichDigit:
    """What the training loop knows of a classifier of digits."""

    train: ImageSet
    valid: ImageSet
    batch_size: int
    seed: int
    method: Method[Any]
    net: nn.Module

    unit: ClassVar[str] = "image"
    measure: ClassVar[str] = "error"

    def minibatches(self, epoch: int) -> ShuffledBatches:
        """The training images in another order in every epoch."""
        return ShuffledBatches(self.train, self.batch_size, self.seed, epoch)

    def objective(self, batch: Batch, state: Any) -> Objective:
        """The mean loss of a minibatch; there is no state."""
        del state

        def objective(network: Network) -> Outcome:
            return Outcome(F.cross_entropy(network(batch.inputs), batch.targets), None)

        return objective

    def figures(self, nll: float) -> dict[str, float]:
        """The loss itself."""
        return {"nll": nll}

    def validate(self) -> dict[str, float]:
        """How well the mean weights classify the validation images."""
        return asdict(classification(self.method, self.net, self.valid.images, self.valid.labels))


def train_mnist(arguments: RunArguments, given: Mapping[str, Any]) -> Path:
    """Train a classifier of digits, or continue to; gives the folder of the run."""
    return train_run(MnistTask(), arguments, given)


def load_mnist_run(
    path: Path, checkpoint: str = "best", device: str = "auto"
) -> TrainedRun[MnistConfig]:
    """Load a trained classifier of digits from the folder of its run."""
    return load_network(MnistTask(), path, checkpoint, device)


def on_device(images: ImageSet, device: torch.device) -> ImageSet:
    """The same images on a device."""
    return ImageSet(images.images.to(device), images.labels.to(device))
