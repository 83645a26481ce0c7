"""Commands that train, measure and show, all in one."""

from pathlib import Path
from typing import Annotated

import tyro

from bayesrnn.tasks.quickstart import quickstart
from bayesrnn.tasks.reproduce import reproduce_ptb
from bayesrnn.tasks.reproduce_options import PtbOptions


def run_quickstart(
    out: Annotated[Path, tyro.conf.arg(help="folder for the runs and the page")] = Path(
        "quickstart"
    ),
    seed: Annotated[int, tyro.conf.arg(help="root of all randomness")] = 1,
) -> None:
    """Train three methods on an embedded novel and compare them, in minutes."""
    quickstart(out, seed)


def reproduce_penn_treebank(options: tyro.conf.OmitArgPrefixes[PtbOptions]) -> None:
    """Train and measure the models of the paper's table on Penn Treebank, beside its figures.

    What an earlier call did is not done again; what was interrupted goes on.

    bayesrnn reproduce ptb --size small --methods plain,bbb --seeds 1,2
    """
    print(reproduce_ptb(options))
