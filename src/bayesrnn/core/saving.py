"""One file for a posterior: its tensors as safetensors, priors and settings as JSON beside them.

Nothing in it is executable, and it is written whole or not at all. The network itself is code of
the user's, and is made again before it is loaded.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bayesrnn.core.posterior import PriorTerm
from bayesrnn.core.priors import FittedGaussian, Gaussian, Prior, ScaleMixture
from bayesrnn.core.sharpening import Sharpening
from bayesrnn.durable import explained, write_durably
from bayesrnn.errors import ConfigError, RunError

_KEY, _VERSION = "bayesrnn-posterior", 1

#: The priors that can be told in JSON, with the arguments that make them, which are attributes.
_PRIORS: Mapping[type[Prior], tuple[str, ...]] = {
    Gaussian: ("sigma",),
    FittedGaussian: ("per", "a", "b", "std"),
    ScaleMixture: ("pi", "sigma1", "sigma2", "per"),
}
_KINDS = {kind.__name__: kind for kind in _PRIORS}


class Settings(NamedTuple):
    """What a posterior is made of beside its tensors."""

    terms: Mapping[str, PriorTerm]
    min_sigma: float
    sharpening: Sharpening | None


class Saved(NamedTuple):
    """What a file holds: the prior of each name, None for one of the user's own."""

    tensors: dict[str, Tensor]
    priors: dict[str, Prior | None]
    min_sigma: float
    sharpening: Sharpening | None


def save(path: Path, tensors: Mapping[str, Tensor], settings: Settings) -> None:
    """Write a posterior; one with a NaN or an infinity in it is refused."""
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise RunError(f"{name} holds a NaN or an infinity; nothing was written to {path}")
    sharpening = settings.sharpening
    manifest = {
        "version": _VERSION,
        "priors": {name: _described(term.prior) for name, term in settings.terms.items()},
        "min_sigma": settings.min_sigma,
        "sharpening": None if sharpening is None else asdict(sharpening),
    }
    # Tied tensors of a module share memory, which the format does not know.
    separate = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
    data = safetensors.torch.save(separate, {_KEY: json.dumps(manifest)})
    write_durably(path, data)


def read(path: Path) -> Saved:
    """Read what `save` wrote."""
    with explained(f"read {path}", "give the file that net.save wrote"):
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path} is not a file; give the file that net.save wrote")
        path.open("rb").close()
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if text is None:
            raise ConfigError(
                f"{path} is a safetensors file, but not one of a posterior; give one that net.save "
                "wrote"
            )
        manifest = json.loads(text)
        if manifest["version"] > _VERSION:
            raise ConfigError(
                f"{path} is of a later version of bayesrnn (format {manifest['version']}); update "
                "bayesrnn to read it"
            )
        priors = {name: _made(told) for name, told in manifest["priors"].items()}
        sharpening = manifest["sharpening"]
        return Saved(
            tensors,
            priors,
            float(manifest["min_sigma"]),
            None
            if sharpening is None
            else Sharpening(**{**sharpening, "names": tuple(sharpening["names"])}),
        )
    except (
        *(SafetensorError, ValueError, KeyError, TypeError, AttributeError),
        *(RecursionError, OverflowError),
    ) as error:
        raise ConfigError(f"{path} is damaged, or no file of net.save: {error}") from error


def _described(prior: Prior) -> dict[str, Any] | None:
    """The prior in JSON; None for a class of the user's own, whose code is not saved."""
    arguments = _PRIORS.get(type(prior))
    if arguments is None:
        return None
    return {"kind": type(prior).__name__, **{name: getattr(prior, name) for name in arguments}}


def _made(told: Mapping[str, Any] | None) -> Prior | None:
    if told is None:
        return None
    arguments = dict(told)
    return _KINDS[arguments.pop("kind")](**arguments)
