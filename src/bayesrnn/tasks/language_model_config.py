"""The configuration of a language model: what the user gives, and what the recipe adds."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from bayesrnn.methods import option
from bayesrnn.nn import CELLS
from bayesrnn.tasks.configuration import Defaults, TrainingConfig, resolve
from bayesrnn.tasks.recipes import SIZES, recipe_for


@dataclass(frozen=True)
class LanguageModelConfig(TrainingConfig):
    """Everything needed to train a language model, and to train it again."""

    task: ClassVar[str] = "lm"
    may_be_zero: ClassVar[tuple[str, ...]] = (*TrainingConfig.may_be_zero, "init")

    corpus: tuple[str, ...] = option(
        ("pride-and-prejudice",),
        "what to learn: ptb, wikitext-2, pride-and-prejudice (comes with the program), a folder "
        "with train, valid and test files, or one or more plain-text files of your own",
    )
    vocabulary_limit: int | None = option(
        None, "keep only the most frequent words (default: 10,000 for your own text, else all)"
    )
    size: str = option("tiny", "size of the network and the recipe that goes with it", SIZES)
    cell: str = option("lstm", "kind of recurrent layer", CELLS)
    hidden: int = option(None, "units per layer and embedding width (default: by size)")
    layers: int = option(None, "recurrent layers (default: by size)")
    tied: bool = option(False, "use one matrix for input and output words")
    unroll: int = option(None, "words between cuts of the gradient (default: by recipe)")
    init: float = option(
        None, "initial weights within +- this, 0 for normals by fan-in (default: by recipe)"
    )


def resolve_language_model(
    given: Mapping[str, Any], file: Mapping[str, Any] | None = None
) -> LanguageModelConfig:
    """A full configuration from what the user gave, a configuration file, and the recipe."""
    config = resolve(LanguageModelConfig, _defaults, given, file)
    corpus = config.corpus  # a file may hold one name, or a list of them
    return replace(config, corpus=(corpus,) if isinstance(corpus, str) else tuple(corpus))


def _defaults(values: Mapping[str, Any]) -> Defaults:
    size = values["size"]
    return recipe_for(values["method"], size).defaults(values, **asdict(SIZES[size]))
