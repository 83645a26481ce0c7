"""Commands that train, measure and show, all in one."""

from bayesrnn.runs.options import command
from bayesrnn.runs.output import write_json
from bayesrnn.studies.bench import BenchOptions, bench
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
        result: object = bench_pruned(options.steps, options.threads)
    else:
        chosen = (options.methods, options.averaged, options.learnt)
        result = bench(options.steps, options.threads, *chosen)
    if options.json is not None:
        write_json(result, options.json)
