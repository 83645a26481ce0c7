"""The configuration of a run: what every task has, and how what the user gave becomes a whole."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Method
from bayesrnn.options import CheckedOptions, Option, flag, option, options_of, to_toml
from bayesrnn.runs.arguments import DEVICES
from bayesrnn.runs.options import method_options, option_owners
from bayesrnn.training.optimisation import WEIGHTINGS, Schedule, default_lr
from bayesrnn.training.shards import PRECISIONS, SHARD_NOISES

#: The most units of a layer and the most layers: a file that asks for more is damaged.
WIDEST, DEEPEST = 100_000, 1_000


@dataclass(frozen=True)
class TrainingConfig(CheckedOptions):
    """The options that do not depend on what is learnt."""

    #: The word after `bayesrnn train`.
    task: ClassVar[str]
    #: What the option for the data can be beside a path.
    data_names: ClassVar[tuple[str, ...]] = ()

    method: str = option(
        "bbb",
        "how to train; " + "; ".join(f"{name}: {m.summary}" for name, m in METHODS.items()),
        choices=METHODS,
    )
    recipe: str = option(
        "tuned",
        "what the options that are left out become: tuned, what did best here on validation data; "
        "paper, the settings of the publication that the method is from (of bbb and sharpened, for "
        "lm and mnist)",
        choices=("tuned", "paper"),
    )
    data_dir: Path | None = option(
        None, "folder with the data sets that have names (default: $BAYESRNN_DATA)"
    )
    start_from: Path | None = option(
        None,
        "begin with the weights, the words and the settings of this run, to train on other data; "
        "at a tenth of its learning rate, unless --lr is given (lm and mnist)",
        metavar="RUN",
    )
    epochs: int = option(
        None,
        "passes over the data; the recipe's schedule is stretched to fit (default: by recipe); "
        "+N: N more than a run that is resumed",
        gt=0,
        adds=True,
    )
    batch_size: int = option(None, "sequences or examples side by side (default: by recipe)", gt=0)
    optimizer: str = option(None, "any optimiser of torch.optim, by name (default: by recipe)")
    lr: float = option(
        None, "learning rate (default: by recipe; for another optimiser, torch's own)", gt=0
    )
    hold_epochs: int = option(None, "epochs at the full learning rate (default: by recipe)", gt=0)
    decay: float = option(
        None, "factor on the learning rate per epoch after (default: by recipe)", gt=0
    )
    weight_decay: float = option(0.0, "weight decay of the optimiser", ge=0)
    clip: float = option(
        None, "largest norm of the gradient, 0 for no limit (default: by recipe)", ge=0
    )
    average: float | None = option(
        None,
        "decay per step of averaged parameters, such as 0.998: about the last 1 / (1 - X) steps; "
        "each epoch keeps them to predict with if they are better on the validation set; 0 for "
        "none (default: by recipe)",
        ge=0,
        lt=1,
        zero="no average",
    )
    kl_weighting: str = option(
        "uniform",
        "how an epoch's KL is spread over its M minibatches: evenly, or 2^(M-i)/(2^M-1) for the "
        "i-th",
        choices=WEIGHTINGS,
    )
    kl_warmup: float | None = option(
        None,
        "epochs in which the weight of the KL rises from 0: before a network has learnt anything, "
        "a prior can pull it to where it learns nothing (default: by recipe)",
        ge=0,
        zero="no warm-up",
    )
    drop_to: float = option(
        0.0,
        "drop weights while training until this share of them is gone: 0.8 leaves a fifth; the "
        "least important first, by |mean| / sigma where the method has a sigma, else by magnitude",
        ge=0,
        lt=1,
        zero="none",
    )
    drop_from: float | None = option(
        None, "epochs before the first weight is dropped (default: a fifth of them)", ge=0
    )
    drop_until: float | None = option(
        None, "epochs by which all are dropped that are to be (default: 0.7 of them)", gt=0
    )
    drop_kl: float = option(
        1.0,
        "multiply the KL's weight by up to this as weights are dropped: those that go take their "
        "noise along, and the rest would learn more by heart",
        gt=0,
    )
    seed: int = option(1, "root of all randomness", ge=0)
    device: str = option("auto", "where to compute", choices=DEVICES)
    precision: str = option(
        "float32",
        "of the matrix products in training; bfloat16: 16 bits, faster where the processor knows "
        "them, with parameters, losses and evaluation still in float32",
        choices=PRECISIONS,
    )
    threads: int | None = option(None, "processor threads (default: torch's choice)", gt=0)
    shards: int | None = option(
        None,
        "parts that each minibatch is cut into, for as many processes at most, each part with "
        "noise of its own; the same run with any number of processes that divides it (default: as "
        "many as there are processes when the run is started)",
        gt=0,
    )
    shard_noise: str = option(
        "own",
        "of the weights: own, a draw for each shard, whose mean varies less; shared, one for all, "
        "which halves what processes have to send (bbb)",
        choices=SHARD_NOISES,
    )
    save_minutes: float = option(10.0, "minutes between checkpoints inside an epoch", gt=0)
    tensorboard: bool = option(False, "also write the curves for TensorBoard (an extra)")
    calibrate: bool = option(
        True,
        "after training, fit the noise of draws and the temperature to validation data, and say "
        "whether the run's uncertainty can be trusted (as `bayesrnn calibrate` does)",
    )
    #: The epoch that the course of the learning rate begins with: the one in which a run was
    #: resumed with another rate.
    lr_from: int = 0
    #: The method's own options.
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_toml(self) -> str:
        """The configuration as a file that `--config` takes."""
        return to_toml({"task": self.task, **asdict(self)})


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings under which a method is known to work.

    values: of the task's own options.
    options: of the method's options, where they differ from its defaults.
    """

    epochs: int
    hold_epochs: int
    decay: float
    lr: float = 1.0
    clip: float = 5.0
    batch_size: int = 20
    optimizer: str = "sgd"
    average: float = 0.0
    kl_warmup: float = 0.0
    values: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def stretched(self, epochs: int) -> "Recipe":
        """The same course in another number of epochs: same share of constant rate, same end."""
        if epochs == self.epochs:
            return self
        schedule = Schedule(self.lr, self.hold_epochs, self.decay).stretched(self.epochs, epochs)
        return replace(
            self,
            epochs=epochs,
            hold_epochs=schedule.hold,
            decay=schedule.decay,
            kl_warmup=self.kl_warmup * (epochs / self.epochs),
        )

    def settings(self) -> dict[str, Any]:
        """The values of all options but the method's."""
        made = dict(vars(self))
        del made["options"]
        return {**made.pop("values"), **made}


