"""The padding row of an embedding: it learns nothing, so nothing is drawn or charged there."""

import pytest
import torch
from torch import nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.priors import Gaussian, ScaleMixture

PRIORS = [Gaussian(0.5), ScaleMixture(0.3, 0.5, 0.2), ScaleMixture(0.3, 0.5, 0.2, "tensor")]


def embedding(kind=nn.Embedding, words=6, **options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(words, 3, **options)


def without_row(net, row):
    """A network whose embedding has all rows but one, with the same means and deviations."""
    keep = [number for number in range(6) if number != row]
    twin = Bayesian(embedding(words=5), next(iter(net._terms.values())).prior, 0.1)
    twin.load_state_dict({name: value[keep] for name, value in net.state_dict().items()})
    return twin


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
@pytest.mark.parametrize("row", [0, 2, 5, -1])
def test_padding_is_not_drawn_charged_or_moved(row, prior):
    net = Bayesian(embedding(padding_idx=row), prior, 0.1)
    row %= 6
    with torch.no_grad():
        net.module.weight[row] = 0.7  # the owner's own choice: not for noise to change
    twin = without_row(net, row)
    weights, expected = (each.sample(noise=each.noise(1)) for each in (net, twin))
    keep = [number for number in range(6) if number != row]
    assert torch.equal(weights["weight"][row], net.module.weight[row])
    assert torch.equal(weights["weight"][keep], expected["weight"])
    assert torch.equal(weights.kl, expected.kl)
    words = torch.tensor([[0, 1, 2], [3, 4, 5]])
    (net(words, weights=weights).square().sum() + weights.kl).backward()
    (expected["weight"].square().sum() + expected.kl).backward()
    for one, other in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one.grad[row], torch.zeros(3))
        torch.testing.assert_close(one.grad[keep], other.grad)
    norm = sum(parameter.grad.square().sum().item() for parameter in net.parameters())
    assert sum(weights.squared_gradients) == pytest.approx(norm, rel=1e-5)


def test_padding_is_not_sharpened_either():
    net = Bayesian(embedding(padding_idx=2), Gaussian(), 0.1, sharpening=True)
    phi = net.sample()
    theta = net.sharpen(phi, net(torch.arange(6), weights=phi).square().sum())
    assert torch.equal(theta["weight"][2], torch.zeros(3))
    changed = (theta["weight"] != phi["weight"]).all(1)
    assert changed.tolist() == [True, True, False, True, True, True]


def test_a_bag_of_words_has_padding_too():
    net = Bayesian(embedding(nn.EmbeddingBag, padding_idx=1), Gaussian(), 0.1)
    weights = net.sample()
    assert torch.equal(weights["weight"][1], net.module.weight[1])


def test_a_row_that_another_layer_uses_is_drawn():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(6, 3, padding_idx=0)
            self.output = nn.Linear(3, 6)
            self.output.weight = self.embedding.weight

    net = Bayesian(Tied(), Gaussian(), 0.1)
    weights = net.sample()
    assert (weights["embedding.weight"][0] != net.module.embedding.weight[0]).all()


def test_an_embedding_of_nothing_but_padding_stays_ordinary():
    module = nn.Sequential(embedding(words=1, padding_idx=0), nn.Linear(3, 2))
    net = Bayesian(module, Gaussian(), 0.1)
    assert net.names == ("1.weight", "1.bias")
