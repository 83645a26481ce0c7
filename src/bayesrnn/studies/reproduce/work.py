"""`bayesrnn reproduce ptb`: train what is missing, measure what is missing, write it up."""

import signal
from collections.abc import Sequence

import torch

from bayesrnn.errors import BayesRNNError, Interrupted, RunError
from bayesrnn.progress import say
from bayesrnn.studies.reproduce.options import PtbOptions
from bayesrnn.studies.reproduce.plan import PlanStep, make_plan, plan_text
from bayesrnn.studies.reproduce.report import gather, write_report
from bayesrnn.studies.reproduce.run_state import read_states, unlike_asked
from bayesrnn.studies.reproduce.tables import results_table
from bayesrnn.tasks.lm.data import load_corpus

_WIDTH = 160


def reproduce_ptb(options: PtbOptions) -> str:
    """Do what is to be done and give the table; for a dry run, say what would be done."""
    command = options.command()
    _require_data(options)
    gather(options)  # what earlier calls found can be read: now, not after hours
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    steps = make_plan(options)
    if options.dry_run:
        return plan_text(steps, command)
    for state in read_states(options):
        if unlike := unlike_asked(state):
            say(f"{state.name} keeps its own settings: {'; '.join(unlike)}")
    failed = _work(options, [step for step in steps if not step.done])
    if failed:
        raise RunError(
            f"{len(failed)} of the steps failed, the others are done: {'; '.join(failed)}. Leave "
            "out what cannot be done with --methods or --skip, find a rate for dynamic evaluation "
            "with `bayesrnn tune-dynamic`, or put a run of `bayesrnn train lm` with options of "
            f"your own in the place of one; then go on with: {command}"
        )
    found = write_report(options)
    table = results_table(found).text(_WIDTH)
    page, markdown = options.folder / "results.html", options.folder / "results.md"
    return f"{table}\nall of it: {page} and {markdown}"


def _require_data(options: PtbOptions) -> None:
    """See that the corpus is there, now and not after hours; also where finished runs had it."""
    load_corpus("ptb", options.data_dir)
    for state in read_states(options):
        if state.complete and state.config.data_dir not in (None, options.data_dir):
            try:
                load_corpus("ptb", state.config.data_dir)
            except BayesRNNError as error:
                where = options.data_dir or "PATH"
                raise RunError(
                    f"{state.path} looks for its text in another folder: {error}; tell it where it "
                    f"is with: bayesrnn train lm --resume --out {state.path} --data-dir {where}"
                ) from None


def _work(options: PtbOptions, steps: Sequence[PlanStep]) -> list[str]:
    """Do the steps; returns those that failed, with the reason.

    Hours of other work do not stop for them. Nothing is measured of a run that cannot be trained.
    """
    failed, stuck = [], set()
    for number, step in enumerate(steps, start=1):
        where = f"[{number}/{len(steps)}] {step.label}"
        say(f"\n{where}")
        if step.run in stuck:
            say("left out: its training failed")
            continue
        assert step.do is not None
        try:
            step.do()
        except (Interrupted, KeyboardInterrupt) as stopped:
            _report_after_failure(options)
            signal_number = getattr(stopped, "signal_number", signal.SIGINT)
            message = f"stopped at {where}; what is done is kept; go on with: {options.command()}"
            raise Interrupted(signal_number, message) from None
        except BayesRNNError as error:
            say(f"failed: {error}")
            failed.append(f"{step.label}: {error}")
            if step.trains:
                stuck.add(step.run)
            _report_after_failure(options)
        except Exception:
            _report_after_failure(options)
            raise
        else:
            write_report(options)
    return failed


def _report_after_failure(options: PtbOptions) -> None:
    """Write what there is; an error here is only printed: that of the step is the one to see."""
    try:
        write_report(options)
    except Exception as error:
        say(f"the results were not written: {error}")
