"""Images of digits by name."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bayesrnn.data.batches import Batch, Examples
from bayesrnn.data.files import find_published, published_file, read_bytes
from bayesrnn.errors import CorpusError, MissingExtraError

IMAGE_NAMES: Final = ("mnist", "digits")
#: Pixels are divided by this, as in Blundell et al. (2015).
_SCALE = 126
#: The brightest that a pixel can be.
BRIGHTEST: Final = 255 / _SCALE

_MNIST_SIZES = (50_000, 10_000, 10_000)
_MNIST_FILES = (
    "mnist/train-images-idx3-ubyte",
    "mnist/train-labels-idx1-ubyte",
    "mnist/t10k-images-idx3-ubyte",
    "mnist/t10k-labels-idx1-ubyte",
)
_TEST_IMAGES = "t10k-images-idx3-ubyte"
_PUT_BACK = "put the original file of MNIST there"


@dataclass(frozen=True)
class ImageSet(Examples[Batch]):
    """Images, float32 `[examples, pixels]`, and what they show, int64 `[examples]`."""

    noun: ClassVar[str] = "images"

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise CorpusError(
                f"there are {len(self.images):,} images and {len(self.labels):,} labels; "
                "give one label for each image"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> ImageSet:
        """The same images on a device."""
        return ImageSet(self.images.to(device), self.labels.to(device))

    def batch(self, chosen: Tensor) -> Batch:
        """Inputs `[batch, pixels]` and targets `[batch]`."""
        return Batch(self.images[chosen], self.labels[chosen])


@dataclass(frozen=True)
class Images:
    """Images to train on, to validate with and to test with, of `classes` kinds."""

    name: str
    classes: int
    train: ImageSet
    valid: ImageSet
    test: ImageSet


def load_images(name: str | None = None, data_dir: Path | None = None) -> Images:
    """Load a set of images by name: "mnist" or "digits".

    mnist: the four original files, plain or .gz, in the folder mnist under `data_dir`, or else
        under the folder in the environment variable BAYESRNN_DATA. As in Blundell et al. (2015),
        the last 10,000 of its 60,000 training images validate, and pixels are divided by 126.
    digits: the 1,797 images of 8 x 8 pixels that come with scikit-learn (an extra), always split
        in the same way into 1,197 / 300 / 300. Pixels are scaled to the same range, 0 to 255/126.
    None or "auto": what `available_images` finds.
    """
    if name in (None, "auto"):
        name = available_images(data_dir)
    if name == "mnist":
        return _mnist(data_dir)
    if name == "digits":
        return _digits()
    raise CorpusError(
        f"{name!r} is not a known set of images; give one of {', '.join(IMAGE_NAMES)} or auto"
    )


def available_images(data_dir: Path | None = None) -> str:
    """The name of the images that are there: mnist if one of its files is, else digits."""
    if any(find_published(file, data_dir) for file in _MNIST_FILES):
        return "mnist"
    if importlib.util.find_spec("sklearn"):
        return "digits"
    raise CorpusError(
        "no images were found: put the four files of MNIST into the folder mnist of a data "
        "folder and give it with --data-dir or BAYESRNN_DATA, or get the small digits of "
        "scikit-learn with: pip install 'bayesrnn[digits]'"
    )


def _mnist(data_dir: Path | None) -> Images:
    train_size, valid_size, test_size = _MNIST_SIZES
    paths = [published_file("mnist", file, data_dir) for file in _MNIST_FILES]
    both = _mnist_set(paths[0], paths[1], train_size + valid_size)
    test = _mnist_set(paths[2], paths[3], test_size)
    train = ImageSet(both.images[:train_size], both.labels[:train_size])
    valid = ImageSet(both.images[train_size:], both.labels[train_size:])
    return Images("mnist", 10, train, valid, test)


def _mnist_set(images: Path, labels: Path, size: int) -> ImageSet:
    pixels = read_idx(images, (size, 28, 28)).reshape(size, 28 * 28)
    digits = read_idx(labels, (size,))
    if (wrong := np.flatnonzero(digits > 9)).size:
        raise CorpusError(
            f"{labels} has the label {digits[wrong[0]]} at place {wrong[0]:,}, but labels are 0 to "
            f"9; {_PUT_BACK}"
        )
    return ImageSet(_scaled(pixels), torch.from_numpy(digits.astype(np.int64)))


def _scaled(pixels: npt.NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(np.divide(pixels, _SCALE, dtype=np.float32))


def other_images(folder: Path, pixels: int) -> ImageSet:
    """The test images of a set in MNIST's format, such as Fashion-MNIST; labels are made up.

    folder: holds t10k-images-idx3-ubyte, plain or .gz.
    pixels: of each image.
    """
    path = find_published(_TEST_IMAGES, folder)
    if path is None:
        raise CorpusError(
            f"--shift is {folder}, but there is no {folder / _TEST_IMAGES} (or .gz); give a folder "
            "with the test images of Fashion-MNIST, or of another set in MNIST's format"
        )
    side = math.isqrt(pixels)
    images = read_idx(path, (None, side, side))
    if not len(images):
        raise CorpusError(f"{path} holds no images; give a file with at least one")
    found = _scaled(images.reshape(len(images), pixels))
    return ImageSet(found, torch.zeros(len(found), dtype=torch.long))


def read_idx(path: Path, shape: tuple[int | None, ...]) -> npt.NDArray[np.uint8]:
    """Read a file in MNIST's IDX format, plain or gzip, that has to hold bytes of this shape.

    None in the shape stands for any length.

    The format: two zero bytes, 8 for unsigned bytes, the number of axes, the length of each axis
    as a big-endian number of 32 bits, and the values, the last axis fastest.
    """
    data = read_bytes(path, _PUT_BACK)
    magic, header = bytes([0, 0, 8, len(shape)]), 4 + 4 * len(shape)
    said: tuple[int, ...] = ()
    if len(data) >= header:
        said = tuple(np.frombuffer(data, ">u4", len(shape), offset=4).tolist())
    pairs = zip(said or [0] * len(shape), shape, strict=True)
    known = tuple(there if wanted is None else wanted for there, wanted in pairs)
    size = header + math.prod(known)
    if not magic.startswith(data[:4]):
        problem = f"it starts with the bytes {data[:4].hex(' ')} instead of {magic.hex(' ')}"
    elif said and said != known:
        problem = f"it holds {_times(said)} values instead of {_times(known)}"
    elif len(data) != size:
        problem = f"it has {len(data):,} bytes instead of {size:,}"
    else:
        return np.frombuffer(data, np.uint8, offset=header).reshape(known)
    raise CorpusError(f"{path} is damaged or another file: {problem}; {_PUT_BACK}")


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{length:,}" for length in shape)


def _digits() -> Images:
    try:
        datasets = importlib.import_module("sklearn.datasets")
    except ImportError:
        raise MissingExtraError(
            "the images 'digits' need an extra: pip install 'bayesrnn[digits]'"
        ) from None
    pixels, labels = datasets.load_digits(return_X_y=True)
    images = torch.from_numpy((pixels / 16 * BRIGHTEST).astype(np.float32))
    targets = torch.from_numpy(labels.astype(np.int64))
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(0))
    parts = (order[:-600], order[-600:-300], order[-300:])
    return Images("digits", 10, *(ImageSet(images[part], targets[part]) for part in parts))
