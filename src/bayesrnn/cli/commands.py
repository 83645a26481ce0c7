"""Commands for runs of any task. Those with options of tasks are made when they are called."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from bayesrnn.errors import ConfigError
from bayesrnn.options import CheckedOptions, option
from bayesrnn.progress import say
from bayesrnn.runs.arguments import JsonOptions, ReportOptions, RunOrFileOptions
from bayesrnn.runs.calibrate import CalibrateOptions, calibrate
from bayesrnn.runs.compare import compare
from bayesrnn.runs.doctor.command import DoctorOptions, doctor
from bayesrnn.runs.evaluate import describe, evaluate
from bayesrnn.runs.evaluation import EvaluationSettings
from bayesrnn.runs.options import (
    Given,
    command,
    command_line_type,
    command_of_parts,
    given_options,
    refuse_others,
    take,
)
from bayesrnn.runs.output import write_json
from bayesrnn.runs.pruning.prune import prune_report, require_run
from bayesrnn.runs.pruning.settings import PruneOptions
from bayesrnn.runs.start import RunArguments, train_run
from bayesrnn.runs.summary import read_summary
from bayesrnn.serve.command import ServeOptions, serve
from bayesrnn.tasks import TASKS, task_of
from bayesrnn.training.distributed import joined


def training_command(name: str) -> Callable[..., None]:
    """`bayesrnn train` for a task, with an option for each entry of its configuration."""
    task = TASKS[name]
    arguments: Any = command_line_type(
        "TrainingArguments",
        (RunArguments, task.config_type),
        "Options left out follow the recipe of the method (and the size).",
    )

    def train(training: Any) -> None:
        given = given_options(training)
        run = {f.name: given.pop(f.name) for f in fields(RunArguments) if f.name in given}
        options = RunArguments(**run)
        with joined(options.peer_timeout) as group:
            path = train_run(task, options, given, group)
            say(f"the run is in {path}; next: bayesrnn evaluate {path}")

    stated: Any = train
    stated.options = arguments.options
    train.__annotations__["training"] = Annotated[arguments, tyro.conf.OmitArgPrefixes]
    train.__doc__ = f"{task.summary}\n\n{task.example}\n"
    return train


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(EvaluationSettings, RunOrFileOptions, JsonOptions):
    """Which run to evaluate, how, and where to write what is found."""


def evaluate_command() -> Callable[..., None]:
    """`bayesrnn evaluate`, with the options that tasks have for it."""
    own = {name: task.evaluate_options for name, task in TASKS.items()}

    @command_of_parts(EvaluateOptions, owned=own)
    def evaluate_run(given: Given) -> None:
        """Measure how well a run predicts.

        Perplexity for text; error and calibration for images and labels; error and intervals for
        ratings; perplexity, BLEU, ROUGE-L and CIDEr for captions.

        bayesrnn evaluate runs/mine --samples 10 --json result.json
        """
        options = take(EvaluateOptions, given)
        task = task_of(options.run)
        for_task = take(task.evaluate_options, given)
        refuse_others(own, given)
        found = evaluate(task, options.run, options, for_task)
        options.show(describe(task, found))
        if options.json is not None:
            write_json(found.as_json(), options.json)

    return evaluate_run


@command(CalibrateOptions)
def calibrate_run(options: CalibrateOptions) -> None:
    """Fit the noise of draws and the temperature of a run to its validation data.

    Both are kept in the run, and every command that predicts uses them from then on, unless it is
    given --uncalibrated. Training does the same at its end.

    bayesrnn calibrate runs/mine
    """
    task = task_of(options.run)
    found = calibrate(task, options)
    if found is None:
        raise ConfigError(
            f"{options.run} is a run of `bayesrnn train {task.name}`, which cannot be calibrated"
        )
    print(found.text())


def uncertainty_command() -> Callable[..., None]:
    """`bayesrnn uncertainty`, with the options that tasks have for it."""
    reports = {n: report for n, task in TASKS.items() if (report := task.uncertainty())}
    own = {name: report.options for name, report in reports.items()}

    @command_of_parts(ReportOptions, owned=own)
    def measure_uncertainty(given: Given) -> None:
        """Measure whether runs know what they do not know.

        Of language models: entropy gap, calibration, and how well reversed and otherwise shifted
        text is told from regular text. Of captions: CIDEr when the least certain ones are withheld,
        how far confidence follows CIDEr, and how well images of COCO are told from those of the
        run's data; with 10 draws and all images of COCO that takes about five minutes a run on one
        core. Of digits and of ratings or labels of texts: calibration, the error when doubtful
        answers are withheld, and how well shifted inputs are told from regular ones.

        bayesrnn uncertainty runs/plain runs/bbb --shift my-other-book.txt --html uncertainty.html
        """
        where = take(ReportOptions, given)
        if not where.runs:
            raise ConfigError("no run was given; give the folders of one or more runs")
        first, *others = [(run, task_of(run)) for run in where.runs]
        for run, task in others:
            if task is not first[1]:
                raise ConfigError(
                    f"{first[0]} is a run of `bayesrnn train {first[1].name}` and {run} of "
                    f"`bayesrnn train {task.name}`; give runs of one task at a time"
                )
        if first[1].name not in reports:
            have = " or ".join(f"`bayesrnn train {name}`" for name in reports)
            raise ConfigError(
                f"{first[0]} is a run of `bayesrnn train {first[1].name}`, of which nothing is "
                f"measured yet; give runs of {have}"
            )
        report = reports[first[1].name]
        options = take(report.options, given)
        refuse_others(own, given)
        where.show(report.report(where, options))

    return measure_uncertainty


def prune_command() -> Callable[..., None]:
    """`bayesrnn prune`, with the options that tasks have for it."""
    own = {name: task.prune_options for name, task in TASKS.items()}

    @command_of_parts(PruneOptions, owned=own)
    def prune_run(given: Given) -> None:
        """Find out how many weights or units a network can lose: its metric against the share
        dropped.

        Weights are dropped in the order of |mean| / sigma where there is a posterior, of their
        magnitude, and at random; with --units whole units, by the same over all of their weights.
        The run stays as it is.

        bayesrnn prune runs/mine --keep-quality 0.01 --html pruning.html --out small.safetensors
        """
        options = take(PruneOptions, given)
        require_run(options.run)
        task = task_of(options.run)
        for_task = take(task.prune_options, given)
        refuse_others(own, given)
        options.show(prune_report(task, options, for_task))

    return prune_run


@dataclass(frozen=True, kw_only=True)
class CompareOptions(CheckedOptions):
    """The runs, and a page of them."""

    runs: tuple[Path, ...] = option((), "folders of runs", positional=True)
    out: Path | None = option(None, "also write a page here, or the chart alone if it ends in .svg")


@command(CompareOptions)
def compare_runs(options: CompareOptions) -> None:
    """Compare runs: a table, and learning curves in one self-contained page.

    bayesrnn compare runs/* --out comparison.html
    """
    if not options.runs:
        raise ConfigError("no run was given to compare; give the folders of one or more runs")
    for run in options.runs:
        if run.is_file():
            raise ConfigError(f"{run} is a file; compare takes the folders of runs")
    print(compare([read_summary(task_of(run), run) for run in options.runs], options.out))


@command(DoctorOptions)
def examine_run(options: DoctorOptions) -> None:
    """Say why a run does not learn, and what to try.

    Widths against their start, signal against noise, what the weights cost and bring, gradients,
    clipping, draws against the mean weights; on training and validation data, never on test data.

    bayesrnn doctor runs/mine --html doctor.html
    """
    options.show(doctor(task_of(options.run), options))


@command(ServeOptions)
def serve_runs(options: ServeOptions) -> None:
    """Show runs on a page: type, drop or draw something, and see what they doubt.

    The page is for this machine alone, and asks no other for anything. Runs of one task answer side
    by side; one that is being trained can be watched.

    bayesrnn serve runs/plain runs/bbb
    """
    serve(options, task_of)
