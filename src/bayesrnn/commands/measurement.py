"""Commands that measure runs, networks and the program itself."""

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from bayesrnn.commands.arguments import (
    Checkpoint,
    Device,
    JsonFile,
    Run,
)
from bayesrnn.errors import ConfigError
from bayesrnn.tasks.bench import bench
from bayesrnn.tasks.bench_pruned import bench_pruned
from bayesrnn.tasks.caption_uncertainty import (
    CaptionDoubtSettings,
    are_captioners,
    caption_uncertainty_report,
)
from bayesrnn.tasks.compare import compare
from bayesrnn.tasks.options import name_list, refuse_given
from bayesrnn.tasks.output import write_json
from bayesrnn.tasks.prune import prune_report
from bayesrnn.tasks.prune_settings import PruneSettings, fraction_list
from bayesrnn.tasks.uncertainty import UncertaintySettings, sample_counts, uncertainty_report


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
    print(compare(runs, out))


def run_bench(
    json: JsonFile = None,
    steps: Annotated[int, tyro.conf.arg(help="measured steps of each method")] = 40,
    threads: Annotated[int | None, tyro.conf.arg(help="processor threads")] = None,
    pruned: Annotated[
        bool, tyro.conf.arg(help="measure inference with pruned networks instead, against dense")
    ] = False,
    methods: Annotated[
        str,
        tyro.conf.arg(
            metavar="NAME,NAME,...", help="measure only these, beside plain", help_behavior_hint=""
        ),
    ] = "",
) -> None:
    """Measure training speed and memory of the methods against plain training.

    bayesrnn bench --methods bbb,variational-dropout --json bench.json
    """
    if pruned and methods:
        raise ConfigError("--methods is for training; --pruned measures pruned networks, leave it")
    names = name_list(methods, "methods")
    result = bench_pruned(steps, threads) if pruned else bench(steps, threads, names)
    if json is not None:
        write_json(result, json)
