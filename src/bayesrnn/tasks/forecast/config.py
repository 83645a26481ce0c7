"""The configuration of the forecast task: what the user gives, and what the recipe adds."""

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from bayesrnn.nn.recurrent import CELLS
from bayesrnn.options import option
from bayesrnn.runs.config import DEEPEST, WIDEST, Recipe, Recipes, TrainingConfig
from bayesrnn.tasks.forecast.layout import BASES, LIKELIHOODS

#: The name of the series that come with the program.
BIRTHS: Final = "births"


@dataclass(frozen=True)
class ForecastConfig(TrainingConfig):
    """Everything needed to train a forecaster, and to train it again."""

    task: ClassVar[str] = "forecast"
    data_names: ClassVar[tuple[str, ...]] = (BIRTHS,)

    data: str = option(
        BIRTHS,
        "what to learn: births, the births of each day in the United States from 1969 to 1988, "
        "which come with the program, or a CSV file of your own",
    )
    time_col: str | None = option(None, "the column of the dates (default: found by its name)")
    target_col: str | None = option(
        None, "the column to forecast (default: y, target or value, or the only one of numbers)"
    )
    id_col: str | None = option(None, "the column that tells series apart (default: found)")
    date_format: str | None = option(None, "how dates are written, such as %d/%m/%Y")
    freq: str | None = option(None, "the step of the grid, such as day or month (default: found)")
    season: int | None = option(
        None, "values after which a series repeats itself (default: the best one)", ge=1
    )
    wide: bool = option(False, "every column of numbers is a series")
    duplicates: str = option(
        "error",
        "what to do with several values of one date",
        choices=("error", "first", "last", "mean", "sum"),
    )
    known: tuple[str, ...] = option((), "covariates that are known ahead", commas=True)
    past: tuple[str, ...] = option((), "covariates that are known up to now", commas=True)
    static: tuple[str, ...] = option((), "what each series has, and does not change", commas=True)
    horizon: int | None = option(
        None, "steps to forecast (default: a day of hours, 28 days, 12 months)", gt=0
    )
    context: int | None = option(
        None,
        "steps that it reads before it forecasts (default: two seasons, 28 to 96)",
        gt=0,
    )
    lags: tuple[int, ...] | None = option(
        None,
        "how far back inputs reach (default: 1, 2, 3, one and two seasons)",
        ge=1,
        commas=True,
    )
    base: str = option(
        "auto",
        "what the network's output is added to: the value a season ago, the last value, or "
        "nothing; auto: what forecasts the validation windows best by itself",
        choices=("auto", *BASES),
    )
    likelihood: str = option(
        "auto",
        "distribution of a value; auto: negative-binomial of small counts, else student-t",
        choices=("auto", *LIKELIHOODS),
    )
    non_negative: str = option(
        "auto",
        "forecast no value below 0; auto: if the training part has none",
        choices=("auto", "yes", "no"),
    )
    validation_windows: int | None = option(
        None, "windows that choose the best epoch (default: by length, up to 12)", gt=0
    )
    calibration_windows: int | None = option(
        None, "windows after them that intervals are calibrated on (default: up to 20)", ge=0
    )
    test_windows: int | None = option(
        None, "windows at the end that are only tested on (default: by length, up to 20)", gt=0
    )
    windows: int = option(None, "windows of training in an epoch (default: by recipe)", gt=0)
    cell: str = option("lstm", "kind of recurrent layer", choices=CELLS)
    hidden: int = option(64, "units per layer", gt=0, le=WIDEST)
    layers: int = option(1, "recurrent layers", gt=0, le=DEEPEST)


_PLAIN = Recipe(
    epochs=16,
    hold_epochs=8,
    decay=0.75,
    lr=3e-3,
    clip=1000.0,
    batch_size=32,
    optimizer="adam",
    average=0.99,
    values={"windows": 1600},
)
#: Narrower widths at the start fit long series better, and short ones worse.
_BBB = replace(
    _PLAIN,
    options={"prior": "gaussian", "prior_sigma1": 0.3, "sigma_scale": 0.2, "kl_weight": 1.0},
)
RECIPES = Recipes(
    default=_PLAIN,
    by_method={
        "bbb": _BBB,
        "sharpened": _BBB,
        "dropout": replace(_PLAIN, options={"dropout": 0.1}),
        "variational-dropout": replace(_PLAIN, options={"dropout": 0.1, "length_scale": 0.1}),
    },
)
