"""A trained text predictor, and the data of its run."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from bayesrnn.data.vocabulary import Vocabulary, read_vocabulary
from bayesrnn.errors import ConfigError, RunError
from bayesrnn.runs.task import TrainedRun
from bayesrnn.tasks.sentiment.config import SentimentConfig
from bayesrnn.tasks.sentiment.data import (
    SCALE_DATA,
    Labels,
    Numbers,
    Reviews,
    load_reviews,
    read_target,
)

TARGET_FILE: Final = "target.json"


def reviews_of(config: SentimentConfig) -> Reviews:
    """The texts that a configuration names, cut into segments."""
    for_own = {
        "--text-column": config.text_column,
        "--target-column": config.target_column,
        "--target label": config.target == "label",
        "--delimiter": config.delimiter,
    }
    given = [flag for flag, value in for_own.items() if value]
    if config.data == SCALE_DATA and given:
        raise ConfigError(
            f"{' and '.join(given)} cannot go with --data {SCALE_DATA}, whose targets are numbers; "
            "leave it out, or give a CSV file of your own with --data"
        )
    return load_reviews(
        config.data,
        config.data_dir,
        text_column=config.text_column,
        target_column=config.target_column,
        target=config.target,
        delimiter=config.delimiter,
        vocabulary_limit=config.vocabulary_limit,
        segment=config.segment,
    )


@dataclass(frozen=True)
class TrainedTextPredictor(TrainedRun[SentimentConfig]):
    """A trained text predictor, ready to predict."""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words that it knows."""
        return read_vocabulary(self.files)

    @property
    def target(self) -> Numbers | Labels:
        """What it predicts."""
        return read_target(self.files[TARGET_FILE])

    def reviews(self) -> Reviews:
        """The texts that the run learnt from, with the same words."""
        reviews = reviews_of(self.config)
        if (reviews.vocabulary, reviews.target) != (self.vocabulary, self.target):
            raise RunError(
                f"the texts of {self.config.data} are not those that {self.path} was trained on; "
                "give back the same data"
            )
        return reviews
