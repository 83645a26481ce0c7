"""How well a reader of texts predicts ratings or labels, and how honest its doubts are."""

import math

from bayesrnn.methods.base import Bounded
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.runs.evaluation import Row, about, inference_rows
from bayesrnn.tasks.sentiment.data import Numbers
from bayesrnn.tasks.sentiment.metrics import constant_figures, text_figures
from bayesrnn.tasks.sentiment.predictions import segment_minibatches
from bayesrnn.tasks.sentiment.task import TrainedReader
from bayesrnn.uncertainty.bound import likelihood_bound
from bayesrnn.uncertainty.draws import Draws, networks_to_read


def evaluate_sentiment(trained: TrainedReader, split: str, samples: int = 0, seed: int = 1) -> Row:
    """The rows of a reader of texts on a split of its own data."""
    reviews = trained.reviews()
    segments = getattr(reviews, split).to(trained.device)
    target, config = trained.target, trained.config

    def averaged(samples: int) -> Row:
        draws = Draws(trained.method, trained.net, samples, seeded(seed))
        networks = networks_to_read(trained.method, trained.net, samples)
        with progress_bar(networks * len(segments), " segments", "evaluating") as bar:
            return text_figures(draws, segments, target, config.data, bar.update)

    def bounded(method: Bounded) -> Row:
        minibatches = segment_minibatches(segments, target, config.batch_size)
        with progress_bar(len(segments), " segments", "bounding") as bar:
            found = likelihood_bound(method, trained.net, minibatches, seeded(seed), bar.update)
        log_unit = math.log(target.sd) if isinstance(target, Numbers) else 0.0
        # Of segments, not texts: the bound is on a minibatch as it was trained on.
        return {"nll": found.nll + log_unit, "kl": found.kl, "segments": found.tokens}

    rows = inference_rows(trained, samples, averaged, bounded)
    return {
        **about(trained, split, seed),
        "data": config.data,
        **constant_figures(target, reviews.train.targets, segments.targets.cpu()),
        "rows": rows,
    }
