"""Commands that train, measure and show, all in one."""

from typing import Any

from bayesrnn.runs.options import command
from bayesrnn.runs.output import require_outputs, write_json, write_text
from bayesrnn.studies.bench import BenchOptions, bench
from bayesrnn.studies.bench_growth import bench_growth
from bayesrnn.studies.bench_page import bench_page
from bayesrnn.studies.bench_programs import bench_programs
from bayesrnn.studies.bench_pruned import bench_pruned
from bayesrnn.studies.quickstart import QuickstartOptions, quickstart
from bayesrnn.studies.reproduce.options import PtbOptions
from bayesrnn.studies.reproduce.work import reproduce_ptb


@command(QuickstartOptions)
def run_quickstart(options: QuickstartOptions) -> None:
    """Train three methods on an embedded novel and compare them, in minutes."""
    quickstart(options)


@command(PtbOptions)
def reproduce_penn_treebank(options: PtbOptions) -> None:
    """Train and measure the models of the paper's table on Penn Treebank, beside its figures.

    What an earlier call did is not done again; what was interrupted goes on: with the same --out,
    a call goes on where an earlier one ended.

    bayesrnn reproduce ptb --size small --methods plain,bbb --seeds 1,2
    """
    print(reproduce_ptb(options))


@command(BenchOptions)
def run_bench(options: BenchOptions) -> None:
    """Measure training speed and memory of the methods against plain training.

    bayesrnn bench --methods bbb,variational-dropout --json bench.json
    """
    if options.pruned:
        result: dict[str, Any] = dict(bench_pruned(options.steps, options.threads))
    else:
        require_outputs(options.html, options.json)
        chosen = (options.methods, options.averaged, options.learnt, options.processor)
        result = dict(bench(options.steps, options.threads, *chosen))
        turns = max(2, options.steps // 4)
        if options.growth:
            result["growth"] = bench_growth(turns)
        if options.programs:
            result["programs"] = bench_programs(turns, options.quickstart)
        if options.html is not None:
            write_text(bench_page(result, options.steps), options.html)
    if options.json is not None:
        write_json(result, options.json)
