"""load: a posterior from the file that `Bayesian.save` wrote."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.priors import Prior
from bayesrnn.core.saving import read
from bayesrnn.errors import ConfigError


def load(
    path: str | Path, module: nn.Module, prior: Prior | Mapping[str, Prior] | None = None
) -> Bayesian:
    """The posterior that `net.save(path)` wrote, around a module like the one it was made for.

        net = br.load("posterior.safetensors", MyModule())

    Means, widths, dropped weights, priors and settings are those of the file; the network is in
    training mode, as any that is new.

    prior: in place of those of the file; needed where they are classes of your own.
    """
    saved = read(Path(path))
    parameters = dict(module.named_parameters())
    missing = [name for name in saved.priors if name not in parameters]
    if missing:
        raise ConfigError(
            f"{path} has a posterior of {', '.join(missing)}, and this {type(module).__name__} has "
            f"no such parameters; it has: {', '.join(parameters)}"
        )
    priors = {name: found for name, found in saved.priors.items() if found is not None}
    if prior is None and len(priors) < len(saved.priors):
        own = [name for name in saved.priors if name not in priors]
        raise ConfigError(
            f"the prior of {', '.join(own)} is a class of your own, which {path} cannot hold; give "
            "it as prior="
        )
    net = Bayesian(
        module,
        priors if prior is None else prior,
        # Above the floor; the widths of the file come in their place.
        sigma_init=2 * saved.min_sigma + 0.01,
        deterministic=[name for name in parameters if name not in saved.priors],
        min_sigma=saved.min_sigma,
        sharpening=saved.sharpening,
    )
    _require_same_shapes(path, saved.tensors, net)
    net.load_state_dict(saved.tensors)
    return net


def _require_same_shapes(path: str | Path, tensors: Mapping[str, Tensor], net: Bayesian) -> None:
    """Name the first tensor that the file and the network do not share."""
    here = net.state_dict()
    for name in [*here, *tensors]:
        shapes = [
            str(list(found[name].shape)) if name in found else "not there"
            for found in (tensors, here)
        ]
        if shapes[0] != shapes[1]:
            raise ConfigError(
                f"{path} was saved of another network than this {type(net.module).__name__}: "
                f"{name} is {shapes[0]} in the file and {shapes[1]} here"
            )
