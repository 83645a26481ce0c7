"""The configuration of a run: what every task has, and how what the user gave becomes a whole."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import option
from bayesrnn.runs.options import check_types, flag, method_options, option_owners, to_toml
from bayesrnn.training.optimisation import WEIGHTINGS, default_lr


@dataclass(frozen=True)
class TrainingConfig:
    """The options that do not depend on what is learnt."""

    #: The word after `bayesrnn train`.
    task: ClassVar[str]
    #: Options that may be 0; other numbers have to be above it.
    may_be_zero: ClassVar[tuple[str, ...]] = ("clip", "weight_decay", "seed")

    method: str = option(
        "bbb",
        "how to train; " + "; ".join(f"{name}: {m.summary}" for name, m in METHODS.items()),
        METHODS,
    )
    data_dir: Path | None = option(
        None, "folder with the data sets that have names (default: $BAYESRNN_DATA)"
    )
    epochs: int = option(
        None, "passes over the data; the recipe's schedule is stretched to fit (default: by recipe)"
    )
    batch_size: int = option(None, "sequences or examples side by side (default: by recipe)")
    optimizer: str = option(None, "any optimiser of torch.optim, by name (default: by recipe)")
    lr: float = option(
        None, "learning rate (default: by recipe; for another optimiser, torch's own)"
    )
    hold_epochs: int = option(None, "epochs at the full learning rate (default: by recipe)")
    decay: float = option(None, "factor on the learning rate per epoch after (default: by recipe)")
    weight_decay: float = option(0.0, "weight decay of the optimiser")
    clip: float = option(None, "largest norm of the gradient, 0 for no limit (default: by recipe)")
    kl_weighting: str = option(
        "uniform",
        "how an epoch's KL is spread over its M minibatches: evenly, or 2^(M-i)/(2^M-1) for the "
        "i-th",
        WEIGHTINGS,
    )
    seed: int = option(1, "root of all randomness")
    device: str = option("auto", "where to compute", ("auto", "cpu", "cuda", "mps"))
    threads: int | None = option(None, "processor threads (default: torch's choice)")
    save_minutes: float = option(10.0, "minutes between checkpoints inside an epoch")
    tensorboard: bool = option(False, "also write the curves for TensorBoard (an extra)")
    options: Mapping[str, Any] = option(None, "the method's own options")

    def __post_init__(self) -> None:
        check_types(self)
        if isinstance(self.data_dir, str):  # as a configuration file has it
            object.__setattr__(self, "data_dir", Path(self.data_dir))
        for name, value in vars(self).items():
            if isinstance(value, int | float):
                zero = name in self.may_be_zero or isinstance(value, bool)
                if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
                    least = "0 or more" if zero else "above 0"
                    raise ConfigError(f"{flag(name)} is {value}; it has to be {least}")

    def to_toml(self) -> str:
        """The configuration as a file that `--config` takes."""
        return to_toml({"task": self.task, **asdict(self)})


class Defaults(NamedTuple):
    """What a recipe says: values for options of the task that were left out, and of the method."""

    values: Mapping[str, Any]
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings under which a method is known to work."""

    epochs: int
    hold_epochs: int
    decay: float
    lr: float = 1.0
    clip: float = 5.0
    batch_size: int = 20
    optimizer: str = "sgd"
    #: The method's own options, where they differ from its defaults.
    options: dict[str, Any] = field(default_factory=dict)

    def stretched(self: "AnyRecipe", epochs: int) -> "AnyRecipe":
        """The same course in another number of epochs: same share of constant rate, same end."""
        if epochs == self.epochs:
            return self
        hold = max(1, round(self.hold_epochs * epochs / self.epochs))
        end = self.decay ** (self.epochs - self.hold_epochs)
        decay = end ** (1 / max(1, epochs - hold))
        return replace(self, epochs=epochs, hold_epochs=hold, decay=decay)

    def defaults(self, values: Mapping[str, Any], **others: Any) -> Defaults:
        """What the recipe says in as many epochs as the user wants, and `others`."""
        epochs = values.get("epochs")
        recipe = self.stretched(epochs) if isinstance(epochs, int) and epochs > 0 else self
        settings = asdict(recipe)
        options = settings.pop("options")
        return Defaults({**settings, **others}, options)


AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)
Config = TypeVar("Config", bound=TrainingConfig)


def resolve(
    config_type: type[Config],
    defaults_for: Callable[[Mapping[str, Any]], Defaults],
    given: Mapping[str, Any],
    file: Mapping[str, Any] | None = None,
) -> Config:
    """A full configuration from what the user gave, a configuration file, and the recipe.

    `defaults_for` finds the recipe from the options known so far.
    """
    values, options = file_entries(config_type, file or {})
    for name, value in given.items():
        (options if option_owners(name) else values)[name] = value
    known = {item.name: item for item in fields(config_type)}
    for name, item in known.items():
        choices = item.metadata["choices"]
        if choices and values.setdefault(name, item.default) not in choices:
            raise ConfigError(f"{flag(name)} is {values[name]!r}; there are: {', '.join(choices)}")
    method = METHODS[values["method"]]
    defaults = defaults_for({**values, "method": method.trains_like(options)})
    by_recipe = dict(defaults.values)
    if method.own_optimiser:
        by_recipe["optimizer"] = method.name
        _require_own_optimiser(values, method.name)
    optimizer = values.get("optimizer", by_recipe["optimizer"])
    if str(optimizer).lower() != by_recipe["optimizer"]:
        by_recipe["lr"] = default_lr(optimizer)  # the recipe's is for the recipe's optimiser
    for name, item in known.items():
        if item.default is None and name in by_recipe:
            values.setdefault(name, by_recipe[name])
    values["options"] = asdict(method_options(values["method"], options, defaults.options))
    if values["kl_weighting"] != known["kl_weighting"].default:
        _require_kl(values)
    return config_type(**values)


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


def _require_kl(values: Mapping[str, Any]) -> None:
    # What shows that a method has a KL divergence: its weight, or the prior that it comes from.
    signs = ("kl_weight", "length_scale")
    if not any(sign in values["options"] for sign in signs):
        have = [owner for sign in signs for owner in option_owners(sign)]
        raise ConfigError(
            f"--kl-weighting is {values['kl_weighting']}, but the method {values['method']} has no "
            f"KL divergence that it could spread; leave it out, or give a --method that has one: "
            f"{', '.join(have)}"
        )


def _require_own_optimiser(values: Mapping[str, Any], method: str) -> None:
    if values.get("optimizer", method) != method or values.get("weight_decay"):
        name = "weight_decay" if values.get("weight_decay") else "optimizer"
        raise ConfigError(
            f"{flag(name)} is {values[name]}, but how the weights are updated is what the method "
            f"{method} is about; leave it out"
        )
