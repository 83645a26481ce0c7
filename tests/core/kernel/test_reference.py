import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesrnn.core.kernel.reference import BLOCK_SIZE, row_blocks


@settings(deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=3), st.integers(1, 100))
def test_every_row_is_in_exactly_one_block_and_blocks_are_small(shape, size):
    tensor = torch.empty(shape)
    slices = list(row_blocks(tensor, size))
    rows = [row for part in slices for row in range(part.start, part.stop)]
    assert rows == list(range(shape[0]))
    per_row = tensor[0].numel()
    for part in slices:
        assert tensor[part].numel() <= max(size, per_row)


def test_small_tensors_are_one_block():
    assert list(row_blocks(torch.empty(3, 5))) == [slice(0, 3)]


def test_a_long_tensor_is_cut_at_the_block_size():
    slices = list(row_blocks(torch.empty(2 * BLOCK_SIZE + 1)))
    assert [part.stop - part.start for part in slices] == [BLOCK_SIZE, BLOCK_SIZE, 1]


def test_rows_without_numbers_do_no_harm():
    assert list(row_blocks(torch.empty(3, 0))) == [slice(0, 3)]


def test_away_from_the_cpu_there_is_one_block():
    assert list(row_blocks(torch.empty(1000, 7, device="meta"), 10)) == [slice(0, 1000)]
