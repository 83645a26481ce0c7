"""The configuration of a classifier of digits."""

from dataclasses import dataclass, replace
from typing import ClassVar

from bayesrnn.options import option
from bayesrnn.runs.config import DEEPEST, WIDEST, Recipe, Recipes, TrainingConfig

PIXELS = {"mnist": 28 * 28, "digits": 8 * 8}

_DEFAULT = Recipe(
    epochs=20, hold_epochs=10, decay=0.8, lr=1e-3, clip=5.0, batch_size=128, optimizer="adam"
)
_AVERAGED = replace(_DEFAULT, epochs=40, hold_epochs=20, decay=0.85, average=0.999)
_BBB = replace(
    _AVERAGED,
    options={"prior": "fitted", "sigma_lr": 1.0, "prior_step": "natural", "kl_weight": 0.06},
)
#: Methods with an optimiser of their own have learning rates of their own.
RECIPES = Recipes(
    default=_DEFAULT,
    by_method={
        "bbb": _BBB,
        "dropout": replace(_AVERAGED, options={"dropout": 0.2}),
        "sgld": replace(_DEFAULT, lr=0.3, options={"temperature": 1e-3}),
        "psgld": replace(_DEFAULT, options={"temperature": 1e-3}),
        "ivon": replace(
            _DEFAULT, lr=0.3, options={"prior_sigma": 0.5, "hess_init": 0.1, "beta2": 0.9995}
        ),
    },
    # Blundell et al. (2015): the KL in full, widths at the rate of the means.
    paper={"bbb": _DEFAULT},
)


@dataclass(frozen=True)
class MnistConfig(TrainingConfig):
    """Everything needed to train a classifier of digits, and to train it again."""

    task: ClassVar[str] = "mnist"

    images: str = option(
        "auto",
        "mnist: the four original files in the folder mnist of --data-dir; digits: the 8x8 digits "
        "that come with scikit-learn (an extra); auto: mnist if it is there, else digits",
        choices=("auto", *PIXELS),
    )
    hidden: int = option(400, "units per hidden layer", gt=0, le=WIDEST)
    layers: int = option(2, "hidden layers", gt=0, le=DEEPEST)
