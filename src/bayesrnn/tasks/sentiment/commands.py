"""Commands for readers of texts alone."""

from pathlib import Path
from typing import Annotated

import tyro

from bayesrnn.runs.arguments import Checkpoint, Device, JsonFile, Run, Samples, Seed
from bayesrnn.tasks.sentiment.predict import predict_texts


def predict_ratings(
    run: Run,
    text: Annotated[
        str | None,
        tyro.conf.arg(metavar="TEXT", help="the text to rate or to label", help_behavior_hint=""),
    ] = None,
    file: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FILE",
            help="or a file with one text a line (UTF-8); - for standard input",
            help_behavior_hint="",
        ),
    ] = None,
    samples: Samples = 20,
    interval: Annotated[
        float,
        tyro.conf.arg(
            metavar="X", help="share of the predicted probability that lies in the interval"
        ),
    ] = 0.9,
    json: JsonFile = None,
    checkpoint: Checkpoint = "best",
    seed: Seed = 1,
    device: Device = "auto",
) -> None:
    """Predict the rating of a text with an interval, or the probabilities of its labels.

    For runs of `bayesrnn train sentiment`. Longer texts are cut into the segments that the run was
    trained on, and averaged. How much of the doubt is epistemic, which more data could reduce, and
    how many words the run does not know, is told as well.

    bayesrnn predict runs/mine --text "a fine film, if a little long"
    """
    shown = predict_texts(run, text, file, samples, interval, json, checkpoint, seed, device)
    if str(json) != "-":
        print(shown)
