"""Sizes of language models, and how each method trains them unless told otherwise.

Networks and schedules of `plain` and `dropout` are those of Zaremba et al. (2014); `bbb` and
`sharpened` follow the code that Fortunato et al. released. `tiny` is our own: minutes on two cores.
"""

from dataclasses import dataclass, replace

from bayesrnn.tasks.configuration import Recipe


@dataclass(frozen=True)
class Size:
    """The network of a size."""

    hidden: int
    layers: int


@dataclass(frozen=True, kw_only=True)
class TextRecipe(Recipe):
    """Settings under which a method is known to train a language model."""

    unroll: int
    #: Initial weights: uniform within +-this, or truncated normals by fan-in if 0.
    init: float


SIZES = {
    "tiny": Size(hidden=200, layers=1),
    "small": Size(hidden=200, layers=2),
    "medium": Size(hidden=650, layers=2),
    "large": Size(hidden=1500, layers=2),
}

_PLAIN = {
    "tiny": TextRecipe(unroll=35, epochs=11, hold_epochs=3, decay=0.5, init=0.1),
    "small": TextRecipe(unroll=20, epochs=13, hold_epochs=4, decay=0.5, init=0.1),
    "medium": TextRecipe(unroll=35, epochs=39, hold_epochs=6, decay=0.8, init=0.05),
    "large": TextRecipe(unroll=35, epochs=55, hold_epochs=14, decay=1 / 1.15, init=0.04, clip=10.0),
}
_DROPOUT = {
    "tiny": replace(_PLAIN["tiny"], hold_epochs=7, options={"dropout": 0.5}),
    "small": replace(_PLAIN["medium"], unroll=20, init=0.1, options={"dropout": 0.25}),
    "medium": replace(_PLAIN["medium"], options={"dropout": 0.5}),
    "large": replace(_PLAIN["large"], options={"dropout": 0.65}),
}
_AUTHORS = TextRecipe(unroll=35, epochs=70, hold_epochs=21, decay=0.9, init=0.0)
_BBB = {
    "tiny": replace(_AUTHORS, epochs=11, hold_epochs=7, decay=0.5),
    "small": _AUTHORS,
    "medium": _AUTHORS,
    "large": _AUTHORS,
}
_RECIPES = {"dropout": _DROPOUT, "bbb": _BBB, "sharpened": _BBB}


def recipe_for(method: str, size: str) -> TextRecipe:
    """The recipe of a method at a size; methods without one of their own train like `plain`."""
    return _RECIPES.get(method, _PLAIN)[size]
