"""How well a classifier tells images apart, and how honest its probabilities are."""

from dataclasses import asdict

from bayesrnn.methods.base import Bounded
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.runs.evaluation import Row, about, inference_rows
from bayesrnn.runs.task import TrainedRun
from bayesrnn.tasks.mnist.config import MnistConfig
from bayesrnn.tasks.mnist.task import MnistTask, on_device
from bayesrnn.uncertainty.bound import example_minibatches, likelihood_bound
from bayesrnn.uncertainty.draws import networks_to_read
from bayesrnn.uncertainty.metrics import classification


def evaluate_images(
    trained: TrainedRun[MnistConfig], split: str, samples: int = 0, seed: int = 1
) -> Row:
    """The rows of a classifier of digits on a split of its own images."""
    data = on_device(getattr(MnistTask().load(trained.config), split), trained.device)

    def averaged(draws: int) -> Row:
        generator = seeded(seed)
        networks = networks_to_read(trained.method, trained.net, draws)
        with progress_bar(networks * len(data), " images", "evaluating") as bar:
            found = classification(
                *(trained.method, trained.net, data.images, data.labels, draws, generator),
                bar.update,
            )
        return asdict(found)

    def bounded(method: Bounded) -> Row:
        minibatches = example_minibatches(data.images, data.labels, trained.config.batch_size)
        generator = seeded(seed)
        with progress_bar(len(data), " images", "bounding") as bar:
            found = likelihood_bound(method, trained.net, minibatches, generator, bar.update)
        # No error: a network that has seen the labels has none to speak of.
        return {"nll": found.nll, "kl": found.kl, "examples": found.tokens}

    rows = inference_rows(trained, samples, averaged, bounded)
    return {**about(trained, split, seed), "images": trained.config.images, "rows": rows}
