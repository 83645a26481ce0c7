"""The configuration of a language model: what the user gives, and what the recipe adds."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS, option
from bayesrnn.nn import CELLS
from bayesrnn.tasks.options import check_types, flag, is_method_option, method_options, to_toml
from bayesrnn.tasks.recipes import SIZES, recipe_for
from bayesrnn.training import default_lr


@dataclass(frozen=True)
class LanguageModelConfig:
    """Everything needed to train a language model, and to train it again."""

    corpus: tuple[str, ...] = option(
        ("pride-and-prejudice",),
        "what to learn: ptb, wikitext-2, pride-and-prejudice (comes with the program), a folder "
        "with train, valid and test files, or one or more plain-text files of your own",
    )
    data_dir: Path | None = option(
        None, "folder with the corpora that have names (default: $BAYESRNN_DATA)"
    )
    vocabulary_limit: int | None = option(
        None, "keep only the most frequent words (default: 10,000 for your own text, else all)"
    )
    method: str = option(
        "bbb",
        "how to train; " + "; ".join(f"{name}: {m.summary}" for name, m in METHODS.items()),
        METHODS,
    )
    size: str = option("tiny", "size of the network and the recipe that goes with it", SIZES)
    cell: str = option("lstm", "kind of recurrent layer", CELLS)
    hidden: int = option(None, "units per layer and embedding width (default: by size)")
    layers: int = option(None, "recurrent layers (default: by size)")
    tied: bool = option(False, "use one matrix for input and output words")
    epochs: int = option(
        None, "passes over the text; the recipe's schedule is stretched to fit (default: by size)"
    )
    batch_size: int = option(None, "sequences side by side (default: by size)")
    unroll: int = option(None, "words between cuts of the gradient (default: by size)")
    optimizer: str = option("sgd", "any optimiser of torch.optim, by name")
    lr: float = option(None, "learning rate (default: by size; other optimisers: torch's own)")
    hold_epochs: int = option(None, "epochs at the full learning rate (default: by size)")
    decay: float = option(None, "factor on the learning rate per epoch after (default: by size)")
    weight_decay: float = option(0.0, "weight decay of the optimiser")
    clip: float = option(None, "largest norm of the gradient, 0 for no limit (default: by size)")
    seed: int = option(1, "root of all randomness")
    device: str = option("auto", "where to compute", ("auto", "cpu", "cuda", "mps"))
    threads: int | None = option(None, "processor threads (default: torch's choice)")
    save_minutes: float = option(10.0, "minutes between checkpoints inside an epoch")
    tensorboard: bool = option(False, "also write the curves for TensorBoard (an extra)")
    init: float = option(
        None, "initial weights within +- this, 0 for normals by fan-in (default: by size)"
    )
    options: Mapping[str, Any] = option(None, "the method's own options")

    def __post_init__(self) -> None:
        check_types(self)
        for name, value in vars(self).items():
            if isinstance(value, int | float):
                may_be_zero = name in ("clip", "init", "weight_decay", "seed") or isinstance(
                    value, bool
                )
                if not math.isfinite(value) or value < 0 or (value == 0 and not may_be_zero):
                    least = "0 or more" if may_be_zero else "above 0"
                    raise ConfigError(f"{flag(name)} is {value}; it has to be {least}")

    def to_toml(self) -> str:
        """The configuration as a file that `--config` takes."""
        return to_toml(asdict(self))


def resolve(given: Mapping[str, Any], file: Mapping[str, Any] | None = None) -> LanguageModelConfig:
    """A full configuration from what the user gave, a configuration file, and the recipe."""
    file = dict(file or {})
    file_options = file.pop("options", {})
    known = {item.name: item for item in fields(LanguageModelConfig)}
    for name in file:
        if name not in known:
            raise ConfigError(
                f"the configuration has an entry {name!r}, which is not an option; there are: "
                f"{', '.join(known)}"
            )
    values = {**file, **{name: v for name, v in given.items() if not is_method_option(name)}}
    options = {**file_options, **{n: v for n, v in given.items() if is_method_option(n)}}
    method = values.setdefault("method", known["method"].default)
    size = values.setdefault("size", known["size"].default)
    for name, choice, allowed in (("method", method, METHODS), ("size", size, SIZES)):
        if choice not in allowed:
            raise ConfigError(f"{flag(name)} is {choice!r}; there are: {', '.join(allowed)}")
    recipe = recipe_for(method, size)
    if isinstance(values.get("epochs"), int) and values["epochs"] > 0:
        recipe = recipe.stretched(values["epochs"])
    by_recipe = {**asdict(SIZES[size]), **asdict(recipe)}
    optimizer = values.get("optimizer", known["optimizer"].default)
    if str(optimizer).lower() != "sgd":
        by_recipe["lr"] = default_lr(optimizer)  # the recipe's is for plain gradient descent
    for name, item in known.items():
        if item.default is None and name in by_recipe:
            values.setdefault(name, by_recipe[name])
    values["options"] = asdict(method_options(method, options, recipe.options))
    corpus = values.get("corpus", known["corpus"].default)
    values["corpus"] = (corpus,) if isinstance(corpus, str) else tuple(corpus)
    if values.get("data_dir") is not None:
        values["data_dir"] = Path(values["data_dir"])
    return LanguageModelConfig(**values)
