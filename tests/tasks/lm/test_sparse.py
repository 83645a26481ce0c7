"""Sparse matrices and language models, against dense ones."""

import gc
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesrnn.compression.pruning import without
from bayesrnn.core.kernel import compiled as kernel
from bayesrnn.core.kernel.compiled import load_kernel
from bayesrnn.errors import ConfigError
from bayesrnn.tasks.lm import sparse
from bayesrnn.tasks.lm.model import LanguageModel
from bayesrnn.tasks.lm.sparse import SparseMatrix, language_model_from, sparse_language_model


@pytest.fixture(params=["kernel", "torch"])
def either_way(request, monkeypatch):
    """With the compiled loops and without."""
    if request.param == "torch":
        monkeypatch.setattr(kernel, "load_kernel", lambda: None)
    elif load_kernel() is None:
        pytest.skip("no C compiler here")


def matrix(rows, columns, dropped, seed=0):
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(rows, columns, generator=generator)
    return dense * (torch.rand(rows, columns, generator=generator) >= dropped)


def inputs(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


def check_product(dense, x, bias=None):
    found = SparseMatrix.from_dense(dense).matmul(x, bias)
    expected = x.double() @ dense.double().t()
    if bias is not None:
        expected = expected + bias.double()
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=2e-5)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("dropped", [0.0, 0.5, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1), (16, 16), (17, 33), (2100, 65)])
def test_products_of_all_shapes(shape, dropped):
    for batch in (1, 2, 20, 65):
        check_product(matrix(*shape, dropped), inputs(batch, shape[1]))


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("batch", [*range(1, 34), 48, 63, 64, 65, 129])
def test_products_of_all_batches(batch):
    check_product(matrix(37, 41, 0.7), inputs(batch, 41), inputs(37))


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("batch", [1, 5])
def test_more_columns_than_16_bits_can_count(batch):
    for columns, kind in ((65_536, torch.uint16), (65_537, torch.int32)):
        dense = torch.zeros(3, columns)
        dense[0, 0], dense[0, -1], dense[2, 40_000], dense[2, -1] = 1.0, 2.0, 3.0, 4.0
        assert SparseMatrix.from_dense(dense).columns.dtype is kind
        check_product(dense, inputs(batch, columns))
        rows = SparseMatrix.from_dense(dense).rows(torch.tensor([2, 0]))
        assert torch.equal(rows, dense[[2, 0]])


@pytest.mark.usefixtures("either_way")
def test_empty_rows_and_columns():
    dense = matrix(40, 30, 0.5)
    dense[0], dense[7:9], dense[-1], dense[:, 0], dense[:, -3:] = 0, 0, 0, 0, 0
    for batch in (1, 4):
        check_product(dense, inputs(batch, 30))
    assert torch.equal(SparseMatrix.from_dense(dense).dense(), dense)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("batch", [1, 3])
