"""The MNIST task: a feed-forward network that tells handwritten digits apart."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from bayesrnn.core import absolute
from bayesrnn.data import Batch, Images, ImageSet, ShuffledBatches, available_images, load_images
from bayesrnn.evaluation import classification
from bayesrnn.methods import Hints, Method, Network, Objective, Outcome, option
from bayesrnn.nn import MLP
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.configuration import Defaults, Recipe, TrainingConfig, resolve
from bayesrnn.tasks.runs import RunArguments, Task, TrainedRun, load_network, train_run

_PIXELS = {"mnist": 28 * 28, "digits": 8 * 8}
_CLASSES = 10


def _initialise(module: nn.Module, generator: torch.Generator) -> None:
    assert isinstance(module, MLP)
    module.initialise(generator)


HINTS = Hints(sigma_init={"*": absolute(0.02)}, initialise=_initialise)

_RECIPE = Recipe(
    epochs=20, hold_epochs=10, decay=0.8, lr=1e-3, clip=5.0, batch_size=128, optimizer="adam"
)
#: Methods with an optimiser of their own have learning rates of their own; see also `recipes.py`.
_RECIPES = {
    "sgld": replace(_RECIPE, lr=0.3, options={"temperature": 1e-3}),
    "psgld": replace(_RECIPE, options={"temperature": 1e-3}),
    "ivon": replace(
        _RECIPE, lr=0.3, options={"prior_sigma": 0.5, "hess_init": 0.1, "beta2": 0.9995}
    ),
}


@dataclass(frozen=True)
class MnistConfig(TrainingConfig):
    """Everything needed to train a classifier of digits, and to train it again."""

    task: ClassVar[str] = "mnist"

    images: str = option(
        "auto",
        "mnist: the four original files in the folder mnist of --data-dir; digits: the 8x8 digits "
        "that come with scikit-learn (an extra); auto: mnist if it is there, else digits",
        ("auto", *_PIXELS),
    )
    hidden: int = option(400, "units per hidden layer")
    layers: int = option(2, "hidden layers")


class MnistTask(Task[MnistConfig, Images]):
    """Learn which digit an image shows (Blundell et al. 2015, section 5.1)."""

    name: ClassVar[str] = MnistConfig.task

    def resolve(
        self, given: Mapping[str, Any], file: Mapping[str, Any] | None = None
    ) -> MnistConfig:
        """A full configuration; `auto` becomes the name of the images that were found."""
        config = resolve(MnistConfig, _defaults, given, file)
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
        module = MLP(_PIXELS[config.images], _CLASSES, config.hidden, config.layers)
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


def _defaults(values: Mapping[str, Any]) -> Defaults:
    return _RECIPES.get(values["method"], _RECIPE).defaults(values)


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
