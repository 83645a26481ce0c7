import math

import pytest
import torch

from bayesrnn.data.vocabulary import Vocabulary
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Bound, Bounded, Hints
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.captions.batches import EncodedCaptions
from bayesrnn.tasks.captions.data import CaptionedImages
from bayesrnn.tasks.captions.likelihood import caption_likelihood, caption_minibatches, caption_nll
from bayesrnn.tasks.captions.model import Captioner
from bayesrnn.uncertainty.bound import likelihood_bound
from bayesrnn.uncertainty.draws import Draws

WORDS = Vocabulary(("a", "<eos>", "dog", "runs", "<unk>", "far"))
CAPTIONS = (
    (("a", "dog"), ("a", "dog", "runs", "far", "far", "far"), ("dog",)),
    (("cat",), ("a", "cat", "runs")),
    (("runs", "far"), ("a", "dog", "runs", "a", "dog")),
)
TOKENS = sum(len(caption) + 1 for own in CAPTIONS for caption in own)


@pytest.fixture
def images():
    features = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).double()
    return CaptionedImages(("x", "y", "z"), features, CAPTIONS)


@pytest.fixture
def encoded(images):
    return EncodedCaptions.encode(images, WORDS)


def captioner(seed, dtype=torch.double):
    made = Captioner(4, len(WORDS), 5).to(dtype)
    made.initialise(0.9, torch.Generator().manual_seed(seed))
    return made.eval()


def probabilities(network, images):
    """Of every word and `<eos>`, one caption at a time and one word after the other."""
    found = []
    with torch.no_grad():
        for features, own in zip(images.features, images.captions, strict=True):
            for caption in own:
                said = [WORDS.index(word) for word in caption]
                given, word = {"features": features[None]}, WORDS.index("<eos>")
                for target in [*said, WORDS.index("<eos>")]:
                    logits, state = network(torch.tensor([[word]]), **given)
                    found.append(logits[0, 0].softmax(0)[target].item())
                    given, word = {"state": state}, target
    return torch.tensor(found, dtype=torch.double)


class Given:
    """Draws that are some networks."""

    def __init__(self, *networks):
        self._networks = networks

    def networks(self):
        return iter(self._networks)


def test_of_a_minibatch(images, encoded):
    network = captioner(1)
    found = caption_nll(network, encoded.batch(torch.arange(len(encoded))))
    expected = -probabilities(network, images).log().sum()
    torch.testing.assert_close(found, expected)


def test_what_fills_columns_up_gives_no_gradient(encoded):
    network = captioner(1)
    caption_nll(network, encoded.batch(torch.tensor([1, 2]))).backward()
    together = network.output.weight.grad.clone()
    network.zero_grad()
    for number in (1, 2):
        caption_nll(network, encoded.batch(torch.tensor([number]))).backward()
    torch.testing.assert_close(network.output.weight.grad, together)


def test_of_all_captions(images, encoded):
    network = captioner(1)
    found = caption_likelihood(Given(network), encoded).of_all()
    expected = -probabilities(network, images).log().mean().item()
    assert found.nll == pytest.approx(expected, rel=1e-12)
    assert found.tokens == TOKENS
    assert found.perplexity == pytest.approx(math.exp(expected))


def test_of_each_image(images, encoded):
    network = captioner(1)
    found = caption_likelihood(Given(network), encoded)
    # One image after the other, in the order in which their captions were encoded.
    words = [sum(len(caption) + 1 for caption in own) for own in images.captions]
    parts = torch.split(probabilities(network, images), words)
    assert found.words.tolist() == words
    expected = torch.stack([-part.log().sum() for part in parts])
    torch.testing.assert_close(found.nll, expected, rtol=1e-12, atol=0)


def test_draws_average_the_probabilities_of_words(images, encoded):
    networks = [captioner(seed) for seed in (1, 2, 3)]
    found = caption_likelihood(Given(*networks), encoded).of_all()
    mean = torch.stack([probabilities(network, images) for network in networks]).mean(0)
    assert found.nll == pytest.approx(-mean.log().mean().item(), rel=1e-12)
    assert found.tokens == TOKENS


def test_the_draws_of_a_method(images, encoded):
    kind = METHODS["bbb"]
    method = kind(kind.options_type(), RandomStreams(0))
    net = method.build(captioner(1), Hints())
    draws = Draws(method, net, 2, torch.Generator().manual_seed(0))
    counted = []
    found = caption_likelihood(draws, encoded, counted.append).of_all()
    assert sum(counted) == 2 * len(encoded)
    mean = torch.stack([probabilities(draws[number], images) for number in (0, 1)]).mean(0)
    assert found.nll == pytest.approx(-mean.log().mean().item(), rel=1e-12)


def test_minibatches_for_a_bound(images, encoded):
    class Known(Bounded):
        def bound(self, net, objective, generator):
            nll, state = objective(net)
            assert state is None
            return Bound(nll.item(), 0.5, state)

    network = captioner(1)
    minibatches = list(caption_minibatches(encoded, 3))
    assert len(minibatches) == 3
    found = likelihood_bound(Known(), network, minibatches, torch.Generator())
    assert found.tokens == TOKENS
    expected = -probabilities(network, images).log().sum().item() + 3 * 0.5
    assert found.nll == pytest.approx(expected / TOKENS, rel=1e-12)
