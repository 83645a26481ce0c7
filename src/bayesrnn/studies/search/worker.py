"""One worker of a search: take a trial, train it, tell how good it is, until all are over."""

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bayesrnn.errors import BayesRNNError, Interrupted, RunError, TrainingDivergedError
from bayesrnn.progress import say
from bayesrnn.report.text import counted
from bayesrnn.runs.start import RunArguments, train_run
from bayesrnn.studies.search.record import (
    COMPLETE,
    DIVERGED,
    PRUNED,
    Progress,
    TrialRecord,
    read_progress,
)
from bayesrnn.studies.search.search import Claim, Search
from bayesrnn.studies.search.space import params_text


class _Enough(Exception):  # noqa: N818, a trial that is not worth more is no error
    """The trial is worse than others."""


def work(
    search: Search,
    trials: int,
    machine: Mapping[str, Any],
    command: str,
    after_trial: Callable[[], object],
) -> None:
    """Train trials until there are none left for this worker.

    machine: options of this machine, for every trial.
    command: how to go on, for messages.
    after_trial: is called when one is told.
    """
    while (claim := search.claim(trials)) is not None:
        with claim.lease:
            try:
                record = _train(search, claim, trials, machine)
            except (Interrupted, KeyboardInterrupt) as stopped:
                number = getattr(stopped, "signal_number", signal.SIGINT)
                message = (
                    f"stopped in trial {claim.record.number}; everything is saved; go on with: "
                    f"{command}"
                )
                raise Interrupted(number, message) from None
            except BayesRNNError as error:
                raise RunError(
                    f"trial {claim.record.number}, in {claim.folder}, cannot be trained: {error}; "
                    f"mend it, or remove that folder to begin the trial again; go on with: "
                    f"{command}"
                ) from error
            search.tell(record)
        say(_told(record))
        after_trial()


def _train(search: Search, claim: Claim, trials: int, machine: Mapping[str, Any]) -> TrialRecord:
    """Train a trial to its end, from wherever its run is."""
    record, folder = claim.record, claim.folder
    begun = min(search.asked, trials)
    say(f"\n[{begun} of {trials}] trial {record.number}: {params_text(record.params)}")

    def after_epoch() -> None:
        progress = read_progress(folder)
        if progress is not None and search.report(record, progress) and not progress.is_done:
            raise _Enough

    try:
        after_epoch()  # a worker that was killed may not have come to report the last one
        progress = read_progress(folder)
        if progress is None or not progress.is_done:
            _run(search, record, folder, machine, after_epoch)
    except _Enough:
        progress = _finished(folder)
        return record.over(PRUNED, progress.best, f"stopped after epoch {progress.epochs}")
    except TrainingDivergedError as error:
        return record.over(DIVERGED, None, str(error).partition(";")[0])
    best = _finished(folder).best
    if best is None:
        return record.over(DIVERGED, None, "its validation loss was never a number")
    return record.over(COMPLETE, best)


def _run(
    search: Search,
    record: TrialRecord,
    folder: Path,
    machine: Mapping[str, Any],
    after_epoch: Callable[[], None],
) -> None:
    settings = search.settings
    begun = read_progress(folder) is not None
    # What the trial was started with is in its folder; only what belongs to a machine may differ.
    given = {} if begun else {**settings.trial_options(record.params), "calibrate": False}
    arguments = RunArguments(out=folder, resume=True)
    train_run(settings.task, arguments, {**given, **machine}, after_epoch=after_epoch)


def _finished(folder: Path) -> Progress:
    progress = read_progress(folder)
    assert progress is not None, "the run has begun"
    return progress


def _told(record: TrialRecord) -> str:
    value = "" if record.value is None else f", validation loss {record.value:.4f}"
    reason = f" ({record.reason})" if record.reason else ""
    return f"trial {record.number} is {record.state}{value}{reason}"


def left_to_others(search: Search) -> str:
    """What other workers still do, in a line; empty where all is done."""
    running = [record.number for record in search.records() if record.state == "running"]
    if not running:
        return ""
    which = ", ".join(map(str, running))
    return f"other workers are training {counted(len(running), 'trial')}: {which}"
