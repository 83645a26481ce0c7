"""The whole story in minutes: train three methods on the embedded novel and compare them."""

import sys
from html import escape
from pathlib import Path

from bayesrnn.data.text import detokenize
from bayesrnn.progress import say
from bayesrnn.report.highlights import marked_html, marked_text
from bayesrnn.report.page import Section
from bayesrnn.runs.compare import compare, curves
from bayesrnn.runs.evaluate import evaluate
from bayesrnn.runs.evaluation import EvaluationSettings
from bayesrnn.runs.start import RunArguments, train_run
from bayesrnn.runs.summary import read_summary
from bayesrnn.studies.doubts import doubtful_sentences
from bayesrnn.tasks.lm.generate import continuation, prompt_tokens
from bayesrnn.tasks.lm.task import TASK

METHODS = ("plain", "dropout", "bbb")
PROMPT = "it is a truth universally acknowledged, that"


def quickstart(out: Path, seed: int) -> None:
    """Train, compare, write, and show doubts. What an earlier call did is not done again."""
    runs = [out / method for method in METHODS]
    for number, (method, run) in enumerate(zip(METHODS, runs, strict=True), start=1):
        say(f"\n[{number}/{len(METHODS)}] {method} on Pride and Prejudice")
        given = {"method": method, "size": "tiny", "seed": seed}
        train_run(TASK, RunArguments(out=run, resume=True), given)
        evaluate(TASK, run)
    trained = TASK.open_run(runs[-1])
    evaluate(TASK, runs[-1], EvaluationSettings(samples=10))
    text = detokenize(
        continuation(trained, prompt_tokens(PROMPT, trained.vocabulary), 60, seed=seed)
    )
    doubts = doubtful_sentences(trained)
    page = out / "comparison.html"
    sections = [
        Section("Text that bbb wrote", f"<p>{escape(text)}</p>"),
        Section(
            "Where bbb was least sure of the next word",
            "".join(marked_html(doubt.words, doubt.least_sure) for doubt in doubts),
        ),
    ]
    summaries = [read_summary(TASK, run) for run in runs]
    print(f"\n{compare(summaries, page, sections)}")
    (out / "curves.svg").write_text(curves(summaries), encoding="utf-8")
    print(f"\nbbb writes:\n\n{text}\n\nbbb was least sure of the marked words:\n")
    colour = sys.stdout.isatty()
    for doubt in doubts:
        print("  " + marked_text(doubt.words, doubt.least_sure, colour))
    print(f"\nThe page with the learning curves: {page}")
