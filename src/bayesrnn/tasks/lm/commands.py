"""Commands for language models alone."""

from bayesrnn.runs.options import command
from bayesrnn.tasks.lm.generate import GenerateOptions, generate
from bayesrnn.tasks.lm.inspect import InspectOptions, inspect_text
from bayesrnn.tasks.lm.tune_dynamic import TuneOptions, tune_dynamic
from bayesrnn.tasks.lm.tune_sharpening import TuneSharpeningOptions, tune_sharpening


@command(TuneOptions)
def tune_dynamic_evaluation(options: TuneOptions) -> None:
    """Find settings for `evaluate --dynamic` on the validation text, and keep them in the run.

    bayesrnn tune-dynamic runs/mine --rule rms
    """
    print(tune_dynamic(options))


@command(TuneSharpeningOptions)
def tune_sharpening_settings(options: TuneSharpeningOptions) -> None:
    """Find settings for `evaluate --sharpen` on the validation text, and keep them in the run.

    bayesrnn tune-sharpening runs/mine
    """
    print(tune_sharpening(options))


@command(GenerateOptions)
def generate_text(options: GenerateOptions) -> None:
    """Write on where a prompt ends.

    bayesrnn generate runs/mine --prompt "it is a truth" --words 50
    """
    print(generate(options))


@command(InspectOptions)
def inspect_run(options: InspectOptions) -> None:
    """Show how probable each word of a text was, how sure the run was, and what may come next.

    bayesrnn inspect runs/mine --text "it is a truth universally acknowledged" --html page.html
    """
    options.show(inspect_text(options))
