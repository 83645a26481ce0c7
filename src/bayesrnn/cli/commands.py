"""Commands for runs of any task."""

from dataclasses import dataclass
from pathlib import Path

from bayesrnn.errors import ConfigError
from bayesrnn.options import CheckedOptions, option
from bayesrnn.runs.arguments import JsonOptions, ReportOptions, RunOrFileOptions
from bayesrnn.runs.compare import compare
from bayesrnn.runs.evaluate import describe, evaluate
from bayesrnn.runs.evaluation import EvaluationSettings
from bayesrnn.runs.options import Given, command, command_of_parts, refuse_given, take
from bayesrnn.runs.output import write_json
from bayesrnn.runs.summary import read_summary
from bayesrnn.tasks import TASKS, task_of
from bayesrnn.tasks.captions.uncertainty import (
    CaptionDoubtSettings,
    are_captioners,
    caption_uncertainty_report,
)
from bayesrnn.tasks.lm.uncertainty import UncertaintySettings, uncertainty_report


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(EvaluationSettings, RunOrFileOptions, JsonOptions):
    """Which run to evaluate, how, and where to write what is found."""


@command_of_parts(
    EvaluateOptions, owned={name: task.evaluate_options for name, task in TASKS.items()}
)
def evaluate_run(given: Given) -> None:
    """Measure how well a run predicts.

    Perplexity for text; error and calibration for images and labels; error and intervals for
    ratings; perplexity, BLEU, ROUGE-L and CIDEr for captions.

    bayesrnn evaluate runs/mine --samples 10 --json result.json
    """
    options = take(EvaluateOptions, given)
    task = task_of(options.run)
    own = take(task.evaluate_options, given)
    for name, other in TASKS.items():
        refuse_given(other.evaluate_options, given, f"runs of `bayesrnn train {name}`")
    found = evaluate(task, options.run, options, own)
    options.show(describe(task, found))
    if options.json is not None:
        write_json(found.as_json(), options.json)


@command_of_parts(UncertaintySettings, CaptionDoubtSettings, ReportOptions)
def measure_uncertainty(given: Given) -> None:
    """Measure whether language models, or captioners, know what they do not know.

    Of texts: entropy gap, calibration, and how well reversed and otherwise shifted text is told
    from regular text. Of captions: CIDEr when the least certain ones are withheld, how far
    confidence follows CIDEr, and how well images of COCO are told from those of the run's data;
    with 10 draws and all images of COCO that takes about five minutes a run on one core.

    bayesrnn uncertainty runs/plain runs/bbb --shift my-other-book.txt --html uncertainty.html
    """
    where = take(ReportOptions, given)
    if are_captioners(where.runs):
        doubts = take(CaptionDoubtSettings, given)
        refuse_given(UncertaintySettings, given, "language models, not for captioners")
        where.show(caption_uncertainty_report(where, doubts))
    else:
        settings = take(UncertaintySettings, given)
        refuse_given(CaptionDoubtSettings, given, "captioners, not for language models")
        where.show(uncertainty_report(where, settings))


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
