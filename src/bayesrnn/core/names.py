"""Parameters by name: patterns that fit them, the several names of tied ones, trees of them."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from torch import Tensor, nn

from bayesrnn.errors import ConfigError

T = TypeVar("T")

#: Layers whose weight has its outputs along the second axis instead of the first.
_OUTPUTS_SECOND = (
    nn.Embedding,
    nn.EmbeddingBag,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)


def as_mapping(value: T | Mapping[str, T]) -> Mapping[str, T]:
    """A mapping from patterns; one value alone is that of all names."""
    return value if isinstance(value, Mapping) else {"*": value}


def aliases_of(module: nn.Module) -> dict[str, list[str]]:
    """All names of each parameter, under the first one: tied parameters have several."""
    first = {id(parameter): name for name, parameter in module.named_parameters()}
    aliases: dict[str, list[str]] = {name: [] for name in first.values()}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        aliases[first[id(parameter)]].append(name)
    return aliases


def matching(names: Iterable[str], patterns: Iterable[str]) -> str | None:
    """The first pattern that fits one of the names."""
    names = list(names)
    fitting = (p for p in patterns if any(fnmatchcase(name, p) for name in names))
    return next(fitting, None)


def required(names: Sequence[str], patterns: Iterable[str], what: str) -> str:
    """The first pattern that fits one of the names; an error if there is none."""
    pattern = matching(names, patterns)
    if pattern is None:
        raise ConfigError(
            f"no {what} is given for {names[0]}; add a pattern that fits it, or '*' for the rest"
        )
    return pattern


def require_matches(what: str, patterns: Iterable[str], names: Sequence[str]) -> None:
    """An error if a pattern fits none of the names."""
    for pattern in patterns:
        if pattern != "*" and matching(names, [pattern]) is None:
            raise ConfigError(
                f"{what} names {pattern!r}, which fits no parameter; there are: {', '.join(names)}"
            )


def output_axis(module: nn.Module, name: str, parameter: Tensor) -> int:
    """The axis of a parameter along which the weights that leave one unit lie."""
    owner = module.get_submodule(name.rpartition(".")[0])
    return 1 if isinstance(owner, _OUTPUTS_SECOND) and parameter.dim() > 1 else 0


def padding_row(module: nn.Module, names: Sequence[str]) -> int | None:
    """The row of an embedding that stands for no word, if nothing else uses its matrix."""
    owner = module.get_submodule(names[0].rpartition(".")[0])
    if len(names) > 1 or not isinstance(owner, nn.Embedding | nn.EmbeddingBag):
        return None
    return owner.padding_idx


def place(tree: nn.Module, name: str, value: Tensor) -> None:
    """Register a parameter, or a tensor as a buffer, under a dotted name, growing submodules."""
    *path, leaf = name.split(".")
    for part in path:
        if part not in tree._modules:
            tree.add_module(part, nn.Module())
        tree = tree.get_submodule(part)
    if isinstance(value, nn.Parameter):
        tree.register_parameter(leaf, value)
    else:
        tree.register_buffer(leaf, value)


def drop_aliases(net: Any, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Leave out of a state_dict all names but the first of tied parameters."""
    for names in net._aliases.values():
        for name in names[1:]:
            state.pop(f"{prefix}loc.{name}", None)


def restore_aliases(net: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Give tied parameters of a state_dict all of their names again."""
    for first, *others in net._aliases.values():
        for name in others:
            if f"{prefix}loc.{first}" in state:
                state.setdefault(f"{prefix}loc.{name}", state[f"{prefix}loc.{first}"])
