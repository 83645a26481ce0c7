"""Sparse matrices, against dense ones."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesrnn.compression import sparse
from bayesrnn.compression.sparse import DenseMatrix, SparseMatrix, as_matrix
from bayesrnn.core.kernel.compiled import load_kernel
from bayesrnn.errors import ConfigError


@pytest.fixture(params=["kernel", "csr", "dense"])
def either_way(request, monkeypatch):
    """With the compiled loop, without it, and where torch has no sparse products either."""
    if request.param == "kernel" and load_kernel() is None:
        pytest.skip("no C compiler here")
    if request.param == "csr" and not sparse._has_csr_product(torch.ones(1)):
        pytest.skip("this torch has no MKL")
    if request.param != "kernel":
        monkeypatch.setattr(sparse, "kernel_for", lambda tensors: None)
    if request.param == "dense":
        monkeypatch.setattr(sparse, "_has_csr_product", lambda values: False)


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
def test_products_of_all_shapes():
    for shape in ((1, 1), (1, 50), (50, 1), (16, 16), (2100, 65)):
        for dropped in (0.0, 0.8, 1.0):
            for batch in (1, 2, 65):
                check_product(matrix(*shape, dropped), inputs(batch, shape[1]), inputs(shape[0]))


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
@pytest.mark.parametrize("kind", [SparseMatrix.from_dense, DenseMatrix])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_vector_or_a_whole_product_is_added(kind, batch):
    dense, x = matrix(35, 20, 0.6), inputs(batch, 20)
    for plus in (inputs(35), inputs(batch, 35)):
        before = plus.clone()
        found = kind(dense).matmul(x, plus)
        torch.testing.assert_close(found, x @ dense.t() + plus, rtol=1e-5, atol=1e-5)
        assert torch.equal(plus, before)
        assert found.is_contiguous()


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


@pytest.mark.parametrize(
    ("starts", "columns", "values"),
    [
        (torch.float32, torch.int64, torch.float32),
        (torch.int64, torch.bool, torch.float32),
        (torch.int64, torch.float64, torch.float32),
        (torch.int32, torch.uint16, torch.int64),
    ],
)
def test_wrong_types_are_refused(starts, columns, values):
    with pytest.raises(ConfigError, match="whole starts and columns and real values"):
        SparseMatrix(
            torch.tensor([0, 1, 2]).to(starts),
            torch.ones(2).to(columns),
            torch.ones(2).to(values),
            4,
        )


@pytest.mark.usefixtures("either_way")
@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 6),
    columns=st.integers(1, 6),
    x=st.lists(st.integers(0, 6), min_size=0, max_size=3),
    plus=st.none() | st.lists(st.integers(0, 6), min_size=0, max_size=3),
)
def test_shapes_that_do_not_fit_are_refused(rows, columns, x, plus):
    """Those that do fit give what the dense product gives."""
    dense = matrix(rows, columns, 0.3)
    given_x, added = inputs(*x), None if plus is None else inputs(*plus)
    fits = x[-1:] == [columns] and plus in (None, [rows], [*x[:-1], rows])
    if not fits:
        with pytest.raises(ConfigError, match=r"is multiplied by|are added to a product"):
            SparseMatrix.from_dense(dense).matmul(given_x, added)
        return
    found = SparseMatrix.from_dense(dense).matmul(given_x, added)
    expected = given_x @ dense.t() + (0 if added is None else added)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_three_columns_for_a_matrix_of_two_hundred():
    wide = SparseMatrix.from_dense(matrix(4, 200, 0.5))
    for x in (inputs(1, 3), inputs(200, 3)):  # the second has as many numbers as three rows need
        with pytest.raises(ConfigError, match=r"4 x 200 is multiplied by \(.*, 3\)"):
            wide.matmul(x)


def test_what_is_loaded_is_checked_before_it_is_taken():
    packed = SparseMatrix.from_dense(matrix(4, 200, 0.5))
    before = packed.dense()
    entries = len(packed.values)

    def changed(name, place, value):
        state = {key: tensor.clone().long() for key, tensor in packed.state_dict().items()}
        state["values"] = packed.values.clone()
        state[name][place] = value
        return state

    for assign in (False, True):
        for state, said in (
            (changed("columns", 7, 60000), "200 columns has values in columns 0 to 60000"),
            (changed("columns", 7, 65536 + 3), "0 to 65539"),  # 3 if it were cut to 16 bits
            (changed("columns", 7, -1), "columns -1 to"),
            (changed("starts", 1, entries + 1), "rise from 0"),
            (changed("starts", 4, entries + 9), "rise from 0"),
            (changed("starts", 0, -5), "rise from 0"),
        ):
            for part in (state, {"columns": state["columns"], "starts": state["starts"]}):
                with pytest.raises(ConfigError, match=said):
                    packed.load_state_dict(part, strict=False, assign=assign)
        assert torch.equal(packed.dense(), before)
        loaded = copy.deepcopy(packed)
        loaded.load_state_dict(changed("values", 0, 9.0), assign=assign)
        assert loaded.columns.dtype is torch.uint16
        assert int((loaded.dense() != before).sum()) == 1
        check_product(loaded.dense(), inputs(2, 200))
    with pytest.raises(RuntimeError, match="size mismatch"):
        packed.load_state_dict({**packed.state_dict(), "values": torch.ones(3)})


def test_only_a_matrix_can_be_sparse():
    with pytest.raises(ConfigError, match="2 axes"):
        SparseMatrix.from_dense(torch.zeros(3))


@pytest.mark.parametrize(
    ("rows", "dropped", "memory", "speed"),
    [
        (600, 0.8, "sparse", "sparse"),
        (600, 0.7, "sparse", "dense"),
        (600, 0.3, "dense", "dense"),
        (60, 0.99, "sparse", "dense"),
    ],
)
def test_the_form_goes_by_what_is_left_and_by_size(rows, dropped, memory, speed):
    weight = matrix(rows, 500, dropped)
    kinds = {"sparse": SparseMatrix, "dense": DenseMatrix}
    assert type(as_matrix(weight, "memory")) is kinds[memory]
    assert type(as_matrix(weight, "speed")) is kinds[speed]


def test_without_a_fast_product_speed_is_dense(monkeypatch):
    monkeypatch.setattr(sparse, "has_sparse_product", lambda values: False)
    assert isinstance(as_matrix(matrix(600, 500, 0.9), "speed"), DenseMatrix)
