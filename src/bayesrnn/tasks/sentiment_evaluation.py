"""How well a reader of texts predicts ratings or labels, and how honest its doubts are."""

import math

from bayesrnn.data import Labels, Numbers
from bayesrnn.evaluation import (
    Draws,
    likelihood_bound,
    networks_to_read,
    segment_minibatches,
)
from bayesrnn.methods import Bounded
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.tasks.rows import Row, about, inference_rows
from bayesrnn.tasks.sentiment import TrainedReader
from bayesrnn.tasks.sentiment_figures import text_figures


def evaluate_sentiment(trained: TrainedReader, split: str, samples: int = 0, seed: int = 1) -> Row:
    """The rows of a reader of texts on a split of its own data."""
    segments = getattr(trained.reviews(), split).to(trained.device)
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
        **_reference(target, segments.targets.cpu().tolist()),
        "rows": rows,
    }


def _reference(target: Numbers | Labels, truths: list[float]) -> Row:
    """What a prediction that does not read the text would get."""
    if isinstance(target, Numbers):
        squares = [(truth - target.mean) ** 2 for truth in truths]
        return {"constant_rmse": math.sqrt(sum(squares) / len(squares))}
    most = max(map(truths.count, set(truths)))
    return {"constant_error": 1 - most / len(truths)}
