"""Where matrices lost weights."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from bayesrnn.compression.patterns import matrices, patterns

MATRICES = st.integers(1, 5).flatmap(
    lambda columns: st.lists(
        st.lists(st.booleans(), min_size=columns, max_size=columns), min_size=1, max_size=6
    )
)


def test_a_matrix_by_hand():
    kept = torch.tensor([[1, 0, 0], [0, 0, 0], [1, 1, 0], [0, 0, 0]]).bool()
    (found,) = patterns({"recurrent.weight": kept})
    assert (found.name, found.rows, found.columns) == ("recurrent.weight", 4, 3)
    assert found.dropped_per_row == (2, 3, 1, 3)
    assert (found.dropped, found.share) == (9, 0.75)
    assert (found.rows_gone, found.columns_gone) == (2, 1)


@given(MATRICES)
def test_counts_are_those_of_python(rows):
    (found,) = patterns({"w": torch.tensor(rows)})
    assert list(found.dropped_per_row) == [row.count(False) for row in rows]
    assert found.dropped == sum(row.count(False) for row in rows)
    assert found.rows_gone == sum(not any(row) for row in rows)
    assert found.columns_gone == sum(not any(column) for column in zip(*rows, strict=True))


def test_vectors_are_left_out_and_further_axes_are_columns():
    kept = {
        "bias": torch.zeros(4, dtype=torch.bool),
        "scale": torch.tensor(True),
        "none": torch.zeros(0, 3, dtype=torch.bool),
        "kernel": torch.zeros(2, 3, 5, dtype=torch.bool),
    }
    kept["kernel"][1, 2, 4] = True
    (found,) = patterns(kept)
    assert (found.name, found.rows, found.columns) == ("kernel", 2, 15)
    assert (found.rows_gone, found.columns_gone, found.dropped) == (1, 14, 29)
    assert list(matrices(kept)) == ["kernel"]
