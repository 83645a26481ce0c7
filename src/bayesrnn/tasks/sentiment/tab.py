"""The tab of ratings and labels: the prediction for a text, and the words that moved it most."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from bayesrnn.errors import CorpusError
from bayesrnn.options import REQUIRED, CheckedOptions, option
from bayesrnn.random import seeded
from bayesrnn.runs.arguments import seed_option
from bayesrnn.runs.tab import Question, Tab, about_draws, scaling_of
from bayesrnn.tasks.sentiment.data import Labels, Numbers, review_words
from bayesrnn.tasks.sentiment.predict import predicted
from bayesrnn.tasks.sentiment.predictions import predict_labels, predict_numbers
from bayesrnn.tasks.sentiment.segments import Segments
from bayesrnn.tasks.sentiment.task import TASK
from bayesrnn.tasks.sentiment.trained import TrainedTextPredictor
from bayesrnn.uncertainty.draws import Draws

#: Words of a text that are tried without, from its start on; each costs a reading of all of them.
MOST_TRIED: Final = 250
#: Words that are rated, at most.
MOST_WORDS: Final = 20_000


@dataclass(frozen=True, kw_only=True)
class RateOptions(CheckedOptions):
    """A text, and how it is read."""

    text: str = option(REQUIRED, "the text")
    samples: int = option(20, "draws of the network", ge=1, le=50)
    interval: float = option(0.9, "share of the probability in the interval", gt=0, lt=1)
    seed: int = seed_option()


def rate(run: TrainedTextPredictor, options: RateOptions, content: bytes) -> dict[str, Any]:
    """The rating with its interval, or the probabilities of labels; and what moved them."""
    words = review_words(options.text)
    if not words:
        raise CorpusError("the text has no words; give at least one")
    if len(words) > MOST_WORDS:
        raise CorpusError(
            f"the text has {len(words):,} words, and the page rates at most {MOST_WORDS:,}; give a "
            "part of it"
        )
    result = predicted(
        run,
        [options.text],
        [words],
        options.samples,
        options.interval,
        options.seed,
        scaling_of(run),
    )
    found = {key: value for key, value in result["texts"][0].items() if key != "text"}
    tried = words[:MOST_TRIED]
    target = run.target
    return {
        **found,
        "draws": result["samples"],
        "target": result["target"],
        "interval": options.interval,
        "typical": [target.mean, target.sd] if isinstance(target, Numbers) else None,
        "tried": [
            {"word": word, "known": word in run.vocabulary, "moved": moved}
            for word, moved in zip(tried, moves(run, tried, found.get("label")), strict=True)
        ],
        "left": len(words) - len(tried),
    }


def moves(run: TrainedTextPredictor, words: Sequence[str], label: str | None = None) -> list[float]:
    """By how much each word moves the prediction of the mean network: with it, less without it.

    Of labels, the probability of `label`. A text of one word cannot be read without it.
    """
    if len(words) < 2:
        return [0.0] * len(words)
    ids = run.vocabulary.encode(list(words))
    without = [torch.cat([ids[:place], ids[place + 1 :]]) for place in range(len(words))]
    texts = [ids, *without]
    zeros = torch.zeros(len(texts), dtype=torch.double)
    segments = Segments.cut(texts, zeros, run.config.segment).to(run.device)
    mean = Draws(run.method, run.net, 0, seeded(0), scaling_of(run))
    target = run.target
    if isinstance(target, Labels):
        column = target.names.index(str(label))
        scores = predict_labels(mean, segments).texts[:, column]
    else:
        scores = predict_numbers(mean, segments, target).texts.mean
    return [float(value) for value in scores[0] - scores[1:]]


def _open(path: Path) -> TrainedTextPredictor:
    return TASK.open_run(path, device="cpu")


TAB = Tab(
    title="Sentiment",
    script="tasks/sentiment/tab.js",
    open=_open,
    about=about_draws,
    questions={"rate": Question(RateOptions, rate)},
)
