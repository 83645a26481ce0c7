"""Arguments that several commands have, with the line that `--help` shows for each."""

from pathlib import Path
from typing import Annotated, Final, Literal

import tyro

DEVICES: Final = ("auto", "cpu", "cuda", "mps")
Run = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(help="folder of a run")]
RunOrFile = Annotated[
    tyro.conf.Positional[Path], tyro.conf.arg(help="folder of a run, or a file of prune --out")
]
Checkpoint = Annotated[str, tyro.conf.arg(help="best, last or a step")]
Device = Annotated[Literal["auto", "cpu", "cuda", "mps"], tyro.conf.arg(help="where to compute")]
JsonFile = Annotated[
    Path | None, tyro.conf.arg(help="also write the result to this file as JSON; - for the screen")
]

Segment = Annotated[
    int | None,
    tyro.conf.arg(
        metavar="N",
        help="dynamic evaluation: words between updates (default: as tuned, else 5)",
        help_behavior_hint="",
    ),
]

Samples = Annotated[
    int,
    tyro.conf.arg(
        help="draws of the network whose predictions are averaged and compared; 0: the mean "
        "weights alone, which have no doubts about themselves"
    ),
]
Seed = Annotated[int, tyro.conf.arg(help="seed of the draws")]
