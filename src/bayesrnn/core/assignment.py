"""What each parameter of a module gets when its weights become Bayesian: a prior, a first width."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bayesrnn.core.init import Scale, absolute, relative
from bayesrnn.core.names import (
    as_mapping,
    matching,
    output_axis,
    padding_row,
    require_matches,
    required,
)
from bayesrnn.core.posterior import PriorTerm
from bayesrnn.core.priors import Prior, ScaleMixture
from bayesrnn.errors import ConfigError


class Assigned(NamedTuple):
    """One Bayesian parameter: its prior, its first standard deviations, its padding row."""

    term: PriorTerm
    sigma: Tensor
    padding: int | None


def assign(
    module: nn.Module,
    aliases: Mapping[str, Sequence[str]],
    prior: Prior | Mapping[str, Prior] | None,
    sigma_init: float | Scale | Mapping[str, float | Scale] | None,
    deterministic: Sequence[str],
    min_sigma: float,
    generator: torch.Generator | None,
) -> dict[str, Assigned]:
    """The parameters that become Bayesian, by name; the arguments are those of `Bayesian`."""
    if isinstance(deterministic, str):
        deterministic = (deterministic,)
    priors = as_mapping(ScaleMixture() if prior is None else prior)
    scales: Mapping[str, float | Scale] = as_mapping(
        relative(0.25, 0.5) if sigma_init is None else sigma_init
    )
    everything = [name for names in aliases.values() for name in names]
    given = {"deterministic": deterministic, "prior": priors, "sigma_init": scales}
    for what, patterns in given.items():
        require_matches(what, patterns, everything)
    for value in priors.values():
        if not isinstance(value, Prior):
            raise ConfigError(
                f"prior is {value!r}; it has to be a prior such as ScaleMixture() or "
                "Gaussian(1.0), or a mapping from names to priors"
            )
    if min_sigma < 0:
        raise ConfigError(f"min_sigma is {min_sigma:g}; it has to be 0 or more")
    assigned = {}
    for name, parameter in module.named_parameters():
        names = aliases[name]
        if not parameter.requires_grad or not parameter.numel():
            continue
        padding = padding_row(module, names)
        if matching(names, deterministic) is not None or (padding == 0 and len(parameter) == 1):
            continue
        chosen = priors[required(names, priors, "prior")]
        scale = scales[required(names, scales, "sigma_init")]
        scale = scale if isinstance(scale, Scale) else absolute(scale)
        sigma = scale.draw(parameter, chosen, generator)
        if bool((sigma <= min_sigma).any()):
            raise ConfigError(
                f"sigma_init {scale} starts {name} below min_sigma, {min_sigma:g}; "
                "give a larger one"
            )
        term = PriorTerm(chosen, output_axis(module, name, parameter))
        assigned[name] = Assigned(term, sigma, padding)
    if not assigned:
        raise ConfigError("no parameter is left to be Bayesian: all are deterministic or frozen")
    return assigned