def test_products_are_added_or_written_over(batch):
    dense, x, bias = matrix(35, 20, 0.6), inputs(batch, 20), inputs(35)
    out = inputs(batch, 35)
    added, written = out.clone(), out.clone()
    packed = SparseMatrix.from_dense(dense)
    packed.multiply(x, added, bias, add=True)
    packed.multiply(x, written)
    torch.testing.assert_close(added, out + x @ dense.t() + bias, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(written, x @ dense.t(), rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    batch=st.integers(1, 33),
    dropped=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_any_product(rows, columns, batch, dropped, seed):
    check_product(matrix(rows, columns, dropped, seed), inputs(batch, columns))


@pytest.mark.usefixtures("either_way")
def test_axes_and_strides_of_the_inputs_do_not_matter():
    dense = matrix(12, 9, 0.5)
    packed, x = SparseMatrix.from_dense(dense), inputs(9, 4, 3)
    turned = x.permute(1, 2, 0)
    torch.testing.assert_close(packed.matmul(turned), turned @ dense.t(), rtol=1e-5, atol=1e-5)
    assert packed.matmul(inputs(0, 9)).shape == (0, 12)


@pytest.mark.usefixtures("either_way")
def test_rows_are_those_of_the_dense_matrix():
    dense = matrix(50, 13, 0.8)
    packed = SparseMatrix.from_dense(dense)
    indices = torch.tensor([[3, 49, 3], [0, 17, 48]])
    assert torch.equal(packed.rows(indices), dense[indices])
    assert torch.equal(packed.rows(indices.t().int()), dense[indices.t()])
    assert packed.rows(torch.empty(0, 2, dtype=torch.long)).shape == (0, 2, 13)
    for wrong in (-1, 50):
        with pytest.raises(IndexError, match="0 to 49"):
            packed.rows(torch.tensor([0, wrong]))


def test_damage_of_any_number_stays_to_be_seen():
    dense = matrix(4, 5, 0.0)
    dense[1, 2] = float("nan")
    found = SparseMatrix.from_dense(dense).matmul(torch.ones(3, 5))
    assert found[:, 1].isnan().all()
    assert found[:, [0, 2, 3]].isfinite().all()


def test_double_precision_is_kept():
    dense = matrix(6, 5, 0.5).double()
    found = SparseMatrix.from_dense(dense).matmul(inputs(2, 5).double())
    torch.testing.assert_close(found, inputs(2, 5).double() @ dense.t(), rtol=1e-14, atol=1e-14)


def test_six_bytes_for_each_weight_that_is_left():
    dense = matrix(300, 200, 0.8)
    packed = SparseMatrix.from_dense(dense)
    assert packed.nbytes == 6 * int(dense.count_nonzero()) + 8 * 301
    assert packed.nbytes < 0.4 * dense.nbytes


@pytest.mark.parametrize(
    ("starts", "columns", "message"),
    [
        ([0, 1, 3], [0, 1], "rise from 0"),
        ([1, 1, 2], [0, 1], "rise from 0"),
        ([0, 2, 1, 2], [0, 1], "rise from 0"),
        ([0, 1, 2], [0, 4], "columns 0 to 4"),
        ([0, 1, 2], [-1, 2], "columns -1 to 2"),
        ([0, 1, 2], [0, 1, 2], "one each"),
        ([], [0, 1], "one axis"),
    ],
)
def test_a_matrix_that_would_read_elsewhere_is_refused(starts, columns, message):
    with pytest.raises(ConfigError, match=message):
        SparseMatrix(torch.tensor(starts), torch.tensor(columns), torch.ones(2), 4)


def test_only_a_matrix_can_be_sparse():
    with pytest.raises(ConfigError, match="2 axes"):
        SparseMatrix.from_dense(torch.zeros(3))


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


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_language_models_do_as_the_dense_ones(cell, layers, tied):
    module = language_model(cell, layers, tied)
    packed = sparse_language_model(module)
    assert set(packed.forms.values()) == {"sparse"}
    for shape in ((1, 1), (6, 1), (1, 5), (4, 20)):
        check_same(module, packed, text(*shape))


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_what_has_lost_nothing_stays_dense(cell):
    module = language_model(cell, dropped=0.0)
    packed = sparse_language_model(module)
    assert set(packed.forms.values()) == {"dense"}
    assert packed.nbytes == sum(weight.nbytes for weight in module.parameters())
    check_same(module, packed, text(5, 3))


@pytest.mark.parametrize("which", ["ih", "hh"])
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_dense_and_sparse_in_one_layer(cell, which):
    module = language_model(cell, dropped=0.0)
    weight = module.get_parameter(f"recurrent.weight_{which}_l1")
    weight.data[:, 3:] = 0
    packed = sparse_language_model(module)
    assert [name for name, form in packed.forms.items() if form == "sparse"] == [
        f"recurrent.weight_{which}_l1"
    ]
    check_same(module, packed, text(5, 3))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_network_of_which_nothing_is_left(cell):
    module = language_model(cell, dropped=1.0)
    check_same(module, sparse_language_model(module), text(3, 2))


@pytest.mark.parametrize("tied", [False, True])
def test_at_80_percent_it_takes_less_than_half_of_the_memory(tied):
    module = language_model(tied=tied, vocabulary=2000, hidden=100)
    packed = sparse_language_model(module)
    assert packed.nbytes < 0.4 * sum(weight.nbytes for weight in module.parameters())
    assert (packed.output is packed.embedding) == tied


def test_the_dense_weights_are_let_go():
    module = language_model(dropped=0.8)
    weights = [weakref.ref(weight) for weight in module.parameters()]
    packed = sparse_language_model(module)
    shapes = {tuple(weight.shape) for weight in module.parameters() if weight.dim() > 1}
    assert not shapes & {tuple(t.shape) for t in (*packed.buffers(), *packed.parameters())}
    del module
    gc.collect()
    assert all(weight() is None for weight in weights)
    assert packed(text(2, 2))[0].shape == (2, 2, 60)


@pytest.mark.parametrize("dropped", [0.0, 0.8])
def test_it_has_weights_of_its_own_and_no_gradients(dropped):
    module = language_model(dropped=dropped)
    packed, words = sparse_language_model(module), text(2, 2)
    before = packed(words)[0]
    for weight in module.parameters():
        weight.data.fill_(9.0)
    after = packed(words)[0]
    assert torch.equal(after, before)
    assert not after.requires_grad


@pytest.mark.parametrize(
    ("dense", "packed", "forms"),
    [
        (1.0, 2.0, {"dense"}),
        (2.0, 1.0, {"sparse"}),
        (1.0, 1.05, {"sparse"}),  # no clear winner: the smaller one
        (1.05, 1.0, {"sparse"}),
    ],
)
def test_speed_goes_by_the_measurement(dense, packed, forms, monkeypatch):
    monkeypatch.setattr(sparse, "_seconds", lambda runs: [dense, packed])
    module = language_model(tied=True)
    made = sparse_language_model(module, prefer="speed")
    assert set(made.forms.values()) == forms
    check_same(module, made, text(4, 3))


def test_an_embedding_is_kept_small_for_speed_too(monkeypatch):
    monkeypatch.setattr(sparse, "_seconds", lambda runs: [1.0, 2.0])
    forms = sparse_language_model(language_model(), prefer="speed").forms
    assert [name for name, form in forms.items() if form == "sparse"] == ["embedding.weight"]


def test_the_two_forms_are_timed_in_turns(monkeypatch):
    now, calls = [0.0], []

    def run(name, seconds):
        calls.append(name)
        now[0] += seconds * (1 if len(calls) > 2 else 100)  # slow until it is warm

    monkeypatch.setattr(sparse.time, "perf_counter", lambda: now[0])
    found = sparse._seconds([lambda: run("a", 1.0), lambda: run("b", 3.0)])
    assert found == [pytest.approx(1.0), pytest.approx(3.0)]
    assert calls == ["a", "b"] * (len(calls) // 2)


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_the_real_measurement_changes_no_result(cell):
    module = language_model(cell)
    check_same(module, sparse_language_model(module, streams=3, prefer="speed"), text(4, 3))


@pytest.mark.parametrize("prefer", ["memory", "speed"])
def test_matrices_can_be_given_sparse(prefer):
    module = language_model()
    weights = {
        name: SparseMatrix.from_dense(weight) if weight.dim() == 2 else weight
        for name, weight in module.state_dict().items()
    }
    packed = language_model_from(weights, "lstm", prefer=prefer)
    check_same(module, packed, text(4, 2))
    if prefer == "memory":
        assert packed.output is weights["output.weight"]


def test_wishes_that_cannot_be_met():
    module = language_model()
    with pytest.raises(ConfigError, match=r"'size'.*memory, speed"):
        sparse_language_model(module, prefer="size")
    with pytest.raises(ConfigError, match="0 streams"):
        sparse_language_model(module, streams=0)
    with pytest.raises(ConfigError, match=r"'elman'.*lstm"):
        language_model_from(module.state_dict(), "elman")
