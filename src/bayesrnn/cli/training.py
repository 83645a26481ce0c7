"""Commands that train a network."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import tyro

from bayesrnn.progress import say
from bayesrnn.runs.options import command_line_type, given_options
from bayesrnn.runs.start import RunArguments
from bayesrnn.tasks.captions.config import CaptionsConfig
from bayesrnn.tasks.captions.task import train_captions
from bayesrnn.tasks.lm.config import LanguageModelConfig
from bayesrnn.tasks.lm.task import train_language_model
from bayesrnn.tasks.mnist.config import MnistConfig
from bayesrnn.tasks.mnist.task import train_mnist
from bayesrnn.tasks.sentiment.config import SentimentConfig
from bayesrnn.tasks.sentiment.task import train_sentiment

_BY_RECIPE = "Options left out follow the recipe of the method (and the size)."
LanguageModelArguments = command_line_type(
    "LanguageModelArguments", (RunArguments, LanguageModelConfig), _BY_RECIPE
)
MnistArguments = command_line_type("MnistArguments", (RunArguments, MnistConfig), _BY_RECIPE)
SentimentArguments = command_line_type(
    "SentimentArguments", (RunArguments, SentimentConfig), _BY_RECIPE
)
CaptionsArguments = command_line_type(
    "CaptionsArguments", (RunArguments, CaptionsConfig), _BY_RECIPE
)


def train_lm(
    training: tyro.conf.OmitArgPrefixes[LanguageModelArguments],  # type: ignore[valid-type]
) -> None:
    """Train a language model, word by word.

    bayesrnn train lm --corpus my-novel.txt --method bbb --size tiny
    """
    _train(train_language_model, training)


def train_digits(
    training: tyro.conf.OmitArgPrefixes[MnistArguments],  # type: ignore[valid-type]
) -> None:
    """Train a feed-forward network to tell handwritten digits apart.

    bayesrnn train mnist --method bbb --epochs 20
    """
    _train(train_mnist, training)


def train_reader(
    training: tyro.conf.OmitArgPrefixes[SentimentArguments],  # type: ignore[valid-type]
) -> None:
    """Train a recurrent network to predict the rating, or the label, of a text.

    bayesrnn train sentiment --data my-reviews.csv --cell gru --method bbb
    """
    _train(train_sentiment, training)


def train_captioner(
    training: tyro.conf.OmitArgPrefixes[CaptionsArguments],  # type: ignore[valid-type]
) -> None:
    """Train a recurrent network to say what an image shows.

    bayesrnn train captions --data flickr8k --method bbb
    """
    _train(train_captions, training)


def _train(train: Callable[[RunArguments, dict[str, Any]], Path], training: Any) -> None:
    given = given_options(training)
    run = {f.name: given.pop(f.name) for f in fields(RunArguments) if f.name in given}
    path = train(RunArguments(**run), given)
    say(f"the run is in {path}; next: bayesrnn evaluate {path}")
