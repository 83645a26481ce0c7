"""Draws for prediction, against the draws that training makes: equal to the last bit."""

import copy

import pytest
import torch
from torch import nn

from bayesrnn.core import predictive as module
from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.functional import copy_with
from bayesrnn.core.kernel.compiled import load_kernel
from bayesrnn.core.predictive import RowsWhenRead, predictive
from bayesrnn.tasks.lm.model import LanguageModel

has_kernel = pytest.mark.skipif(load_kernel() is None, reason="no C compiler here")


class Shifted(nn.Module):
    """A padded embedding, a matrix of several chunks of rows, and a single number."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 7, padding_idx=3)
        self.wide = nn.Linear(7, 11_000)
        self.shift = nn.Parameter(torch.tensor(0.5))

    def forward(self, words):
        return self.wide(self.words(words)) + self.shift


def language_model(tied):
    return LanguageModel(60, 13, 2, tied=tied)


NETWORKS = {
    "language model": lambda: language_model(False),
    "tied": lambda: language_model(True),
    "padded": Shifted,
}


def posterior(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = make()
    return Bayesian(made, sigma_init=0.3, generator=torch.Generator().manual_seed(1)).eval()


def drawn_at_once(net, sign, factor=1.0):
    noise = net.noise(5).scaled(factor)
    return net.sample(noise=noise if sign > 0 else noise.mirrored())


def whole(tensor):
    return tensor.drawn() if isinstance(tensor, RowsWhenRead) else tensor


def words_of(count, rows, generator=2):
    return torch.randint(rows, (count,), generator=torch.Generator().manual_seed(generator))


@torch.no_grad()
@pytest.mark.parametrize("factor", [1.0, 0.6])
@pytest.mark.parametrize("signs", [(1,), (-1,), (1, -1), (-1, 1)])
@pytest.mark.parametrize("name", NETWORKS)
def test_weights_are_those_of_sample(name, signs, factor):
    net = posterior(NETWORKS[name])
    for sign, weights in zip(signs, predictive(net, 5, factor, signs), strict=True):
        expected = drawn_at_once(net, sign, factor)
        assert list(weights) == list(expected)
        for each in expected:
            assert torch.equal(whole(weights[each]), expected[each]), each


@has_kernel
@torch.no_grad()
@pytest.mark.parametrize("name", ["language model", "padded"])
def test_rows_that_are_read_are_those_of_the_whole_matrix(name):
    net = posterior(NETWORKS[name])
    matrix = "words.weight" if name == "padded" else "embedding.weight"
    words = words_of(20, 50).view(10, 2)
    for sign, weights in zip((1, -1), predictive(net, 5, signs=(1, -1)), strict=True):
        found = net(words, weights=weights)
        expected = net(words, weights=drawn_at_once(net, sign))
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert weights[matrix].whole is None
    rows = nn.functional.embedding(torch.tensor([3, 4, 49, 3]), weights[matrix])
    assert torch.equal(rows, whole(weights[matrix])[[3, 4, 49, 3]])


@has_kernel
@torch.no_grad()
def test_whole_matrix_is_drawn_once_where_more_than_rows_are_needed():
    net = posterior(NETWORKS["tied"])
    (weights,) = predictive(net, 5)
    words = words_of(20, 60).view(10, 2)
    assert torch.equal(net(words, weights=weights)[0], net(words, weights=drawn_at_once(net, 1))[0])
    matrix = weights["embedding.weight"]
    assert matrix.whole is not None
    assert matrix.drawn().data_ptr() == matrix.whole.data_ptr()
    assert matrix.shape == (60, 13)
    (of_long_text,) = predictive(posterior(NETWORKS["language model"]), 5)
    nn.functional.embedding(words_of(31, 60), of_long_text["embedding.weight"])
    assert of_long_text["embedding.weight"].whole is not None


@has_kernel
@torch.no_grad()
@pytest.mark.parametrize("word", [-1, 60])
def test_words_out_of_range_are_refused_as_torch_does(word):
    (weights,) = predictive(posterior(NETWORKS["language model"]), 5)
    with pytest.raises(IndexError, match="out of range"):
        nn.functional.embedding(torch.tensor([0, word]), weights["embedding.weight"])


@has_kernel
@torch.no_grad()
def test_no_words_are_read():
    (weights,) = predictive(posterior(NETWORKS["language model"]), 5)
    found = nn.functional.embedding(
        torch.zeros(0, 2, dtype=torch.long), weights["embedding.weight"]
    )
    assert found.shape == (0, 2, 13)


@has_kernel
@torch.no_grad()
def test_embedding_that_changes_its_own_rows_is_drawn_at_once():
    net = posterior(lambda: nn.Embedding(50, 7, max_norm=1.0))
    (weights,) = predictive(net, 5)
    assert type(weights["weight"]) is torch.Tensor


@has_kernel
@torch.no_grad()
def test_copies_are_ordinary_tensors():
    net = posterior(NETWORKS["language model"])
    (weights,) = predictive(net, 5)
    expected = drawn_at_once(net, 1)
    copied = copy.deepcopy(weights["embedding.weight"])
    assert type(copied) is torch.Tensor
    assert torch.equal(copied, expected["embedding.weight"])
    module = copy_with(net.module, predictive(net, 5)[0])
    assert all(torch.equal(module.get_parameter(name), expected[name]) for name in expected)


@has_kernel
@torch.no_grad()
def test_memory_of_earlier_draws_is_used_again():
    net = posterior(NETWORKS["language model"])
    before = predictive(net, 4, signs=(1, -1))
    after = predictive(net, 5, signs=(1, -1), into=before)
    for earlier, later, sign in zip(before, after, (1, -1), strict=True):
        expected = drawn_at_once(net, sign)
        for name in expected:
            assert torch.equal(whole(later[name]), expected[name])
        assert earlier["output.weight"].data_ptr() == later["output.weight"].data_ptr()


@torch.no_grad()
def test_without_compiled_loops_sample_does_the_work(monkeypatch):
    monkeypatch.setattr(module, "kernel_for", lambda tensors: None)
    net = posterior(NETWORKS["language model"])
    for sign, weights in zip((1, -1), predictive(net, 5, 0.6, (1, -1)), strict=True):
        expected = drawn_at_once(net, sign, 0.6)
        assert all(torch.equal(weights[name], expected[name]) for name in expected)


@torch.no_grad()
def test_double_precision_is_drawn_by_sample():
    net = posterior(lambda: nn.Linear(3, 4).double())
    (weights,) = predictive(net, 5)
    assert torch.equal(weights["weight"], drawn_at_once(net, 1)["weight"])
