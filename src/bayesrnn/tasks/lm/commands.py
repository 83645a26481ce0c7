"""Commands for language models alone."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from bayesrnn.runs.arguments import (
    Checkpoint,
    Device,
    JsonFile,
    Run,
    RunOrFile,
    Samples,
    Seed,
    Segment,
)
from bayesrnn.runs.options import name_list
from bayesrnn.tasks.lm.dynamic_settings import DynamicRule
from bayesrnn.tasks.lm.generate import generate
from bayesrnn.tasks.lm.inspect import inspect_text
from bayesrnn.tasks.lm.prune import prune_report
from bayesrnn.tasks.lm.prune_settings import PruneSettings, fraction_list
from bayesrnn.tasks.lm.tune_dynamic import tune_dynamic


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


def prune_weights(
    run: Run,
    fractions: Annotated[
        str, tyro.conf.arg(metavar="X,X,...", help="shares of the weights to drop, from 0 to 1")
    ] = "0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.95,0.99",
    keep_quality: Annotated[
        float | None,
        tyro.conf.arg(
            metavar="X",
            help="also find the largest share that can be dropped while the perplexity grows by "
            "at most this: 0.01 is 1%",
            help_behavior_hint="",
        ),
    ] = None,
    fraction: Annotated[
        float | None,
        tyro.conf.arg(
            metavar="X",
            help="drop this share in what is shown and written, in place of --keep-quality",
            help_behavior_hint="",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FILE",
            help="write the pruned network to this small file, which evaluate, generate, inspect "
            "and uncertainty take in place of a run",
            help_behavior_hint="",
        ),
    ] = None,
    values: Annotated[
        Literal["float32", "float16", "int8"],
        tyro.conf.arg(help="of the weights in the file; float32 is exact"),
    ] = "float32",
    fine_tune: Annotated[
        int,
        tyro.conf.arg(
            metavar="N",
            help="train what is left for so many epochs before it is written; dropped weights "
            "stay dropped",
        ),
    ] = 0,
    fine_tune_lr: Annotated[
        float, tyro.conf.arg(metavar="X", help="learning rate of that training")
    ] = 0.1,
    only: Annotated[
        str,
        tyro.conf.arg(
            metavar="NAME,NAME,...",
            help="drop weights of these matrices alone, * for anything: 'embedding*,output*'; "
            "shares are then of those",
            help_behavior_hint="",
        ),
    ] = "",
    per_tensor: Annotated[
        bool,
        tyro.conf.arg(help="rank the weights in each tensor by itself, not over the whole network"),
    ] = False,
    json: JsonFile = None,
    html: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FILE",
            help="also write a page with the curve and pictures of what is left; it needs no "
            "other file",
            help_behavior_hint="",
        ),
    ] = None,
    split: Annotated[
        Literal["train", "valid", "test"],
        tyro.conf.arg(help="which part of the data; what was chosen on test says less about it"),
    ] = "valid",
    streams: Annotated[
        int,
        tyro.conf.arg(
            metavar="N", help="parts of the text read side by side; 1 is exact, more are faster"
        ),
    ] = 20,
    checkpoint: Checkpoint = "best",
    seed: Annotated[int, tyro.conf.arg(help="seed of the random order")] = 1,
    device: Device = "auto",
) -> None:
    """Find out how many weights a language model can lose: perplexity against the share dropped.

    Weights are dropped in the order of |mean| / sigma where there is a posterior, of their
    magnitude, and at random. The run stays as it is.

    bayesrnn prune runs/mine --keep-quality 0.01 --html pruning.html --out small.safetensors
    """
    settings = PruneSettings(
        fractions=fraction_list(fractions),
        keep_quality=keep_quality,
        fraction=fraction,
        only=name_list(only, "only"),
        per_tensor=per_tensor,
        values=values,
        fine_tune=fine_tune,
        fine_tune_lr=fine_tune_lr,
        split=split,
        streams=streams,
        seed=seed,
    )
    text = prune_report(run, settings, html, json, checkpoint, device, out)
    if str(json) != "-":
        print(text)
