"""Sparse language models, against dense ones."""

import gc
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesrnn.compression import sparse
from bayesrnn.compression.pruning import without
from bayesrnn.errors import ConfigError
from bayesrnn.tasks.lm.model import LanguageModel
from bayesrnn.tasks.lm.sparse import SparseLanguageModel


def language_model(cell="lstm", layers=2, tied=False, dropped=0.8, vocabulary=60, hidden=24):
    module = LanguageModel(vocabulary, hidden, layers, cell, tied).eval()
    generator = torch.Generator().manual_seed(3)
    module.initialise(0.5, generator)
    masks = {
        name: torch.rand(weight.shape, generator=generator) >= dropped
        for name, weight in module.named_parameters()
    }
    return without(module, masks)


def text(time, batch, vocabulary=60):
    generator = torch.Generator().manual_seed(5)
    return torch.randint(vocabulary, (time, batch), generator=generator)


def check_same(module, packed, words):
    """Two calls, the second with the state of the first."""
    state = own = None
    with torch.no_grad():
        for _ in range(2):
            expected, state = module(words, state)
            found, own = packed(words, own)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-6)
            torch.testing.assert_close(own, state, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("compiled", [True, False])
@settings(max_examples=40, deadline=None)
@given(
    cell=st.sampled_from(["lstm", "gru", "rnn"]),
    layers=st.integers(1, 3),
    tied=st.booleans(),
    shape=st.sampled_from([(1, 1), (6, 1), (1, 5), (4, 20)]),
)
def test_language_models_do_as_the_dense_ones(compiled, cell, layers, tied, shape):
    """With the compiled loop and without."""
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(sparse, "kernel_for", lambda tensors: None)
        module = language_model(cell, layers, tied)
        packed = SparseLanguageModel(module)
        assert set(packed.forms.values()) == {"sparse"}
        check_same(module, packed, text(*shape))


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_what_has_lost_nothing_stays_dense(cell):
    module = language_model(cell, dropped=0.0)
    packed = SparseLanguageModel(module)
    assert set(packed.forms.values()) == {"dense"}
    assert packed.nbytes == sum(weight.nbytes for weight in module.parameters())
    check_same(module, packed, text(5, 3))


@pytest.mark.parametrize("which", ["ih", "hh"])
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_dense_and_sparse_in_one_layer(cell, which):
    module = language_model(cell, dropped=0.0)
    weight = module.get_parameter(f"recurrent.weight_{which}_l1")
    weight.data[:, 3:] = 0
    packed = SparseLanguageModel(module)
    assert [name for name, form in packed.forms.items() if form == "sparse"] == [
        f"recurrent.weight_{which}_l1"
    ]
    check_same(module, packed, text(5, 3))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_network_of_which_nothing_is_left(cell):
    module = language_model(cell, dropped=1.0)
    check_same(module, SparseLanguageModel(module), text(3, 2))


@pytest.mark.parametrize("tied", [False, True])
def test_at_80_percent_it_takes_less_than_half_of_the_memory(tied):
    module = language_model(tied=tied, vocabulary=2000, hidden=100)
    packed = SparseLanguageModel(module)
    assert packed.nbytes < 0.4 * sum(weight.nbytes for weight in module.parameters())
    assert (packed.output is packed.embedding) == tied


def test_the_dense_weights_are_let_go():
    module = language_model(dropped=0.8)
    weights = [weakref.ref(weight) for weight in module.parameters()]
    packed = SparseLanguageModel(module)
    shapes = {tuple(weight.shape) for weight in module.parameters() if weight.dim() > 1}
    assert not shapes & {tuple(t.shape) for t in (*packed.buffers(), *packed.parameters())}
    del module
    gc.collect()
    assert all(weight() is None for weight in weights)
    assert packed(text(2, 2))[0].shape == (2, 2, 60)


@pytest.mark.parametrize("dropped", [0.0, 0.8])
def test_it_has_weights_of_its_own_and_no_gradients(dropped):
    module = language_model(dropped=dropped)
    packed, words = SparseLanguageModel(module), text(2, 2)
    before = packed(words)[0]
    for weight in module.parameters():
        weight.data.fill_(9.0)
    after = packed(words)[0]
    assert torch.equal(after, before)
    assert not after.requires_grad


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize(
    ("hidden", "dropped", "sparse_ones"),
    [
        (260, 0.8, {"embedding", "recurrent", "output"}),
        (260, 0.7, {"embedding"}),  # too much is left to be faster, but not to be smaller
        (24, 0.8, {"embedding"}),  # too small
    ],
)
def test_speed_goes_by_what_is_left_and_by_size(cell, hidden, dropped, sparse_ones):
    module = language_model(cell, dropped=dropped, vocabulary=1100, hidden=hidden)
    packed = SparseLanguageModel(module, prefer="speed")
    found = {name.split(".")[0] for name, form in packed.forms.items() if form == "sparse"}
    # An RNN of 260 has two matrices of 67,600 weights.
    assert found == sparse_ones - ({"recurrent"} if cell == "rnn" else set())
    check_same(module, packed, text(3, 2))


def test_two_matrices_of_a_layer_go_together_for_speed():
    module = language_model(dropped=0.0, vocabulary=50, hidden=260)
    module.recurrent.weight_ih_l0.data[:, :-1] = 0  # together, half of the layer is left
    module.recurrent.weight_ih_l1.data.zero_()
    module.recurrent.weight_hh_l1.data[:, 100:] = 0  # together, a fifth
    forms = SparseLanguageModel(module, prefer="speed").forms
    assert [name for name, form in forms.items() if form == "sparse"] == [
        "recurrent.weight_ih_l1",
        "recurrent.weight_hh_l1",
    ]


def test_the_same_network_gives_the_same_bits():
    """Nothing is measured: made twice, it is in the same form and does the same arithmetic."""
    module, words = language_model(vocabulary=1100, hidden=260), text(4, 1)
    made = [SparseLanguageModel(module, prefer="speed") for _ in range(2)]
    assert made[0].forms == made[1].forms
    assert torch.equal(made[0](words)[0], made[1](words)[0])


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_a_state_of_another_shape_is_refused(cell):
    packed, words = SparseLanguageModel(language_model(cell)), text(2, 3)
    for shape in ((2, 3, 8), (2, 4, 24), (1, 3, 24), (2, 3, 24, 1)):
        state = torch.zeros(shape)
        with pytest.raises(ConfigError, match=r"the state has the shape .* needs \(2, 3, 24\)"):
            packed(words, (state, state) if cell == "lstm" else state)
    state = torch.zeros(2, 3, 24)
    with pytest.raises(ConfigError, match="the state has the shape"):
        packed(words, state if cell == "lstm" else (state, state))


def test_a_state_dict_with_a_wrong_column_is_refused_and_nothing_taken():
    packed, words = SparseLanguageModel(language_model()), text(2, 2)
    before, state = packed(words)[0], packed.state_dict()
    state["output.columns"] = state["output.columns"].long().index_fill(0, torch.tensor([3]), 60000)
    with pytest.raises(ConfigError, match="24 columns has values in columns 0 to 60000"):
        packed.load_state_dict(state)
    assert torch.equal(packed(words)[0], before)
