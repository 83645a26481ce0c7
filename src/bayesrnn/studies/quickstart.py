"""The whole story in minutes: train three methods on the embedded novel and compare them."""

import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bayesrnn.data.vocabulary import EOS, UNK
from bayesrnn.options import CheckedOptions, option
from bayesrnn.progress import say
from bayesrnn.report.heat import wants_colour
from bayesrnn.report.page import Section
from bayesrnn.runs.arguments import seed_option
from bayesrnn.runs.compare import compare, curves
from bayesrnn.runs.evaluate import evaluate
from bayesrnn.runs.output import columns
from bayesrnn.runs.start import RunArguments, train_run
from bayesrnn.runs.summary import read_summary
from bayesrnn.tasks.lm.generate import continuation, prompt_tokens
from bayesrnn.tasks.lm.inspect import inspected
from bayesrnn.tasks.lm.inspect_report import inspection_sections, inspection_text
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.tasks.lm.trained import TrainedLanguageModel

SHOWN_METHODS = ("plain", "dropout", "bbb")
PROMPT = "it is a truth universally acknowledged, that"

#: Sentences of the validation text that are inspected, words in each, and rows of the tables.
_SENTENCES = 3
_LENGTHS = range(8, 19)
_TOP = 5


@dataclass(frozen=True, kw_only=True)
class QuickstartOptions(CheckedOptions):
    """Where to, and from which seed."""

    out: Path = option(Path("quickstart"), "folder for the runs and the page")
    seed: int = seed_option("root of all randomness")


def quickstart(options: QuickstartOptions) -> None:
    """Train, compare, write, and inspect. What an earlier call did is not done again."""
    out, seed = options.out, options.seed
    runs = [out / method for method in SHOWN_METHODS]
    for number, (method, run) in enumerate(zip(SHOWN_METHODS, runs, strict=True), start=1):
        say(f"\n[{number}/{len(SHOWN_METHODS)}] {method} on Pride and Prejudice")
        given = {"method": method, "size": "tiny", "seed": seed}
        train_run(TASK, RunArguments(out=run, resume=True), given)
        evaluate(TASK, run)
    trained = TASK.open_run(runs[-1])
    prompt = prompt_tokens(PROMPT, trained.tokeniser)
    text = trained.tokeniser.text(continuation(trained, prompt, 60, seed=seed))
    scaling = trained.scaling(samples=10)
    sentences = some_sentences(trained)
    seen = inspected(trained, sentences, samples=10, top=_TOP, seed=seed, scaling=scaling)
    page = out / "comparison.html"
    sections = [
        Section("Text that bbb wrote", text),
        *inspection_sections(seen, _TOP, "What bbb expected of sentences that it had not seen"),
    ]
    summaries = [read_summary(TASK, run) for run in runs]
    print(f"\n{compare(summaries, page, sections)}")
    (out / "curves.svg").write_text(curves(summaries), encoding="utf-8")
    print(f"\nbbb writes:\n\n{text}\n\nwhat bbb expected of sentences that it had not seen:\n")
    print(inspection_text(seen, _TOP, wants_colour(sys.stdout), columns()))
    print(f"\nThe page with the learning curves: {page}")


def some_sentences(trained: TrainedLanguageModel) -> list[str]:
    """The first sentences of the validation text of middling length without unknown words."""
    text = " ".join(trained.vocabulary.decode(trained.corpus().valid))
    sentences = (sentence.split() for sentence in text.split(EOS))
    chosen = (words for words in sentences if len(words) in _LENGTHS and UNK not in words)
    return [word for words in islice(chosen, _SENTENCES) for word in (*words, EOS)]
