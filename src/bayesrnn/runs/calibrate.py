"""Calibrate a run of any task on its validation data, and give a verdict on it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bayesrnn.errors import BayesRNNError, ConfigError, RunError
from bayesrnn.options import option
from bayesrnn.progress import progress_bar, say
from bayesrnn.runs.arguments import DataOptions, RunOptions, seed_option
from bayesrnn.runs.calibration import (
    Calibration,
    calibration_text,
    read_calibration,
    write_calibration,
)
from bayesrnn.runs.evaluation import DEFAULT_SAMPLES
from bayesrnn.runs.places import moved
from bayesrnn.runs.task import Task, TrainedRun
from bayesrnn.runs.verdict import Verdict, read_verdict_text, write_verdict
from bayesrnn.training.checkpoints import CheckpointStore
from bayesrnn.uncertainty.fitting import TRIES, fit_scaling


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(RunOptions, DataOptions):
    """Which run, and how its draws are made."""

    samples: int = option(
        DEFAULT_SAMPLES, "draws whose average is fitted to the validation data", ge=1
    )
    seed: int = seed_option()
    whole: bool = option(
        False, "fit to all validation data, not to a part of them: more exact, and slower"
    )


@dataclass(frozen=True)
class CalibratedRun:
    """What was found of a run: its calibration, and the verdict if the task has one."""

    path: Path
    calibration: Calibration
    verdict: Verdict | None

    def text(self) -> str:
        """Both in plain words."""
        said = [calibration_text(self.calibration)]
        return "\n".join([*said, *([self.verdict.text(self.path)] if self.verdict else [])])


def calibrate(
    task: Task[Any, Any], options: CalibrateOptions, data: Any = None
) -> CalibratedRun | None:
    """Fit the noise of draws and temperatures to validation data, and keep them in the run.

    None where the task does not say how probable its data are.

    data: that of the run, if it is loaded already.
    """
    if options.run.is_file():
        raise ConfigError(
            f"{options.run} is a file; calibrate the folder of its run, and prune that again"
        )
    run: TrainedRun[Any] = task.open_run(options.run, options.checkpoint, options.device)
    if data is None:
        run = moved(task, run, options)
        data = task.load_for(run)
        if run.fingerprint not in (None, task.fingerprint(data)):
            raise RunError(
                f"the data are not those that {run.path} was trained on; give back the same data"
            )
    known = task.score(run, data, options.whole)
    if known is None:
        return None
    with progress_bar(TRIES, " tries", "calibrating", delay=1.0) as bar:
        fitted = fit_scaling(
            run.method,
            run.net,
            known.score,
            options.samples,
            options.seed,
            advance=bar.update,
            longer=known.longer,
        )
    calibration = Calibration(
        run.step, options.samples, options.seed, known.unit, fitted, known.whole
    )
    write_calibration(options.run, calibration)
    verdict = task.verdict(replace(run, calibration=calibration), data)
    if verdict is not None:
        write_verdict(options.run, verdict, run.step)
    return CalibratedRun(options.run, calibration, verdict)


def calibrate_after_training(task: Task[Any, Any], path: Path, device: str, data: Any) -> None:
    """Calibrate a run that is trained, unless that is done, and say the verdict.

    The run is whole without it, so nothing that goes wrong here is an error.
    """
    later = f"the run is whole; later: bayesrnn calibrate {path}"
    try:
        known = read_calibration(path)
        if known is not None and known.step == CheckpointStore(path).step("best"):
            verdict = read_verdict_text(path)
            if verdict is not None:
                say(verdict)
            return
        found = calibrate(task, CalibrateOptions(run=path, device=device), data)
    except KeyboardInterrupt:
        say(f"not calibrated, as you stopped it: {later}")
    except (BayesRNNError, RuntimeError, MemoryError) as error:
        say(f"not calibrated: {error}; {later}")
    else:
        if found is not None:
            say(found.text())
