"""Commands that train, measure and show, all in one."""

from pathlib import Path
from typing import Annotated

import tyro

from bayesrnn.errors import ConfigError
from bayesrnn.runs.arguments import JsonFile
from bayesrnn.runs.options import name_list
from bayesrnn.runs.output import write_json
from bayesrnn.studies.bench import bench
from bayesrnn.studies.bench_pruned import bench_pruned
from bayesrnn.studies.quickstart import quickstart
from bayesrnn.studies.reproduce.options import PtbOptions
from bayesrnn.studies.reproduce.run import reproduce_ptb


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


def run_bench(
    json: JsonFile = None,
    steps: Annotated[int, tyro.conf.arg(help="measured steps of each method")] = 40,
    threads: Annotated[int | None, tyro.conf.arg(help="processor threads")] = None,
    pruned: Annotated[
        bool, tyro.conf.arg(help="measure inference with pruned networks instead, against dense")
    ] = False,
    methods: Annotated[
        str,
        tyro.conf.arg(
            metavar="NAME,NAME,...", help="measure only these, beside plain", help_behavior_hint=""
        ),
    ] = "",
) -> None:
    """Measure training speed and memory of the methods against plain training.

    bayesrnn bench --methods bbb,variational-dropout --json bench.json
    """
    if pruned and methods:
        raise ConfigError("--methods is for training; --pruned measures pruned networks, leave it")
    names = name_list(methods, "methods")
    result = bench_pruned(steps, threads) if pruned else bench(steps, threads, names)
    if json is not None:
        write_json(result, json)
