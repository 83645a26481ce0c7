"""The fitted temperature, against a direct minimisation."""

import pytest
import torch
from torch.nn import functional as F

from bayesrnn.errors import CorpusError
from bayesrnn.uncertainty.temperature import TemperatureFit


def drawn_words(logits, seed):
    return torch.multinomial(logits.softmax(-1), 1, generator=torch.Generator().manual_seed(seed))[
        :, 0
    ]


def make_logits(words=4000, classes=30, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(words, classes, generator=generator, dtype=torch.double)


def best_by_search(logits, targets):
    """The temperature of the lowest loss, by golden-section search."""
    low, high = 0.05, 20.0
    ratio = (5**0.5 - 1) / 2

    def loss(temperature):
        return F.cross_entropy(logits / temperature, targets).item()

    for _ in range(100):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    return (low + high) / 2


@pytest.mark.parametrize("true", [0.3, 0.5, 0.77, 1.0, 1.3, 2.0, 3.5])
@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_the_best_temperature_is_found(true, dtype):
    logits = make_logits()
    targets = drawn_words(logits / true, seed=1)
    fit = TemperatureFit()
    for part, words in zip(logits.split(1500), targets.split(1500), strict=True):
        fit.add(part.softmax(-1).to(dtype), words)
    assert fit.temperature() == pytest.approx(best_by_search(logits, targets), rel=3e-3)
    assert fit.temperature() == pytest.approx(true, rel=0.1)


def test_predictions_may_have_any_shape():
    logits = make_logits()
    targets = drawn_words(logits / 1.5, seed=2)
    flat, folded = TemperatureFit(), TemperatureFit()
    flat.add(logits.softmax(-1), targets)
    folded.add(logits.softmax(-1).view(40, 100, 30), targets.view(40, 100))
    assert folded.temperature() == pytest.approx(flat.temperature(), rel=1e-9)


def test_words_are_counted_over_many_blocks():
    """More rows than fit in a block, and rows larger than one."""
    for words, classes in ((300, 5000), (3, 200_000)):
        logits = make_logits(words, classes)
        targets = drawn_words(logits / 1.5, seed=3)
        fit = TemperatureFit()
        fit.add(logits.softmax(-1), targets)
        assert fit.temperature() == pytest.approx(best_by_search(logits, targets), rel=5e-3)


def test_it_stays_within_its_bounds():
    logits = make_logits(200)
    sure = TemperatureFit()
    sure.add(logits.softmax(-1), logits.argmax(-1))
    assert sure.temperature() == 0.25
    wrong = TemperatureFit()
    wrong.add(logits.softmax(-1), logits.argmin(-1))
    assert wrong.temperature() == 4.0


def test_impossible_words_do_not_spoil_the_fit():
    probs = torch.tensor([[1.0, 0.0], [0.5, 0.5]]).repeat(50, 1)
    fit = TemperatureFit()
    fit.add(probs, torch.tensor([0, 1]).repeat(50))
    assert 0.25 <= fit.temperature() <= 4.0


def test_no_words():
    with pytest.raises(CorpusError, match="no words"):
        TemperatureFit().temperature()
