import pytest
import torch

from bayesrnn.data.batches import ShuffledBatches
from bayesrnn.errors import CorpusError
from bayesrnn.tasks.sentiment.segments import Segments


def made(lengths, longest=4, targets=None):
    """Texts of so many words; each word is a number of its own."""
    words = torch.arange(sum(lengths))
    texts = torch.split(words, list(lengths))
    values = torch.arange(len(lengths)).double() if targets is None else targets
    return Segments.cut(texts, values, longest)


def pieces(segments):
    pairs = zip(segments.starts.tolist(), segments.lengths.tolist(), strict=True)
    return [segments.words[start : start + length].tolist() for start, length in pairs]


def test_texts_are_cut_into_as_few_even_parts_as_can_be():
    segments = made([9, 4, 1, 5])
    assert segments.lengths.tolist() == [3, 3, 3, 4, 1, 3, 2]
    assert segments.texts.tolist() == [0, 0, 0, 1, 2, 3, 3]
    words = [word for piece in pieces(segments) for word in piece]
    assert words == list(range(19)), "no word is lost, none is there twice"


@pytest.mark.parametrize("longest", [1, 2, 7, 100])
def test_no_part_is_longer_than_asked_for(longest):
    lengths = [1, 2, 7, 8, 20]
    segments = made(lengths, longest)
    assert segments.lengths.max() <= longest
    for text, length in enumerate(lengths):
        own = segments.lengths[segments.texts == text]
        assert len(own) == -(-length // longest)
        assert own.max() - own.min() <= 1
        assert own.sum() == length


def test_a_batch_has_the_words_that_count_and_the_targets_of_their_texts():
    segments = made([9, 4, 1, 5], targets=torch.tensor([10.0, 20.0, 30.0, 40.0]))
    batch = segments.batch(torch.tensor([6, 3, 0]))
    assert batch.words.shape == (4, 3)
    assert batch.lengths.tolist() == [2, 4, 3]
    assert batch.targets.tolist() == [40, 20, 10]
    for column, piece in enumerate([[17, 18], [9, 10, 11, 12], [0, 1, 2]]):
        assert batch.words[: len(piece), column].tolist() == piece


def test_the_mean_of_a_text_is_over_its_own_segments():
    segments = made([9, 4, 1, 5])
    values = torch.arange(14).double().view(7, 2)
    means = segments.mean_by_text(values)
    for text in range(4):
        torch.testing.assert_close(means[text], values[segments.texts == text].mean(0))
    torch.testing.assert_close(segments.mean_by_text(values[:, 0]), means[:, 0])


def test_the_first_texts_are_whole():
    segments = made([9, 4, 1, 5])
    first = segments.first_texts(2)
    assert pieces(first) == pieces(segments)[:4]
    assert first.targets.tolist() == [0, 1]
    assert len(first.words) == 13
    assert pieces(segments.first_texts(4)) == pieces(segments)


def test_all_segments_are_there_once_by_length():
    segments = made([9, 4, 1, 5])
    parts = list(segments.by_length(3))
    assert [len(part) for part in parts] == [3, 3, 1]
    order = torch.cat(parts)
    assert sorted(order.tolist()) == list(range(7))
    assert segments.lengths[order].tolist() == sorted(segments.lengths.tolist())


@pytest.mark.parametrize(("texts", "targets"), [([], 0), ([3], 2), ([3, 0], 2)])
def test_what_cannot_be_cut_is_refused(texts, targets):
    with pytest.raises(CorpusError, match="at least one word and a target"):
        Segments.cut([torch.zeros(n, dtype=torch.long) for n in texts], torch.zeros(targets), 4)


@pytest.fixture
def many():
    generator = torch.Generator().manual_seed(0)
    return made(torch.randint(1, 100, (500,), generator=generator).tolist(), longest=100)


def chosen(batches):
    return [sorted(batch.words[0].tolist()) for batch in batches]


def test_an_epoch_has_each_segment_at_most_once(many):
    batches = ShuffledBatches(many, 32, seed=1, epoch=0)
    assert len(batches) == 500 // 32
    assert (batches.sequences, batches.steps) == (32, 1)
    first_words = [word for batch in batches for word in batch.words[0].tolist()]
    assert len(set(first_words)) == len(first_words) == len(batches) * 32
    assert set(first_words) <= set(many.starts.tolist())


def test_the_order_depends_on_seed_and_epoch_alone(many):
    def order(seed, epoch):
        return chosen(ShuffledBatches(many, 32, seed, epoch))

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)
    read = [{word for batch in order(1, epoch) for word in batch} for epoch in range(2)]
    assert read[0] != read[1], "another tail is left out in every epoch"


def test_a_minibatch_has_segments_of_like_length(many):
    batches = list(ShuffledBatches(many, 10, seed=1, epoch=0))
    read = sum(batch.words.numel() for batch in batches)
    useful = sum(int(batch.lengths.sum()) for batch in batches)
    shuffled = torch.randperm(500, generator=torch.Generator().manual_seed(0)).view(-1, 10)
    without = sum(int(many.lengths[part].max()) * 10 for part in shuffled)
    assert read < 1.15 * useful
    assert without > 1.6 * useful
    one_block = ShuffledBatches(many, 32, seed=1, epoch=0)
    means = [batch.lengths.double().mean().item() for batch in one_block]
    assert means != sorted(means), "the short ones do not come first"


def test_by_number_as_in_turn(many):
    batches = ShuffledBatches(many, 32, seed=1, epoch=3)
    for number, batch in enumerate(batches):
        assert torch.equal(batches[number].words, batch.words)
    for number in (-1, len(batches)):
        with pytest.raises(IndexError):
            batches[number]


def test_too_few_segments_for_a_minibatch(many):
    with pytest.raises(CorpusError, match=r"500 segments .* needs 501; .* --batch-size"):
        ShuffledBatches(many, 501, seed=1, epoch=0)


def test_words_replaced_in_training():
    """The eighth root of a segment's share is uniform, and no other word changes."""
    words = torch.arange(1, 100_001)
    segments = Segments.cut([words], torch.zeros(1), longest=100)
    found = segments.with_unknown(0.6, 0, torch.Generator().manual_seed(1))
    replaced = found.words == 0
    assert found.words[~replaced].equal(words[~replaced])
    shares = replaced.view(-1, 100).double().mean(1)
    mean, spread = 0.6 / 9, 0.6**2 * (1 / 17 - 1 / 81)  # of 0.6 u^8
    assert shares.mean().item() == pytest.approx(mean, abs=0.02)
    within = (mean - mean**2 - spread) / 100  # the noise of a hundred words
    assert shares.var().item() == pytest.approx(spread + within, rel=0.1)
    assert segments.with_unknown(0.6, 0, torch.Generator().manual_seed(1)).words.equal(found.words)
    assert segments.words.equal(words)
