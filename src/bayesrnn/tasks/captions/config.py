"""The configuration of a captioner: what the user gives, and what the recipe adds."""

from dataclasses import dataclass, replace
from typing import ClassVar

from bayesrnn.nn.recurrent import CELLS
from bayesrnn.options import option
from bayesrnn.runs.config import DEEPEST, WIDEST, Recipe, Recipes, TrainingConfig
from bayesrnn.tasks.captions.data import FLICKR8K


@dataclass(frozen=True)
class CaptionsConfig(TrainingConfig):
    """Everything needed to train a captioner, and to train it again."""

    task: ClassVar[str] = "captions"

    data: str = option(
        FLICKR8K,
        "what to learn: flickr8k, 6,000 images with five captions each, in the folder flickr8k of "
        "--data-dir with the features of the images",
        choices=(FLICKR8K,),
    )
    cell: str = option("lstm", "kind of recurrent layer", choices=CELLS)
    hidden: int = option(512, "units per layer and embedding width", gt=0, le=WIDEST)
    layers: int = option(1, "recurrent layers", gt=0, le=DEEPEST)
    feature_norm: float = option(
        None, "the length that an image's features are scaled to (default: by recipe)", gt=0
    )
    init: float = option(
        None, "initial weights within +- this, 0 for normals by fan-in (default: by recipe)", ge=0
    )


_PLAIN = Recipe(
    epochs=8,
    hold_epochs=4,
    decay=0.6,
    lr=1e-3,
    batch_size=128,
    optimizer="adam",
    values={"feature_norm": 10.0, "init": 0.1},
)
_MASKS = replace(_PLAIN, epochs=10, decay=0.7, lr=2e-3)
_DROPOUT = replace(
    _PLAIN,
    epochs=10,
    hold_epochs=6,
    decay=0.65,
    lr=2e-3,
    average=0.998,
    options={"dropout": 0.5},
)
#: Five million weights and 350,000 words: with half of the KL it learns too slowly. Widths that
#: start at the usual size are learnt too, but too late for ten epochs.
_BBB = replace(
    _DROPOUT,
    options={
        "prior": "fitted",
        "sigma_lr": 1.0,
        "sigma_scale": 0.27,
        "prior_step": "natural",
        "kl_weight": 0.2,
    },
)
#: Rates of methods with an optimiser of their own: those of language models, hardly tried here.
_COLD = {"prior_sigma": 0.5, "temperature": 1e-3}
RECIPES = Recipes(
    default=_PLAIN,
    by_method={
        "dropout": _DROPOUT,
        "variational-dropout": replace(_MASKS, options={"dropout": 0.25, "embedding_dropout": 0.1}),
        "dropconnect": _MASKS,
        "bbb": _BBB,
        "sgld": replace(_PLAIN, lr=1.0, options=_COLD),
        "psgld": replace(_PLAIN, lr=0.01, options={**_COLD, "damping": 0.01}),
        "ivon": replace(_PLAIN, lr=1.0, clip=10.0, options={"prior_sigma": 0.5}),
    },
)
