"""What `bayesrnn reproduce ptb` is asked for, and how each method is trained there."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bayesrnn.errors import ConfigError, RunError
from bayesrnn.methods import METHODS
from bayesrnn.options import CheckedOptions, option, options_of
from bayesrnn.runs.arguments import DEVICES
from bayesrnn.tasks.lm.config import RECIPES, SIZES
from bayesrnn.training.shards import PRECISIONS

#: What can be left out.
PARTS: Final = ("training", "draws", "dynamic", "entropy", "pruning", "bench")

#: The models of the paper's table.
_OF_THE_PAPER = ("plain", "dropout", "variational-dropout", "bbb", "sharpened")

#: How a method is trained at a size where that is not by its recipe. At small size, the recipes
#: are longer than it needs to see how the methods compare; sharpening takes twice as long an epoch.
_SETTINGS: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("small", "dropout"): {"epochs": 15, "hold_epochs": 6, "decay": 0.7},
    **{
        ("small", method): {"epochs": 20, "hold_epochs": 8, "decay": 0.76}
        for method in ("variational-dropout", "naive-dropout", "gaussian-dropout", "dropconnect")
    },
    ("small", "bbb"): {"epochs": 30},
    ("small", "sharpened"): {"epochs": 12, "hold_epochs": 6, "decay": 0.7},
}


@dataclass(frozen=True)
class PtbOptions(CheckedOptions):
    """What the user asks for."""

    size: str = option(
        "small", "of the networks; the paper's is medium: days on two cores", choices=SIZES
    )
    methods: tuple[str, ...] = option(
        _OF_THE_PAPER, "how to train; any of `train lm --method`", choices=METHODS, commas=True
    )
    seeds: tuple[int, ...] = option(
        (1,), "a run of each method for each of these seeds", ge=0, commas=True
    )
    out: Path | None = option(
        None,
        "folder of the runs and of results.html, results.md and results.json (default: "
        "reproduction/ptb-SIZE)",
        metavar="DIR",
    )
    samples: int = option(10, "draws to average over", ge=1)
    epochs: int | None = option(
        None,
        "train all methods this long, by their recipes' schedules stretched to it (default: as "
        "suits each)",
        ge=1,
    )
    skip: tuple[str, ...] = option(
        (),
        f"leave out: {', '.join(PARTS)}",
        choices=PARTS,
        commas=True,
        metavar="PART,PART,...",
    )
    recipe: str = option(
        "paper",
        "how the methods are trained: paper, by their publications where their settings are known; "
        "tuned, as `train lm` does by itself",
        choices=("paper", "tuned"),
    )
    precision: str = option(
        "float32",
        "of the matrix products in training, as `train lm --precision`",
        choices=PRECISIONS,
    )
    dry_run: bool = option(False, "only say what is done and what is to do")
    data_dir: Path | None = option(None, "folder that holds ptb/ (default: $BAYESRNN_DATA)")
    threads: int | None = option(None, "processor threads", ge=1)
    device: str = option("auto", "where to compute", choices=DEVICES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.methods:
            raise ConfigError(f"--methods is empty; there are: {', '.join(METHODS)}")
        if self.folder.is_file():
            raise RunError(f"--out is {self.folder}, which is a file; give a folder for the runs")
        object.__setattr__(self, "seeds", tuple(dict.fromkeys(self.seeds)))

    @property
    def folder(self) -> Path:
        """The folder of the runs and of their report."""
        return self.out or Path("reproduction") / f"ptb-{self.size}"

    def given(self, method: str, seed: int) -> dict[str, Any]:
        """The options of `bayesrnn train lm` for a run that is to be started."""
        named: dict[str, Any] = {"corpus": ("ptb",), "size": self.size, "method": method}
        named |= {"seed": seed, "precision": self.precision, **self.machine()}
        if self.recipe == "paper":
            named.update(recipe_option(method))
            if self.epochs is None:
                named.update(_SETTINGS.get((self.size, method), {}))
        if self.epochs is not None:
            named["epochs"] = self.epochs
        return named

    def machine(self) -> dict[str, Any]:
        """The options that have nothing to do with the results: what a resumed run may be given."""
        device = None if self.device == "auto" else self.device
        given = {"data_dir": self.data_dir, "threads": self.threads, "device": device}
        return {name: value for name, value in given.items() if value is not None}

    def command(self) -> str:
        """The command that does this, again or further."""
        words = ["bayesrnn", "reproduce", "ptb"]
        for item in options_of(type(self)):
            value = getattr(self, item.name)
            if item.name != "dry_run" and (value != item.default or item.name == "size"):
                listed = ",".join(map(str, value)) if item.is_list else str(value)
                words += [item.flag, listed]
        return shlex.join(words)


def recipe_option(method: str) -> dict[str, str]:
    """The option that asks for the settings of a method's publication, where they are known."""
    is_published = RECIPES.is_published(METHODS[method].recipe_names({}))
    return {"recipe": "paper"} if is_published else {}
