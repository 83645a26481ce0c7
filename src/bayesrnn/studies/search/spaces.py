"""The spaces that have names: the paper's own search, and a wide one of a method's options."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.options import Option, flag
from bayesrnn.runs.config import TrainingConfig
from bayesrnn.runs.task import Task
from bayesrnn.studies.search.space import Dimension, Space, read_space, searchable

#: The values that Fortunato et al. (2017, section 6) searched.
_GRID: Final = {
    "prior_pi": (0.25, 0.5, 0.75),
    "prior_sigma1": tuple(math.exp(power) for power in (0, -1, -2)),
    "prior_sigma2": tuple(math.exp(power) for power in (-6, -7, -8)),
}
#: They also swept sigma0, and say that 0.02 did well.
_SIGMA0: Final = ("sigma0", 0.02)
#: How far from the recipe the learning rate goes, and so the rate at which it falls.
_NEAR: Final = 2.0
#: How far from its recipe an option of the wide space goes, and how near to an end that it must
#: not reach, as a share of its range.
_FAR, _MARGIN = 10.0, 0.05


def find_space(name: str, task: Task[Any, Any], given: Mapping[str, Any]) -> Space:
    """The space of a name or a file for runs of a task with the options that the user gave.

    The first trial is the recipe, with the settings of its publication where they are known.
    """
    config = task.resolve(given)
    method, known = config.method, searchable(task, config.method, config.options)
    if name == "paper":
        space = _paper(task, method, given, known)
    elif name == "wide":
        space = _wide(config, given, known)
    else:
        space = read_space(Path(name), task, method, known)
    for dimension in space.dimensions:
        if dimension.name in given:
            raise ConfigError(
                f"{flag(dimension.name)} is given, but the space {name} searches it; leave it out, "
                "or give the file of a space without it"
            )
    for held, value in space.held.items():
        if given.get(held, value) != value:
            raise ConfigError(
                f"{flag(held)} is {given[held]}, but the space {name} holds it at {value}; leave "
                "it out, or give another space"
            )
    recipe = _settings(task.resolve({**given, **space.held}))
    begin = {one.name: recipe[one.name] for one in space.dimensions}
    inside = all(one.contains(begin[one.name]) for one in space.dimensions)
    grid = [point for each in space.first if (point := {**begin, **each}) != begin]
    return replace(space, first=(*([begin] if inside else []), *grid))


def _settings(config: TrainingConfig) -> dict[str, Any]:
    """All options of a configuration, the method's among them."""
    return {**vars(config), **config.options}


def _paper(
    task: Task[Any, Any], method: str, given: Mapping[str, Any], known: Mapping[str, Option]
) -> Space:
    if not _GRID.keys() <= known.keys():
        have = [name for name in METHODS if _GRID.keys() <= searchable(task, name, {}).keys()]
        raise ConfigError(
            f"--space is paper, which searches the mixture prior, but the method {method} has "
            f"none; give --method {' or '.join(have)}, or --space wide"
        )
    held: dict[str, Any] = {"prior": "mixture"}
    if task.recipes.is_published(METHODS[method].recipe_names({})) and "recipe" not in given:
        held["recipe"] = "paper"
    recipe = _settings(task.resolve({**given, **held}))
    dimensions = [
        Dimension("prior_pi", min(_GRID["prior_pi"]), max(_GRID["prior_pi"])),
        *(
            Dimension(name, min(_GRID[name]), max(_GRID[name]), log=True)
            for name in ("prior_sigma1", "prior_sigma2")
        ),
    ]
    if _SIGMA0[0] in known:
        name, middle = _SIGMA0
        dimensions.append(Dimension(name, middle / _NEAR**2, middle * _NEAR**2, log=True))
    dimensions += _course(recipe, given)
    grid = tuple(dict(zip(_GRID, values, strict=True)) for values in product(*_GRID.values()))
    return Space(tuple(dimensions), held, grid)


def _wide(config: TrainingConfig, given: Mapping[str, Any], known: Mapping[str, Option]) -> Space:
    recipe = _settings(config)
    own = [known[name] for name in config.options if name in known and name not in given]
    found = [_around(item, recipe[item.name]) for item in own]
    dimensions = [*(one for one in found if one is not None), *_course(recipe, given)]
    return Space(tuple(dimensions), {})


def _course(recipe: Mapping[str, Any], given: Mapping[str, Any]) -> list[Dimension]:
    """The learning rate, and how fast it falls."""
    lr, decay = recipe["lr"], recipe["decay"]
    ends = sorted((decay**_NEAR, decay ** (1 / _NEAR)))
    made = [Dimension("lr", lr / _NEAR, lr * _NEAR, log=True)]
    made += [Dimension("decay", *ends)] if ends[0] < ends[1] else []
    return [one for one in made if one.name not in given]


def _around(item: Option, value: Any) -> Dimension | None:
    """The dimension of an option, by what it says of itself; None where that is too little.

    Whole numbers are left out: they mostly say how much is computed, such as members of an
    ensemble, and more is better.
    """
    if item.kind is bool:
        return Dimension(item.name, choices=(False, True))
    if item.choices:
        return Dimension(item.name, choices=item.choices)
    if item.kind is not float or item.is_list:
        return None
    low = item.gt if item.ge is None else item.ge
    high = item.lt if item.le is None else item.le
    if low is not None and high is not None:
        margin = _MARGIN * (high - low)
        least = low if item.ge is not None else low + margin
        most = high if item.le is not None else high - margin
        return Dimension(item.name, least, most)
    if low == 0 and isinstance(value, float) and value > 0:
        return Dimension(item.name, value / _FAR, value * _FAR, log=True)
    return None
