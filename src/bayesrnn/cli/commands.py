"""Commands for runs of any task."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from bayesrnn.errors import ConfigError
from bayesrnn.options import flag
from bayesrnn.runs.arguments import Checkpoint, Device, JsonFile, RunOrFile, Seed, Segment
from bayesrnn.runs.compare import compare
from bayesrnn.runs.evaluate import describe, evaluate
from bayesrnn.runs.evaluation import EvaluationSettings
from bayesrnn.runs.options import refuse_given
from bayesrnn.runs.output import write_json
from bayesrnn.runs.summary import read_summary
from bayesrnn.tasks import TASKS, task_of
from bayesrnn.tasks.captions.uncertainty import (
    CaptionDoubtSettings,
    are_captioners,
    caption_uncertainty_report,
)
from bayesrnn.tasks.lm.dynamic_settings import DynamicRule
from bayesrnn.tasks.lm.uncertainty import UncertaintySettings, sample_counts, uncertainty_report


def evaluate_run(
    run: RunOrFile,
    split: Annotated[
        Literal["train", "valid", "test"], tyro.conf.arg(help="which part of the data")
    ] = "test",
    samples: Annotated[
        int,
        tyro.conf.arg(
            help="0: the mean weights; N: average the probabilities of N draws (of a captioner "
            "all in memory at once). A run of sharpened shows both in any case (10 draws if this "
            "is 0), and a bound"
        ),
    ] = 0,
    json: JsonFile = None,
    checkpoint: Checkpoint = "best",
    streams: Annotated[
        int | None,
        tyro.conf.arg(
            metavar="N",
            help="parts of the text read side by side; 1 is exact, more are faster (default: 1)",
            help_behavior_hint="",
        ),
    ] = None,
    unroll: Annotated[
        int | None,
        tyro.conf.arg(
            metavar="N",
            help="words per step; does not change the result (default: 100)",
            help_behavior_hint="",
        ),
    ] = None,
    seed: Seed = 1,
    device: Device = "auto",
    dynamic: Annotated[
        DynamicRule | None,
        tyro.conf.arg(
            metavar="{sgd,rms}",
            help_behavior_hint="",
            help="dynamic evaluation: go on learning from the text while reading it, on a copy of "
            "the mean weights; --dynamic alone means sgd, rms adds a pull back to the trained "
            "weights",
        ),
    ] = None,
    dynamic_lr: Annotated[
        float | None,
        tyro.conf.arg(
            metavar="X",
            help="its learning rate (default: as tuned, else 0.1, for rms 0.0001)",
            help_behavior_hint="",
        ),
    ] = None,
    dynamic_decay: Annotated[
        float | None,
        tyro.conf.arg(
            metavar="X",
            help="rms: the pull back (default: as tuned, else 0.001)",
            help_behavior_hint="",
        ),
    ] = None,
    dynamic_segment: Segment = None,
    beam: Annotated[
        int | None,
        tyro.conf.arg(
            metavar="N",
            help="captions: how many unfinished ones the search pursues (default: 3, which is what "
            "`compare` shows; up to 100), beside a search that always takes the likeliest word",
            help_behavior_hint="",
        ),
    ] = None,
) -> None:
    """Measure how well a run predicts.

    Perplexity for text; error and calibration for images and labels; error and intervals for
    ratings; perplexity, BLEU, ROUGE-L and CIDEr for captions.

    bayesrnn evaluate runs/mine --samples 10 --json result.json
    """
    task = task_of(run)
    given = {
        "streams": streams,
        "unroll": unroll,
        "dynamic": dynamic,
        "dynamic_lr": dynamic_lr,
        "dynamic_decay": dynamic_decay,
        "dynamic_segment": dynamic_segment,
        "beam": beam,
    }
    known = _names(task.evaluate_options)
    options = {name: value for name, value in given.items() if value is not None}
    for name in options:
        if name not in known:
            owners = [n for n, t in TASKS.items() if name in _names(t.evaluate_options)]
            trained = " or ".join(f"`bayesrnn train {owner}`" for owner in owners)
            raise ConfigError(f"{flag(name)} is for runs of {trained}; leave it out")
    settings = EvaluationSettings(
        split=split, samples=samples, checkpoint=checkpoint, seed=seed, device=device
    )
    found = evaluate(task, run, settings, task.evaluate_options(**options))
    if json is None or str(json) != "-":
        print(describe(task, found))
    if json is not None:
        write_json(found.as_json(), json)


def _names(options: type) -> set[str]:
    return {item.name for item in fields(options)}


def measure_uncertainty(
    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(help="folders of runs, or files of prune --out"),
    ],
    samples: Annotated[
        str | None,
        tyro.conf.arg(
            metavar="N,N,...",
            help="numbers of draws; 0: the mean weights (default: 0,1,2,5,10,20; captions: 0,10)",
            help_behavior_hint="",
        ),
    ] = None,
    json: JsonFile = None,
    html: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FILE",
            help="also write a page with all figures and charts; it needs no other file",
            help_behavior_hint="",
        ),
    ] = None,
    shift: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        tyro.conf.arg(
            metavar="NAME|PATH",
            help="one more shifted text: a corpus by name or folder (its test text), or a text "
            "file; may be given several times",
            help_behavior_hint="",
        ),
    ] = (),
    random_words: Annotated[
        float | None,
        tyro.conf.arg(
            metavar="X",
            help="share of the words that random ones replace (default: 0.2)",
            help_behavior_hint="",
        ),
    ] = None,
    window: Annotated[
        int | None,
        tyro.conf.arg(
            metavar="N",
            help="words per window when texts are told apart (default: 20)",
            help_behavior_hint="",
        ),
    ] = None,
    split: Annotated[
        Literal["train", "valid", "test"], tyro.conf.arg(help="which part of the data is regular")
    ] = "test",
    streams: Annotated[
        int | None,
        tyro.conf.arg(
            metavar="N",
            help="parts of each text read side by side; 1 is exact, more are faster (default: 1)",
            help_behavior_hint="",
        ),
    ] = None,
    bootstrap: Annotated[
        int, tyro.conf.arg(metavar="N", help="resamples behind the intervals; 0: none")
    ] = 1000,
    temperature_words: Annotated[
        int | None,
        tyro.conf.arg(
            metavar="N",
            help="words of the validation text to fit the temperature to (default: 10000)",
            help_behavior_hint="",
        ),
    ] = None,
    coco: Annotated[
        int | None,
        tyro.conf.arg(
            metavar="N",
            help="captions: tell at most so many images of COCO from those of the run's data, 0: "
            "none (default: all, if the data folder has them)",
            help_behavior_hint="",
        ),
    ] = None,
    checkpoint: Checkpoint = "best",
    seed: Annotated[int, tyro.conf.arg(help="seed of draws, shifts and resamples")] = 1,
    device: Device = "auto",
) -> None:
    """Measure whether language models, or captioners, know what they do not know.

    Of texts: entropy gap, calibration, and how well reversed and otherwise shifted text is told
    from regular text. Of captions: CIDEr when the least certain ones are withheld, how far
    confidence follows CIDEr, and how well images of COCO are told from those of the run's data;
    with 10 draws and all images of COCO that takes about five minutes a run on one core.

    bayesrnn uncertainty runs/plain runs/bbb --shift my-other-book.txt --html uncertainty.html
    """
    for_texts = {
        "random_words": random_words,
        "window": window,
        "streams": streams,
        "temperature_words": temperature_words,
    }
    common: dict[str, Any] = {"split": split, "bootstrap": bootstrap, "seed": seed}
    if samples is not None:
        common["samples"] = sample_counts(samples)
    where = (html, json, checkpoint, device)
    if are_captioners(runs):
        refuse_given({"shift": shift or None, **for_texts}, "language models, not for captioners")
        text = caption_uncertainty_report(runs, CaptionDoubtSettings(coco=coco, **common), *where)
    else:
        refuse_given({"coco": coco}, "captioners, not for language models")
        given: dict[str, Any] = {k: value for k, value in for_texts.items() if value is not None}
        settings = UncertaintySettings(shifts=shift, **given, **common)
        text = uncertainty_report(runs, settings, *where)
    if str(json) != "-":
        print(text)


def compare_runs(
    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(help="folders of runs")],
    out: Annotated[
        Path | None,
        tyro.conf.arg(help="also write a page here, or the chart alone if it ends in .svg"),
    ] = None,
) -> None:
    """Compare runs: a table, and learning curves in one self-contained page.

    bayesrnn compare runs/* --out comparison.html
    """
    if not runs:
        raise ConfigError("no run was given to compare; give the folders of one or more runs")
    for run in runs:
        if run.is_file():
            raise ConfigError(f"{run} is a file; compare takes the folders of runs")
    print(compare([read_summary(task_of(run), run) for run in runs], out))
