"""Evaluate a run of any task on data that it did not train on."""

from collections.abc import Sequence
from pathlib import Path

from bayesrnn.data.files import SPLITS
from bayesrnn.errors import ConfigError
from bayesrnn.runs.evaluation import Row
from bayesrnn.runs.load import task_name
from bayesrnn.tasks.captions.evaluate import DEFAULT_BEAM, evaluate_captions
from bayesrnn.tasks.captions.task import CaptionsTask, load_captions_run
from bayesrnn.tasks.lm.dynamic_settings import DynamicOptions
from bayesrnn.tasks.lm.evaluate import evaluate_text
from bayesrnn.tasks.lm.task import LanguageModelTask, load_language_model
from bayesrnn.tasks.mnist.evaluate import evaluate_images
from bayesrnn.tasks.mnist.task import MnistTask, load_mnist_run
from bayesrnn.tasks.sentiment.evaluate import evaluate_sentiment
from bayesrnn.tasks.sentiment.task import SentimentTask, load_sentiment_run
from bayesrnn.training.run_directory import RunDirectory

#: Tasks whose examples do not follow each other, and what to say of them.
_NOT_DYNAMIC = {
    CaptionsTask.name: "captions of images do not follow each other",
    MnistTask.name: "images do not follow each other",
    SentimentTask.name: "texts with a rating do not follow each other",
}

#: What is kept with the figures of a row, but not shown.
_KEPT_ONLY = ("captions", "made_from")


def evaluate(
    run: Path,
    split: str = "test",
    samples: int = 0,
    checkpoint: str = "best",
    streams: int = 1,
    unroll: int = 100,
    seed: int = 1,
    device: str = "auto",
    dynamic: DynamicOptions | None = None,
    beam: int | None = None,
    official: Sequence[str] = (),
) -> Row:
    """The figures of a run, a row for each way of prediction; kept in the run's results as well.

    The file of a pruned network has no folder for results: its figures are kept nowhere. The
    figures of the row that was asked for also stand at the top of the result.
    """
    if samples < 0:
        raise ConfigError(f"--samples is {samples}; it has to be 0 (the mean) or more")
    if split not in SPLITS:
        raise ConfigError(f"--split is {split}; there are: {', '.join(SPLITS)}")
    in_folder = not run.is_file()
    task = task_name(run) if in_folder else LanguageModelTask.name
    if dynamic is not None and task in _NOT_DYNAMIC:
        raise ConfigError(f"--dynamic is for language models: {_NOT_DYNAMIC[task]}")
    if task != CaptionsTask.name and (beam is not None or official):
        given = "--beam" if beam is not None else f"--{official[0].lower()}"
        raise ConfigError(f"{given} is for runs of `bayesrnn train captions`; leave it out")
    if task == CaptionsTask.name:
        captioner = load_captions_run(run, checkpoint, device)
        beam = DEFAULT_BEAM if beam is None else beam
        found = evaluate_captions(captioner, split, samples, seed, beam, official)
    elif task == SentimentTask.name:
        found = evaluate_sentiment(
            load_sentiment_run(run, checkpoint, device), split, samples, seed
        )
    elif task == MnistTask.name:
        found = evaluate_images(load_mnist_run(run, checkpoint, device), split, samples, seed)
    else:
        # Dynamic evaluation learns, so it needs all of the network.
        trained = load_language_model(run, checkpoint, device, for_inference=dynamic is None)
        found = evaluate_text(trained, split, samples, streams, unroll, seed, dynamic)
    rows = found.pop("rows")
    for row in rows if in_folder else ():
        RunDirectory(run).write_result(f"{split}-{row['inference']}", {**found, **row})
        for name in _KEPT_ONLY:
            row.pop(name, None)
    fitting = (row for row in rows if row["samples"] == samples)
    asked = rows[-1] if dynamic is not None else next(fitting)
    return {**found, **asked, "rows": rows}
