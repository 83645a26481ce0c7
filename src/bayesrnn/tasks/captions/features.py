"""Features of images, which an image network made once, from a file."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bayesrnn.data.files import (
    find_published,
    most_unpacked,
    published_file,
    read_bytes,
    too_much_unpacked,
)
from bayesrnn.durable import write_durably
from bayesrnn.errors import ConfigError, CorpusError

FEATURE_WIDTH: Final = 1280
"""The numbers that EfficientNet-Lite0 gives for an image."""

FEATURES_FILE: Final = "features-efficientnet-lite0.npz"
"""What the file of the features of a folder of images is called."""

_ARRAYS = ("names", "features")
_PUT_BACK = (
    f"give an .npz file with names [images] and features [images, {FEATURE_WIDTH}], one row for "
    "each name"
)


@dataclass(frozen=True)
class ImageFeatures:
    """Features of images: float32 `[images, width]` and the name of the image of each row."""

    source: str
    names: tuple[str, ...]
    features: Tensor

    def missing(self, names: Sequence[str]) -> list[str]:
        """Those of `names` that have no features."""
        have = set(self.names)
        return [name for name in names if name not in have]

    def of(self, names: Sequence[str]) -> Tensor:
        """The features of the images with these names, in their order."""
        if missing := self.missing(names):
            raise CorpusError(
                f"{self.source} has no features for {len(missing):,} of {len(names):,} images: "
                f"{_some(missing)}; make the features of these images, too, or get the whole file"
            )
        rows = {name: row for row, name in enumerate(self.names)}
        return self.features[torch.tensor([rows[name] for name in names], dtype=torch.long)]


def load_features(data: str, data_dir: Path | None = None) -> ImageFeatures:
    """The features of a data set of images, which lie in its folder, plain or .gz."""
    try:
        path = published_file(data, f"{data}/{FEATURES_FILE}", data_dir)
    except CorpusError as error:
        raise CorpusError(f"{error}; `bayesrnn features` makes it of the images") from None
    return read_features(path)


def read_features(path: Path) -> ImageFeatures:
    """The features in a file."""
    try:
        content = io.BytesIO(read_bytes(path))
        with zipfile.ZipFile(content) as packed:
            if sum(part.file_size for part in packed.infolist()) > most_unpacked():
                raise CorpusError(f"{path} {too_much_unpacked()}")
        content.seek(0)
        with np.load(content, allow_pickle=False) as file:
            missing = [name for name in _ARRAYS if name not in file]
            if missing:
                raise CorpusError(
                    f"{path} has no {' and no '.join(missing)}; it has: "
                    f"{', '.join(file) or 'nothing'}; {_PUT_BACK}"
                )
            names, features = (file[name] for name in _ARRAYS)
    except (CorpusError, ConfigError):
        raise
    except Exception as error:  # zipfile, zlib and numpy meet damage with errors of all kinds
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise CorpusError(
            f"{path} is not an .npz file, or damaged ({reason}); {_PUT_BACK}"
        ) from None
    if problem := _problem(names, features):
        raise CorpusError(f"{path}: {problem}; {_PUT_BACK}")
    numbers = torch.from_numpy(features.astype(np.float32))
    return ImageFeatures(str(path), tuple(map(str, names.tolist())), numbers)


def has_features(data: str, data_dir: Path | None = None) -> bool:
    """Whether `load_features` would find a file."""
    return find_published(f"{data}/{FEATURES_FILE}", data_dir) is not None


def write_features(path: Path, names: Sequence[str], features: Tensor) -> None:
    """Write a file as `read_features` takes it, whole or not at all, with 16 bits a number."""
    content = io.BytesIO()
    numbers = features.to("cpu", torch.float16).numpy()
    np.savez(content, names=np.array(names, dtype=np.str_), features=numbers)
    write_durably(path.resolve(), content.getvalue())


def _problem(names: npt.NDArray[Any], features: npt.NDArray[Any]) -> str:
    """What is wrong with the content of a file, or nothing."""
    if names.ndim != 1 or names.dtype.kind != "U":
        return f"names have the shape {list(names.shape)} and the type {names.dtype}, not text"
    if features.ndim != 2 or features.shape[1] != FEATURE_WIDTH:
        width = features.shape[1] if features.ndim == 2 else f"the shape {list(features.shape)}"
        return f"features have {width} instead of {FEATURE_WIDTH} numbers for an image"
    if len(names) != len(features):
        return f"there are {len(names):,} names for the features of {len(features):,} images"
    if not np.issubdtype(features.dtype, np.floating):
        return f"features are of the type {features.dtype}, not floating-point numbers"
    if bad := np.flatnonzero(~np.isfinite(features).all(1)).tolist():
        return f"the features of {len(bad):,} images are not finite: {_some(names[bad].tolist())}"
    if twice := [name for name, count in Counter(names.tolist()).items() if count > 1]:
        return f"{len(twice):,} names are there more than once: {_some(twice)}"
    return ""


def _some(names: Sequence[str]) -> str:
    """The first few of many names."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