#: A recipe, or one for each `--size`.
RecipeBySize = Recipe | Mapping[str, Recipe]


@dataclass(frozen=True)
class Recipes:
    """The recipes of a task.

    default: for methods without one of their own.
    by_method: by the name of the method; some train like another one (`Method.recipe_names`).
    paper: those of the methods' publications, where they differ from `by_method`.
    sizes: what each `--size` means by itself, whatever the method.
    """

    default: RecipeBySize
    by_method: Mapping[str, RecipeBySize] = field(default_factory=dict)
    paper: Mapping[str, RecipeBySize] = field(default_factory=dict)
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def find(self, methods: Sequence[str], size: str | None = None, name: str = "tuned") -> Recipe:
        """The recipe of the first of the methods that has one, or else the default.

        With the name `paper` there is none for methods without one.
        """
        if name == "paper" and not self.is_published(methods):
            known_for = ", ".join(self.paper) or "no method"
            raise ConfigError(
                f"--recipe is paper, but the settings of a publication are known here for "
                f"{known_for}, not for the method {methods[0]}; leave --recipe out"
            )
        known = {**self.by_method, **(self.paper if name == "paper" else {})}
        found = next((known[method] for method in methods if method in known), self.default)
        recipe = found if isinstance(found, Recipe) else found[str(size)]
        return replace(recipe, values={**self.sizes.get(str(size), {}), **recipe.values})

    def is_published(self, methods: Iterable[str]) -> bool:
        """Whether one of the methods, which suit each other, has a recipe of its publication."""
        return any(method in self.paper for method in methods)


Config = TypeVar("Config", bound=TrainingConfig)


