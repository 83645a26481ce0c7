"""How probable a language model finds a text."""

from dataclasses import asdict

import torch

from bayesrnn.evaluation import Likelihood, likelihood, likelihood_bound, text_minibatches
from bayesrnn.methods import Bounded
from bayesrnn.progress import progress_bar
from bayesrnn.tasks.dynamic import DynamicOptions, dynamic_row
from bayesrnn.tasks.language_model import TrainedLanguageModel
from bayesrnn.tasks.rows import Row, about, inference_rows


def evaluate_text(
    trained: TrainedLanguageModel,
    split: str,
    samples: int = 0,
    streams: int = 1,
    unroll: int = 100,
    seed: int = 1,
    dynamic: DynamicOptions | None = None,
) -> Row:
    """The rows of a language model on a split of its own corpus."""
    corpus = trained.corpus()
    text = getattr(corpus, split).to(trained.device)

    def averaged(draws: int) -> Row:
        generator = torch.Generator().manual_seed(seed)
        with progress_bar(max(draws, 1) * (len(text) - 1), " words", "evaluating") as bar:
            return figures(
                likelihood(
                    *(trained.method, trained.net, text, draws, generator, streams, unroll),
                    bar.update,
                )
            )

    def bounded(method: Bounded) -> Row:
        # Over minibatches as long as in training: the bound depends on it, unlike the rest.
        minibatches = text_minibatches(text, streams, trained.config.unroll)
        generator = torch.Generator().manual_seed(seed)
        with progress_bar(len(text) - 1, " words", "bounding") as bar:
            return figures(
                likelihood_bound(method, trained.net, minibatches, generator, bar.update)
            )

    rows = inference_rows(trained, samples, averaged, bounded)
    if dynamic is not None:
        rows.append(dynamic_row(trained, corpus, text, dynamic))
    corpus_name = " ".join(trained.config.corpus)
    return {**about(trained, split, seed), "corpus": corpus_name, "streams": streams, "rows": rows}


def figures(found: Likelihood) -> Row:
    """A likelihood as figures of a row."""
    return {"perplexity": found.perplexity, **asdict(found)}
