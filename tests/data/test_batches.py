from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bayesrnn.data.batches import (
    Examples,
    Sequences,
    ShuffledBatches,
    TrainingBatches,
    evaluation_batches,
)
from bayesrnn.errors import CorpusError

SIZES = st.integers(1, 9)


class Numbers(Examples[list[int]]):
    noun = "numbers"

    def __len__(self):
        return 7

    def batch(self, chosen):
        return chosen.tolist()


class Lines(Sequences[list[int]]):
    noun = "lines"
    block = 2

    def batch(self, chosen):
        return chosen.tolist()


def test_orders_stay_what_they_were():
    """A run that is resumed by another version of the program goes on in the same order."""
    assert list(ShuffledBatches(Numbers(), 2, seed=1, epoch=2)) == [[4, 5], [2, 6], [3, 0]]
    lengths = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5])
    lines = Lines(torch.arange(44), lengths.cumsum(0) - lengths, lengths)
    expected = [[8, 4], [0, 2], [1, 6], [3, 10], [7, 5]]
    assert list(ShuffledBatches(lines, 2, seed=1, epoch=2)) == expected


def test_examples_count_once_each():
    batches = ShuffledBatches(Numbers(), 2, seed=1, epoch=2)
    assert [batches.length(number) for number in range(len(batches))] == [1, 1, 1]
    with pytest.raises(CorpusError, match=r"are 7 numbers .* needs 8; give more numbers or"):
        ShuffledBatches(Numbers(), 8, seed=1, epoch=2)


def test_rows_are_contiguous_and_targets_come_next():
    batches = TrainingBatches(torch.arange(17), batch_size=2, unroll=3)
    assert len(batches) == 2
    assert batches[0].inputs.tolist() == [[0, 8], [1, 9], [2, 10]]
    assert batches[0].targets.tolist() == [[1, 9], [2, 10], [3, 11]]
    assert batches[1].inputs.tolist() == [[3, 11], [4, 12], [5, 13]]


@given(st.integers(0, 300), SIZES, SIZES)
def test_training_walks_every_row_in_order(length, batch_size, unroll):
    count = (length // batch_size - 1) // unroll
    if count < 1:
        with pytest.raises(CorpusError, match=f"has {length} tokens.*--batch-size or --unroll"):
            TrainingBatches(torch.arange(length), batch_size, unroll)
        return
    batches = TrainingBatches(torch.arange(length), batch_size, unroll)
    assert len(batches) == len(list(batches)) == count
    for batch in batches:
        assert batch.inputs.shape == batch.targets.shape == (unroll, batch_size)
        assert torch.equal(batch.targets, batch.inputs + 1)
    rows = torch.cat([batch.inputs for batch in batches])
    starts = torch.arange(batch_size) * (length // batch_size)
    assert torch.equal(rows, starts + torch.arange(count * unroll)[:, None])


def test_the_smallest_stream_that_the_error_asks_for_is_enough():
    assert len(TrainingBatches(torch.arange(20 * 36), 20, 35)) == 1
    with pytest.raises(CorpusError, match="needs 720"):
        TrainingBatches(torch.arange(20 * 36 - 1), 20, 35)


def test_penn_treebank_count():
    assert len(TrainingBatches(torch.zeros(929_589, dtype=torch.long), 20, 35)) == 1327


@pytest.mark.parametrize("number", [-1, 2])
def test_a_minibatch_that_does_not_exist(number):
    with pytest.raises(IndexError):
        TrainingBatches(torch.arange(17), 2, 3)[number]


@given(st.integers(2, 200), SIZES, SIZES)
def test_evaluation_scores_every_prediction_once(length, streams, unroll):
    batches = list(evaluation_batches(torch.arange(length), streams, unroll))
    inputs, targets, mask = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert all(len(batch.inputs) == unroll for batch in batches[:-1])
    assert inputs.shape == targets.shape == mask.shape
    assert inputs.shape[1] == streams
    assert torch.equal(targets, inputs + 1)
    assert torch.equal(targets.t()[mask.t()], torch.arange(1, length))
    lengths = mask.sum(0)
    assert lengths.max() - lengths.min() <= 1
    assert torch.equal(mask, torch.arange(len(mask))[:, None] < lengths)


@pytest.mark.parametrize("length", [0, 1])
def test_nothing_to_evaluate_is_refused_at_once(length):
    with pytest.raises(CorpusError, match="at least 2"):
        evaluation_batches(torch.arange(length), 1, 5)
