"""How probable a language model finds a text."""

from bayesrnn.methods.base import Bounded
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.runs.evaluation import Row, about, inference_rows, likelihood_figures
from bayesrnn.tasks.lm.dynamic_settings import DynamicOptions, choose_settings, dynamic_row
from bayesrnn.tasks.lm.likelihood import likelihood, text_minibatches
from bayesrnn.tasks.lm.task import TrainedLanguageModel
from bayesrnn.uncertainty.bound import likelihood_bound
from bayesrnn.uncertainty.draws import networks_to_read


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
    # First of all, so that a mistake in the settings is told before the long work.
    settings = None if dynamic is None else choose_settings(trained.path, dynamic)
    corpus = trained.corpus()
    text = getattr(corpus, split).to(trained.device)

    def averaged(draws: int) -> Row:
        generator = seeded(seed)
        networks = networks_to_read(trained.method, trained.net, draws)
        with progress_bar(networks * (len(text) - 1), " words", "evaluating") as bar:
            found = likelihood(
                *(trained.method, trained.net, text, draws, generator, streams, unroll),
                bar.update,
            )
        return {**likelihood_figures(found), "streams": streams}

    def bounded(method: Bounded) -> Row:
        # Over minibatches as long as in training: the bound depends on it, unlike the rest.
        steps = trained.config.unroll
        generator = seeded(seed)
        with progress_bar(len(text) - 1, " words", "bounding") as bar:
            found = likelihood_bound(
                *(method, trained.net, text_minibatches(text, streams, steps), generator),
                bar.update,
            )
        return {**likelihood_figures(found), "streams": streams, "unroll": steps}

    rows = inference_rows(trained, samples, averaged, bounded)
    if settings is not None:
        rows.append(dynamic_row(trained, corpus, text, settings))
    return {**about(trained, split, seed), "corpus": " ".join(trained.config.corpus), "rows": rows}
