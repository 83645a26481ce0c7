"""The command line: maps commands to functions in tasks/."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from bayesrnn import __version__
from bayesrnn.errors import BayesRNNError, ConfigError
from bayesrnn.progress import say
from bayesrnn.tasks.bench import bench
from bayesrnn.tasks.bench_pruned import bench_pruned
from bayesrnn.tasks.compare import compare
from bayesrnn.tasks.dynamic import RULES, DynamicOptions, DynamicRule, tune_dynamic
from bayesrnn.tasks.evaluate import evaluate
from bayesrnn.tasks.generate import generate
from bayesrnn.tasks.inspect import inspect_text
from bayesrnn.tasks.language_model import train_language_model
from bayesrnn.tasks.language_model_config import LanguageModelConfig
from bayesrnn.tasks.mnist import MnistConfig, train_mnist
from bayesrnn.tasks.options import command_line_type, given_options
from bayesrnn.tasks.output import write_json
from bayesrnn.tasks.prune import PruneSettings, fraction_list, prune_report
from bayesrnn.tasks.quickstart import quickstart
from bayesrnn.tasks.rows import describe
from bayesrnn.tasks.runs import RunArguments
from bayesrnn.tasks.uncertainty import UncertaintySettings, sample_counts, uncertainty_report
from bayesrnn.training import Interrupted, keep_freed_memory

app = tyro.extras.SubcommandApp()
train_app = tyro.extras.SubcommandApp()
app.command(train_app, name="train", help="Train a network: the next word says for which task.")

Run = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(help="folder of a run")]
RunOrFile = Annotated[
    tyro.conf.Positional[Path], tyro.conf.arg(help="folder of a run, or a file of prune --out")
]
Checkpoint = Annotated[str, tyro.conf.arg(help="best, last or a step")]
Device = Annotated[Literal["auto", "cpu", "cuda", "mps"], tyro.conf.arg(help="where to compute")]
JsonFile = Annotated[
    Path | None, tyro.conf.arg(help="also write the result to this file as JSON; - for the screen")
]

Segment = Annotated[
    int | None,
    tyro.conf.arg(
        metavar="N",
        help="dynamic evaluation: words between updates (default: as tuned, else 5)",
        help_behavior_hint="",
    ),
]

_BY_RECIPE = "Options left out follow the recipe of the method (and the size)."
LanguageModelArguments = command_line_type(
    "LanguageModelArguments", (RunArguments, LanguageModelConfig), _BY_RECIPE
)
MnistArguments = command_line_type("MnistArguments", (RunArguments, MnistConfig), _BY_RECIPE)


@train_app.command(name="lm")
def train_lm(
    training: tyro.conf.OmitArgPrefixes[LanguageModelArguments],  # type: ignore[valid-type]
) -> None:
    """Train a language model, word by word.

    bayesrnn train lm --corpus my-novel.txt --method bbb --size tiny
    """
    _train(train_language_model, training)


@train_app.command(name="mnist")
def train_digits(
    training: tyro.conf.OmitArgPrefixes[MnistArguments],  # type: ignore[valid-type]
) -> None:
    """Train a feed-forward network to tell handwritten digits apart.

    bayesrnn train mnist --method bbb --epochs 20
    """
    _train(train_mnist, training)


def _train(train: Callable[[RunArguments, dict[str, Any]], Path], training: Any) -> None:
    given = given_options(training)
    run = {f.name: given.pop(f.name) for f in fields(RunArguments) if f.name in given}
    path = train(RunArguments(**run), given)
    say(f"the run is in {path}; next: bayesrnn evaluate {path}")


@app.command(name="evaluate")
def evaluate_run(
    run: RunOrFile,
    split: Annotated[
        Literal["train", "valid", "test"], tyro.conf.arg(help="which part of the data")
    ] = "test",
    samples: Annotated[
        int,
        tyro.conf.arg(
            help="0: the mean weights; N: average the probabilities of N draws. A run of sharpened "
            "shows both in any case (10 draws if this is 0), and a bound"
        ),
    ] = 0,
    json: JsonFile = None,
    checkpoint: Checkpoint = "best",
    streams: Annotated[
        int,
        tyro.conf.arg(help="parts of the text read side by side; 1 is exact, more are faster"),
    ] = 1,
    unroll: Annotated[int, tyro.conf.arg(help="words per step; does not change the result")] = 100,
    seed: Annotated[int, tyro.conf.arg(help="seed of the draws")] = 1,
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
) -> None:
    """Measure how well a run predicts: perplexity for text; error and calibration for images.

    bayesrnn evaluate runs/mine --samples 10 --json result.json
    """
    options = DynamicOptions(dynamic or "sgd", dynamic_lr, dynamic_decay, dynamic_segment)
    if dynamic is None and options != DynamicOptions():
        raise ConfigError("--dynamic-lr, -decay and -segment belong to --dynamic; add it")
    result = evaluate(
        *(run, split, samples, checkpoint, streams, unroll, seed, device),
        options if dynamic is not None else None,
    )
    if json is None or str(json) != "-":
        print(describe(result))
    if json is not None:
        write_json(result, json)


@app.command(name="tune-dynamic")
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


@app.command(name="generate")
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


@app.command(name="inspect")
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
    samples: Annotated[
        int,
        tyro.conf.arg(
            help="draws of the network whose predictions are averaged and compared; 0: the mean "
            "weights alone, which have no doubts about themselves"
        ),
    ] = 20,
    top: Annotated[int, tyro.conf.arg(help="rows of the tables")] = 5,
    checkpoint: Checkpoint = "best",
    seed: Annotated[int, tyro.conf.arg(help="seed of the draws")] = 1,
    device: Device = "auto",
) -> None:
    """Show how probable each word of a text was, how sure the run was, and what may come next.

    bayesrnn inspect runs/mine --text "it is a truth universally acknowledged" --html page.html
    """
    shown = inspect_text(run, text, file, samples, top, html, json, checkpoint, seed, device)
    if str(json) != "-":
        print(shown)


@app.command(name="uncertainty")
def measure_uncertainty(
    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(help="folders of runs, or files of prune --out"),
    ],
    samples: Annotated[
        str, tyro.conf.arg(metavar="N,N,...", help="numbers of draws; 0: the mean weights")
    ] = "0,1,2,5,10,20",
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
        float, tyro.conf.arg(metavar="X", help="share of the words that random ones replace")
    ] = 0.2,
    window: Annotated[
        int, tyro.conf.arg(metavar="N", help="words per window when texts are told apart")
    ] = 20,
    split: Annotated[
        Literal["train", "valid", "test"], tyro.conf.arg(help="which part of the data is regular")
    ] = "test",
    streams: Annotated[
        int,
        tyro.conf.arg(
            metavar="N",
            help="parts of each text read side by side; 1 is exact, more are faster",
        ),
    ] = 1,
    bootstrap: Annotated[
        int, tyro.conf.arg(metavar="N", help="resamples behind the intervals; 0: none")
    ] = 1000,
    temperature_words: Annotated[
        int,
        tyro.conf.arg(metavar="N", help="words of the validation text to fit the temperature to"),
    ] = 10_000,
    checkpoint: Checkpoint = "best",
    seed: Annotated[int, tyro.conf.arg(help="seed of draws, shifts and resamples")] = 1,
    device: Device = "auto",
) -> None:
    """Measure whether runs know what they do not know, on reversed and otherwise shifted text.

    Entropy gap, calibration, and how well shifted text is told from regular text.

    bayesrnn uncertainty runs/plain runs/bbb --shift my-other-book.txt --html uncertainty.html
    """
    settings = UncertaintySettings(
        samples=sample_counts(samples),
        shifts=shift,
        random_words=random_words,
        window=window,
        streams=streams,
        bootstrap=bootstrap,
        temperature_words=temperature_words,
        split=split,
        seed=seed,
    )
    text = uncertainty_report(runs, settings, html, json, checkpoint, device)
    if str(json) != "-":
        print(text)


@app.command(name="prune")
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


@app.command(name="compare")
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


@app.command(name="quickstart")
def run_quickstart(
    out: Annotated[Path, tyro.conf.arg(help="folder for the runs and the page")] = Path(
        "quickstart"
    ),
    seed: Annotated[int, tyro.conf.arg(help="root of all randomness")] = 1,
) -> None:
    """Train three methods on an embedded novel and compare them, in minutes."""
    quickstart(out, seed)


@app.command(name="bench")
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
    names = [name.strip() for name in methods.split(",") if name.strip()]
    result = bench_pruned(steps, threads) if pruned else bench(steps, threads, names)
    if json is not None:
        write_json(result, json)


def _with_default_rule(arguments: Sequence[str]) -> list[str]:
    """`--dynamic` alone means `--dynamic sgd`."""
    spelt = list(arguments)
    if "--dynamic" in spelt:
        place = spelt.index("--dynamic") + 1
        following = spelt[place] if place < len(spelt) else "-"
        # The folder of a run may follow; any other word is a rule, or meant as one.
        if following.startswith("-") or (following not in RULES and Path(following).exists()):
            spelt.insert(place, RULES[0])
    return spelt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code. A user's mistake is one line, not a traceback."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments) == ["--version"]:
        print(f"bayesrnn {__version__}")
        return 0
    keep_freed_memory()
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal that knows only ASCII gets a question mark for a sign that it cannot show.
        sys.stdout.reconfigure(errors="replace")
    try:
        app.cli(
            prog="bayesrnn",
            description="Bayesian recurrent neural networks.",
            args=_with_default_rule(arguments),
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except Interrupted as stopped:
        say(str(stopped))
        return 128 + stopped.signal_number
    except BayesRNNError as error:
        print(f"bayesrnn: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bayesrnn: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`bayesrnn ... | head`): nobody is left to tell.
        sys.stderr.close()
        return 141
    return 0
