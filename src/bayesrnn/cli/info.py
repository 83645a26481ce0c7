"""`bayesrnn info`: what the program runs with, for a bug report or before a long training."""

import os
import platform
import warnings
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch

import bayesrnn
from bayesrnn.core.kernel.library import load_library
from bayesrnn.data.files import find_published
from bayesrnn.errors import BayesRNNWarning
from bayesrnn.options import CheckedOptions, option
from bayesrnn.runs.devices import available_devices
from bayesrnn.runs.options import command
from bayesrnn.tasks import TASKS

#: Packages that have to be there, and one of each extra.
_PACKAGES = ("torch", "numpy", "safetensors", "tyro")
_EXTRAS = {
    "bpe": "tokenizers",
    "captions": "efficientnet_lite_pytorch",
    "digits": "scikit-learn",
    "ivon": "ivon-opt",
    "onnx": "onnx",
    "plot": "matplotlib",
    "search": "optuna",
    "serve": "starlette",
    "tensorboard": "tensorboard",
}


@dataclass(frozen=True, kw_only=True)
class InfoOptions(CheckedOptions):
    """Where to look."""

    data_dir: Path | None = option(
        None, "folder with data sets (default: the environment variable BAYESRNN_DATA)"
    )


@command(InfoOptions)
def show_info(options: InfoOptions) -> None:
    """Show versions, the compiled kernel, threads, devices, and which data sets are found."""
    for label, value in {**_software(), **_machine(), **_data(options.data_dir)}.items():
        print(f"{label:<20} {value}")


def _software() -> dict[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayesRNNWarning)  # it is said below
        kernel = load_library().origin
    return {
        "bayesrnn": f"{bayesrnn.__version__}, in {Path(bayesrnn.__file__).parent}",
        "python": f"{platform.python_version()}, {platform.platform()}",
        **{name: _version(name) or "not installed" for name in _PACKAGES},
        "kernel": kernel,
        "extras": ", ".join(f"{e} {'yes' if _version(p) else 'no'}" for e, p in _EXTRAS.items()),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _machine() -> dict[str, str]:
    return {
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()} processors",
        "devices": ", ".join(available_devices()),
    }


def _data(data_dir: Path | None) -> dict[str, str]:
    """Where each published data set is, or what was looked for."""
    base = data_dir or os.environ.get("BAYESRNN_DATA")
    found = {"data": str(base) if base else "none; name its folder by --data-dir or BAYESRNN_DATA"}
    for entry in TASKS.entries().values():
        for name, file in entry.data_sets.items():
            path = find_published(file, data_dir)
            found[f"  {name}"] = str(path) if path else f"not found: {file}"
    return found
