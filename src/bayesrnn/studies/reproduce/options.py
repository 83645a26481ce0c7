"""What `bayesrnn reproduce ptb` is asked for, and how each method is trained there."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import tyro

from bayesrnn.errors import ConfigError, RunError
from bayesrnn.methods import METHODS
from bayesrnn.options import flag
from bayesrnn.runs.options import name_list, number_list

#: What can be left out.
PARTS: Final = ("training", "draws", "dynamic", "entropy", "pruning", "bench")

#: The models of the paper's table.
_OF_THE_PAPER = "plain,dropout,variational-dropout,bbb,sharpened"

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
class PtbRequest:
    """Which runs to make, and what to measure.

    samples: draws to average over.
    epochs: for all methods alike, the recipes' schedules stretched; None for those that suit each.
    skip: the parts that are left out.
    """

    out: Path
    size: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = (1,)
    samples: int = 10
    epochs: int | None = None
    skip: frozenset[str] = frozenset()
    data_dir: Path | None = None
    threads: int | None = None
    device: str = "auto"

    def given(self, method: str, seed: int) -> dict[str, Any]:
        """The options of `bayesrnn train lm` for a run that is to be started."""
        named = {"corpus": ("ptb",), "size": self.size, "method": method, "seed": seed}
        if self.epochs is not None:
            return {**named, **self.machine(), "epochs": self.epochs}
        return {**named, **self.machine(), **_SETTINGS.get((self.size, method), {})}

    def machine(self) -> dict[str, Any]:
        """The options that have nothing to do with the results: what a resumed run may be given."""
        given = {"data_dir": self.data_dir, "threads": self.threads}
        there = {name: value for name, value in given.items() if value is not None}
        return there if self.device == "auto" else {**there, "device": self.device}


@dataclass(frozen=True)
class PtbOptions:
    """With the same --out, a call goes on where an earlier one ended."""

    size: Annotated[
        Literal["tiny", "small", "medium", "large"],
        tyro.conf.arg(help="of the networks; the paper's is medium: days on two cores"),
    ] = "small"
    methods: Annotated[
        str, tyro.conf.arg(metavar="NAME,NAME,...", help="how to train; any of `train lm --method`")
    ] = _OF_THE_PAPER
    seeds: Annotated[
        str, tyro.conf.arg(metavar="N,N,...", help="a run of each method for each of these seeds")
    ] = "1"
    out: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="DIR",
            help="folder of the runs and of results.html, results.md and results.json (default: "
            "reproduction/ptb-SIZE)",
            help_behavior_hint="",
        ),
    ] = None
    samples: Annotated[int, tyro.conf.arg(metavar="N", help="draws to average over")] = 10
    epochs: Annotated[
        int | None,
        tyro.conf.arg(
            metavar="N",
            help="train all methods this long, by their recipes' schedules stretched to it "
            "(default: as suits each)",
            help_behavior_hint="",
        ),
    ] = None
    skip: Annotated[
        str,
        tyro.conf.arg(
            metavar="PART,PART,...",
            help=f"leave out: {', '.join(PARTS)}",
            help_behavior_hint="",
        ),
    ] = ""
    dry_run: Annotated[
        bool,
        tyro.conf.arg(help="only say what is done and what is to do", help_behavior_hint=""),
    ] = False
    data_dir: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="PATH",
            help="folder that holds ptb/ (default: $BAYESRNN_DATA)",
            help_behavior_hint="",
        ),
    ] = None
    threads: Annotated[
        int | None,
        tyro.conf.arg(metavar="N", help="processor threads", help_behavior_hint=""),
    ] = None
    device: Annotated[
        Literal["auto", "cpu", "cuda", "mps"], tyro.conf.arg(help="where to compute")
    ] = "auto"

    def request(self) -> PtbRequest:
        """The options with lists read; what cannot be is told in the user's words."""
        out = self.out or Path("reproduction") / f"ptb-{self.size}"
        if out.is_file():
            raise RunError(f"--out is {out}, which is a file; give a folder for the runs")
        for name in ("samples", "epochs", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{flag(name)} is {value}; it has to be 1 or more")
        methods = _chosen("methods", self.methods, tuple(METHODS))
        seeds = number_list(self.seeds, int, "seeds", "whole numbers with commas between: 1,2,3")
        if not methods:
            raise ConfigError(f"--methods is empty; there are: {', '.join(METHODS)}")
        if min(seeds) < 0:
            raise ConfigError(f"--seeds is {self.seeds}; a seed is a whole number, 0 or more")
        return PtbRequest(
            out=out,
            size=self.size,
            methods=methods,
            seeds=tuple(dict.fromkeys(seeds)),
            samples=self.samples,
            epochs=self.epochs,
            skip=frozenset(_chosen("skip", self.skip, PARTS)),
            data_dir=self.data_dir,
            threads=self.threads,
            device=self.device,
        )

    def command(self) -> str:
        """The command that does this, again or further."""
        words = ["bayesrnn", "reproduce", "ptb"]
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name != "dry_run" and (value != item.default or item.name == "size"):
                words += [flag(item.name), str(value)]
        return shlex.join(words)


def _chosen(name: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The names in the text, which have to be known ones."""
    names = name_list(text, name)
    unknown = [one for one in names if one not in known]
    if unknown:
        raise ConfigError(f"{flag(name)} has {', '.join(unknown)}; there are: {', '.join(known)}")
    return names
