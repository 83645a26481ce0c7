"""The configuration of the sentiment task: what the user gives, and what the recipe adds."""

from dataclasses import dataclass, replace
from typing import ClassVar

from bayesrnn.nn.recurrent import CELLS
from bayesrnn.options import option
from bayesrnn.runs.config import DEEPEST, WIDEST, Recipe, Recipes, TrainingConfig
from bayesrnn.tasks.sentiment.data import SCALE_DATA
from bayesrnn.tasks.sentiment.tables import DELIMITERS, TARGET_KINDS


@dataclass(frozen=True)
class SentimentConfig(TrainingConfig):
    """Everything needed to train a text predictor, and to train it again."""

    task: ClassVar[str] = "sentiment"
    data_names: ClassVar[tuple[str, ...]] = (SCALE_DATA,)

    data: str = option(
        SCALE_DATA,
        "what to learn: scale, the 5,006 film reviews of Pang & Lee (2005) in the folder scaledata "
        "of --data-dir, or a CSV file of your own (UTF-8, with a header line)",
    )
    text_column: str | None = option(
        None, "the column of a CSV file with the texts (default: text, or the other one of two)"
    )
    target_column: str | None = option(
        None,
        "the column to predict (default: rating, score, number, label or target, or the other one "
        "of two)",
    )
    target: str = option(
        "auto",
        "what is predicted; auto: numbers if more than half of the targets are, and then one that "
        "is not is an error; else labels",
        choices=TARGET_KINDS,
    )
    delimiter: str | None = option(
        None,
        "what stands between the columns of a CSV file (default: as its header line has it); where "
        "it is no comma, numbers may have a decimal comma",
        choices=DELIMITERS,
    )
    vocabulary_limit: int = option(20_000, "keep only the most frequent words", gt=0)
    unknown_words: float | None = option(
        None,
        "in training, replace some words of each segment by <unk>, mostly few and at most this "
        "share, others in every epoch, so that unknown words come to mean that little is known "
        "(default: by recipe)",
        ge=0,
        le=1,
    )
    noise: str | None = option(
        None,
        "of predicted numbers: constant, or growing with the share of a text's words that are "
        "unknown, which widens the intervals of texts that it knows little of (default: by recipe)",
        choices=("constant", "unknown-words"),
    )
    segment: int = option(200, "longest segment, in words, that texts are cut into", gt=0)
    cell: str = option("lstm", "kind of recurrent layer", choices=CELLS)
    hidden: int = option(128, "units per layer and embedding width", gt=0, le=WIDEST)
    layers: int = option(1, "recurrent layers", gt=0, le=DEEPEST)
    init: float = option(
        None, "initial weights within +- this, 0 for normals by fan-in (default: by recipe)", ge=0
    )


_PLAIN = Recipe(
    epochs=20,
    hold_epochs=20,
    decay=1.0,
    lr=1e-3,
    clip=5.0,
    batch_size=128,
    optimizer="adam",
    values={"init": 0.1, "unknown_words": 1.0, "noise": "unknown-words"},
)
#: Ten thousand segments move few of 2.7 million weights away from the prior: with more of the KL,
#: or with as much of it at the start, nothing is learnt.
_BBB = replace(
    _PLAIN,
    hold_epochs=12,
    decay=0.8,
    average=0.99,
    kl_warmup=8.0,
    options={"prior": "fitted", "sigma_lr": 1.0, "sigma_scale": 0.05, "kl_weight": 0.006},
)
#: Half of everything dropped for a whole sequence, words included, leaves too little to learn from
#: in twenty epochs; and so does a prior that shrinks weights which rare words move seldom.
_MASKS = replace(_PLAIN, options={"dropout": 0.25, "length_scale": 0.1})
RECIPES = Recipes(default=_PLAIN, by_method={"bbb": _BBB, "variational-dropout": _MASKS})