def resolve(
    config_type: type[Config],
    recipes: Recipes,
    given: Mapping[str, Any],
    file: Mapping[str, Any] | None = None,
    saved: bool = False,
) -> Config:
    """A full configuration from what the user gave, a configuration file, and the recipe.

    saved: whether the file is that of a run, where an option is missing only if the run's version
        had none such. It then takes nothing from the recipe, but its own default, or None, which
        does what that version did.
    """
    values, options = file_entries(config_type, file or {})
    known = {item.name: item for item in options_of(config_type)}
    named = str({**values, **given}.get("method", known["method"].default))
    for name, value in given.items():
        of_method = _is_of_method(name, value, named, known.get(name))
        (options if of_method else values)[name] = value
    for name, item in known.items():
        if item.choices and item.default is not None:
            item.check(values.setdefault(name, item.default))
    method = METHODS[values["method"]]
    recipe = recipes.find(method.recipe_names(options), values.get("size"), values["recipe"])
    if saved:
        recipe = replace(recipe, options={})
    if "epochs" in values:
        recipe = recipe.stretched(known["epochs"].check(values["epochs"]))
    by_recipe = recipe.settings()
    if method.own_optimiser:
        by_recipe["optimizer"] = method.name
        _require_own_optimiser(values, method.name)
    if not method.can_average:
        by_recipe["average"] = 0.0
        _refuse_average(values, method.name)
    optimizer = values.get("optimizer", by_recipe["optimizer"])
    if str(optimizer).lower() != by_recipe["optimizer"]:
        by_recipe["lr"] = default_lr(optimizer)  # the recipe's is for the recipe's optimiser
    for name, item in known.items():
        if item.default is None and name in by_recipe and not (saved and item.optional):
            values.setdefault(name, by_recipe[name])
    values["options"] = asdict(method_options(values["method"], options, recipe.options))
    _resolve_dropping(values, method)
    for name in ("kl_weighting", "kl_warmup", "drop_kl"):
        if values.get(name) not in (None, known[name].default, 0):
            _require_kl(name, values)
    return config_type(**values)


def _is_of_method(name: str, value: Any, method: str, own: Option | None) -> bool:
    """Whether an option is of the method; of one that the task has, too, the value decides."""
    owners = option_owners(name)
    return bool(owners) if own is None else method in owners and value not in own.choices


def file_entries(
    config_type: type[TrainingConfig], file: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a configuration file says: values for options of the task, and of the method."""
    values = dict(file)
    task = values.pop("task", config_type.task)
    if task != config_type.task:
        raise ConfigError(
            f"the configuration is for `bayesrnn train {task}`, not for {config_type.task}"
        )
    options = values.pop("options", {})
    if not isinstance(options, Mapping):
        raise ConfigError(
            f"the configuration's entry 'options' is {options!r}; it has to be a table, [options], "
            "of the method's own options"
        )
    known = [item.name for item in fields(config_type)]
    for name in values:
        if name not in known:
            raise ConfigError(
                f"the configuration has an entry {name!r}, which is not an option; there are: "
                f"{', '.join(known)}"
            )
    return values, dict(options)


def _resolve_dropping(values: dict[str, Any], method: type[Method[Any]]) -> None:
    """Check what was said of dropping weights, and say the rest."""
    if not values.get("drop_to"):
        for name in ("drop_from", "drop_until", "drop_kl"):
            if values.get(name) not in (None, 1):
                raise ConfigError(
                    f"{flag(name)} is {values[name]}, but without --drop-to no weight is "
                    "dropped; give --drop-to 0.8, or leave it out"
                )
        return
    if not method.can_drop:
        have = [name for name, each in METHODS.items() if each.can_drop]
        raise ConfigError(
            f"--drop-to is {values['drop_to']:g}, but {method.name} learns more than one network, "
            f"or more than its parameters; leave it out, or give another --method: "
            f"{', '.join(have)}"
        )
    start, end = (values.get(name) for name in ("drop_from", "drop_until"))
    start = values["drop_from"] = 0.2 * values["epochs"] if start is None else start
    end = values["drop_until"] = max(0.7 * values["epochs"], start) if end is None else end
    if not start <= end <= values["epochs"]:
        raise ConfigError(
            f"weights are to be dropped from epoch {start:g} to {end:g} of {values['epochs']}; "
            "give a --drop-from that is at most --drop-until, and that at most --epochs"
        )


def _require_kl(name: str, values: Mapping[str, Any]) -> None:
    # What shows that a method has a KL divergence: its weight, or the prior that it comes from.
    signs = ("kl_weight", "length_scale")
    if not any(sign in values["options"] for sign in signs):
        have = [owner for sign in signs for owner in option_owners(sign)]
        raise ConfigError(
            f"{flag(name)} is {values[name]}, but the method {values['method']} has no KL "
            f"divergence; leave it out, or give a --method that has one: {', '.join(have)}"
        )


def _require_own_optimiser(values: Mapping[str, Any], method: str) -> None:
    if values.get("optimizer", method) != method or values.get("weight_decay"):
        name = "weight_decay" if values.get("weight_decay") else "optimizer"
        raise ConfigError(
            f"{flag(name)} is {values[name]}, but how the weights are updated is what the method "
            f"{method} is about; leave it out"
        )


def _refuse_average(values: Mapping[str, Any], method: str) -> None:
    if values.get("average"):
        have = [name for name, each in METHODS.items() if each.can_average]
        raise ConfigError(
            f"--average is {values['average']}, but the parameters of the method {method} over its "
            "steps are not to be averaged: they are samples, or only a part of what it learns; "
            f"leave it out, or give another --method: {', '.join(have)}"
        )
