import pytest
import torch
from torch.nn import functional as F

from bayesrnn.methods.base import Outcome
from bayesrnn.tasks.lm.model import LanguageModel

VOCABULARY, HIDDEN, BATCH, TIME = 9, 5, 2, 6


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture
def make_model():
    """A function that makes the same small language model each time."""

    def make(**options):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            model = LanguageModel(VOCABULARY, HIDDEN, **options)
            model.initialise(0.5, torch.Generator().manual_seed(1))
        return model

    return make


@pytest.fixture
def words():
    return torch.randint(VOCABULARY, (TIME + 1, BATCH), generator=torch.Generator().manual_seed(2))


@pytest.fixture
def objective(words):
    """The summed loss of one minibatch from a zero state."""

    def run(network):
        logits, state = network(words[:-1], None)
        nll = F.cross_entropy(logits.flatten(0, 1), words[1:].flatten(), reduction="sum")
        return Outcome(nll, state)

    return run
