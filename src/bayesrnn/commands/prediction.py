"""Commands that predict with a trained network, and say how well it does."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from bayesrnn.commands.arguments import (
    Checkpoint,
    Device,
    JsonFile,
    Run,
    RunOrFile,
    Samples,
    Seed,
    Segment,
)
from bayesrnn.errors import ConfigError
from bayesrnn.tasks.caption import caption_images
from bayesrnn.tasks.dynamic import DynamicOptions, DynamicRule, tune_dynamic
from bayesrnn.tasks.evaluate import evaluate
from bayesrnn.tasks.generate import generate
from bayesrnn.tasks.inspect import inspect_text
from bayesrnn.tasks.output import write_json
from bayesrnn.tasks.predict import predict_texts
from bayesrnn.tasks.rows import describe


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
        int,
        tyro.conf.arg(help="parts of the text read side by side; 1 is exact, more are faster"),
    ] = 1,
    unroll: Annotated[int, tyro.conf.arg(help="words per step; does not change the result")] = 100,
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
    meteor: Annotated[
        bool, tyro.conf.arg(help="captions: METEOR as well, which needs an extra and Java")
    ] = False,
    spice: Annotated[
        bool, tyro.conf.arg(help="captions: SPICE as well, which needs an extra and Java 8")
    ] = False,
) -> None:
    """Measure how well a run predicts.

    Perplexity for text; error and calibration for images and labels; error and intervals for
    ratings; perplexity, BLEU, ROUGE-L and CIDEr for captions.

    bayesrnn evaluate runs/mine --samples 10 --json result.json
    """
    options = DynamicOptions(dynamic or "sgd", dynamic_lr, dynamic_decay, dynamic_segment)
    if dynamic is None and options != DynamicOptions():
        raise ConfigError("--dynamic-lr, -decay and -segment belong to --dynamic; add it")
    result = evaluate(
        *(run, split, samples, checkpoint, streams, unroll, seed, device),
        options if dynamic is not None else None,
        beam,
        [name for name, wanted in {"METEOR": meteor, "SPICE": spice}.items() if wanted],
    )
    if json is None or str(json) != "-":
        print(describe(result))
    if json is not None:
        write_json(result, json)


def tune_dynamic_evaluation(
    run: Run,
    rule: Annotated[DynamicRule, tyro.conf.arg(help="the kind of update")] = "sgd",
    segment: Segment = None,
    words: Annotated[int, tyro.conf.arg(help="words of the validation text to tune on")] = 20_000,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
) -> None:
    """Find settings for `evaluate --dynamic` on the validation text, and keep them in the run.

    bayesrnn tune-dynamic runs/mine --rule rms
    """
    print(tune_dynamic(run, rule, segment, words, checkpoint, device))


def generate_text(
    run: RunOrFile,
    prompt: Annotated[str, tyro.conf.arg(help="how the text begins")] = "",
    words: Annotated[int, tyro.conf.arg(help="how many words to add")] = 50,
    temperature: Annotated[
        float, tyro.conf.arg(help="below 1 safer, above 1 wilder, 0 always the likeliest word")
    ] = 1.0,
    top_k: Annotated[
        int, tyro.conf.arg(help="choose among this many likeliest words only; 0: among all")
    ] = 0,
    seed: Annotated[int, tyro.conf.arg(help="another seed gives another text")] = 1,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
) -> None:
    """Write on where a prompt ends.

    bayesrnn generate runs/mine --prompt "it is a truth" --words 50
    """
    print(generate(run, prompt, words, temperature, top_k, seed, checkpoint, device))


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


def inspect_run(
    run: RunOrFile,
    text: Annotated[
        str | None,
        tyro.conf.arg(metavar="TEXT", help="the text to look at", help_behavior_hint=""),
    ] = None,
    file: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FILE", help="or a file with the text (UTF-8)", help_behavior_hint=""
        ),
    ] = None,
    html: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FILE",
            help="also write a page with the words shaded; it needs no other file",
            help_behavior_hint="",
        ),
    ] = None,
    json: JsonFile = None,
    samples: Samples = 20,
    top: Annotated[int, tyro.conf.arg(help="rows of the tables")] = 5,
    checkpoint: Checkpoint = "best",
    seed: Seed = 1,
    device: Device = "auto",
) -> None:
    """Show how probable each word of a text was, how sure the run was, and what may come next.

    bayesrnn inspect runs/mine --text "it is a truth universally acknowledged" --html page.html
    """
    shown = inspect_text(run, text, file, samples, top, html, json, checkpoint, seed, device)
    if str(json) != "-":
        print(shown)


def caption_photographs(
    run: Run,
    image: Annotated[
        tuple[Path, ...],
        tyro.conf.arg(metavar="FILE...", help="image files, or folders of them"),
    ],
    best: Annotated[
        int, tyro.conf.arg(metavar="N", help="how many captions of each image to show, up to 100")
    ] = 3,
    samples: Annotated[
        int,
        tyro.conf.arg(
            help="draws of the network whose predictions are averaged and compared; 0: the mean "
            "weights alone. All are in memory at once, of bbb each as large as the network (20 MB "
            "at the default size)"
        ),
    ] = 20,
    beam: Annotated[
        int,
        tyro.conf.arg(
            metavar="N",
            help="how many unfinished captions the search pursues, up to 100; at least as many as "
            "are shown",
        ),
    ] = 3,
    html: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FILE",
            help="also write a page with the pictures and shaded words; it needs no other file",
            help_behavior_hint="",
        ),
    ] = None,
    json: JsonFile = None,
    checkpoint: Checkpoint = "best",
    seed: Seed = 1,
    device: Device = "auto",
) -> None:
    """Say what images show, how sure the run is of each word, and where its draws disagree.

    For runs of `bayesrnn train captions`. Needs an extra, pip install 'bayesrnn[captions]', which
    brings the image network, and runs it here: no image leaves this machine.

    bayesrnn caption runs/mine --image dog.jpg holidays/ --html page.html
    """
    shown = caption_images(*(run, image, best, samples, beam, html, json, checkpoint, seed, device))
    if str(json) != "-":
        print(shown)
