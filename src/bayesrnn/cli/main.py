"""The command line: which word runs which function of commands/."""

import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

import tyro

from bayesrnn import __version__
from bayesrnn.cli.commands import compare_runs, evaluate_run, measure_uncertainty
from bayesrnn.cli.training import train_captioner, train_digits, train_lm, train_reader
from bayesrnn.errors import BayesRNNError
from bayesrnn.progress import say
from bayesrnn.studies.commands import reproduce_penn_treebank, run_bench, run_quickstart
from bayesrnn.tasks.captions.commands import caption_photographs
from bayesrnn.tasks.lm.commands import (
    generate_text,
    inspect_run,
    prune_weights,
    tune_dynamic_evaluation,
)
from bayesrnn.tasks.lm.dynamic_settings import RULES
from bayesrnn.tasks.sentiment.commands import predict_ratings
from bayesrnn.training.process import Interrupted, keep_freed_memory

app = tyro.extras.SubcommandApp()
train_app = tyro.extras.SubcommandApp()
reproduce_app = tyro.extras.SubcommandApp()
app.command(train_app, name="train", help="Train a network: the next word says for which task.")
train_app.command(name="lm")(train_lm)
train_app.command(name="mnist")(train_digits)
train_app.command(name="sentiment")(train_reader)
train_app.command(name="captions")(train_captioner)
app.command(name="evaluate")(evaluate_run)
app.command(name="tune-dynamic")(tune_dynamic_evaluation)
app.command(name="generate")(generate_text)
app.command(name="predict")(predict_ratings)
app.command(name="inspect")(inspect_run)
app.command(name="caption")(caption_photographs)
app.command(name="uncertainty")(measure_uncertainty)
app.command(name="prune")(prune_weights)
app.command(name="compare")(compare_runs)
app.command(name="quickstart")(run_quickstart)
app.command(
    reproduce_app, name="reproduce", help="Make published results again: the next word says which."
)
reproduce_app.command(name="ptb")(reproduce_penn_treebank)
app.command(name="bench")(run_bench)


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
