"""`bayesrnn reproduce ptb`: train what is missing, measure what is missing, write it up."""

import signal

import torch

from bayesrnn.data import load_corpus
from bayesrnn.progress import say
from bayesrnn.report import results_table
from bayesrnn.tasks.reproduce_options import PtbOptions, PtbRequest
from bayesrnn.tasks.reproduce_plan import make_plan, plan_text
from bayesrnn.tasks.reproduce_report import write_report
from bayesrnn.tasks.reproduce_runs import read_states, unlike_asked
from bayesrnn.training import Interrupted

_WIDTH = 160


def reproduce_ptb(options: PtbOptions) -> str:
    """Do what is to be done and give the table; for a dry run, say what would be done."""
    request, command = options.request(), options.command()
    load_corpus("ptb", request.data_dir)  # told now if it is not there, and not after hours
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    steps = make_plan(request)
    if options.dry_run:
        return plan_text(steps, command)
    for state in read_states(request):
        if unlike := unlike_asked(state):
            say(f"{state.name} keeps its own settings: {'; '.join(unlike)}")
    work = [(step.label, step.do) for step in steps if step.do is not None]
    for number, (label, do) in enumerate(work, start=1):
        where = f"[{number}/{len(work)}] {label}"
        say(f"\n{where}")
        try:
            do()
        except (Interrupted, KeyboardInterrupt) as stopped:
            _report_after_failure(request, command)
            signal_number = getattr(stopped, "signal_number", signal.SIGINT)
            said = f"stopped at {where}; what is done is kept; go on with: {command}"
            raise Interrupted(signal_number, said) from None
        except Exception:
            _report_after_failure(request, command)
            raise
        write_report(request, command)
    found = write_report(request, command)
    table = results_table(found).text(_WIDTH)
    return f"{table}\nall of it: {request.out / 'results.html'} and {request.out / 'results.md'}"


def _report_after_failure(request: PtbRequest, command: str) -> None:
    """Write what there is; an error here is only told, for that of the step is the one to see."""
    try:
        write_report(request, command)
    except Exception as error:
        say(f"the results were not written: {error}")
