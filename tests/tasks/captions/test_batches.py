from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bayesrnn.data.batches import ShuffledBatches
from bayesrnn.data.vocabulary import Vocabulary
from bayesrnn.errors import CorpusError
from bayesrnn.tasks.captions.batches import EncodedCaptions
from bayesrnn.tasks.captions.data import CaptionedImages, load_flickr8k

VOCABULARY = Vocabulary(("<unk>", "a", "b", "c", "<eos>"))
UNK, EOS = 0, 4

captions = st.lists(st.sampled_from("abcz"), min_size=1, max_size=7).map(tuple)
all_images = st.lists(st.lists(captions, min_size=1, max_size=3), min_size=1, max_size=8)


def encoded(*own: list[tuple[str, ...]]) -> EncodedCaptions:
    """Captions of images whose features are their number."""
    features = torch.arange(len(own)).float()[:, None].repeat(1, 3)
    names = tuple(map(str, range(len(own))))
    images = CaptionedImages(names, features, tuple(map(tuple, own)))
    return EncodedCaptions.encode(images, VOCABULARY)


def read_back(batch):
    """What each column says: the image, the inputs and the targets that count."""
    found = []
    for column in range(batch.inputs.shape[1]):
        counts = batch.mask[:, column]
        row = batch.features[column].tolist()
        assert row == [row[0]] * 3
        assert (batch.inputs[~counts, column] == EOS).all()
        assert (batch.targets[~counts, column] == EOS).all()
        parts = (batch.inputs[counts, column].tolist(), batch.targets[counts, column].tolist())
        found.append((int(row[0]), *map(tuple, parts)))
    return found


def expected(own):
    """The same from the words."""
    numbers = {"a": 1, "b": 2, "c": 3, "z": UNK}
    return [
        (image, (EOS, *(numbers[w] for w in c)), (*(numbers[w] for w in c), EOS))
        for image, given_captions in enumerate(own)
        for c in given_captions
    ]


def test_by_hand():
    data = encoded([("a", "z"), ("b",)], [("c", "c", "a")])
    assert len(data) == 3
    assert data.lengths.tolist() == [3, 2, 4]
    batch = data.batch(torch.tensor([2, 1]))
    assert batch.features.tolist() == [[1] * 3, [0] * 3]
    assert batch.inputs.T.tolist() == [[EOS, 3, 3, 1], [EOS, 2, EOS, EOS]]
    assert batch.targets.T.tolist() == [[3, 3, 1, EOS], [2, EOS, EOS, EOS]]
    assert batch.mask.T.tolist() == [[True] * 4, [True, True, False, False]]


@given(all_images, st.integers(1, 5))
def test_every_caption_once_by_length(own, size):
    data = encoded(*own)
    batches = [data.batch(chosen) for chosen in data.by_length(size)]
    assert sorted(item for batch in batches for item in read_back(batch)) == sorted(expected(own))
    longest = [len(batch.mask) for batch in batches]
    assert longest == sorted(longest)


@given(all_images, st.integers(1, 4), st.integers(0, 9), st.integers(0, 9))
def test_an_epoch(own, size, seed, epoch):
    data = encoded(*own)
    if len(data) < size:
        return
    batches = ShuffledBatches(data, size, seed, epoch)
    assert (len(batches), batches.sequences, batches.steps) == (len(data) // size, size, 1)
    seen = [item for batch in batches for item in read_back(batch)]
    assert len(seen) == len(batches) * size
    for number, batch in enumerate(batches):
        words = sum(len(targets) for _, _, targets in read_back(batch))
        assert batches.length(number) == words / size
    left = expected(own)
    for item in seen:
        left.remove(item)  # each at most once
    again = ShuffledBatches(data, size, seed, epoch)
    assert seen == [item for number in range(len(again)) for item in read_back(again[number])]


def test_every_seed_and_epoch_has_an_order_of_its_own():
    data = encoded(*[[tuple("abc"[: 1 + n % 3])] for n in range(40)])
    orders = {
        tuple(row[0] for b in ShuffledBatches(data, 4, seed, epoch) for row in read_back(b))
        for seed in range(6)
        for epoch in range(6)
    }
    assert len(orders) == 36


def test_lengths_come_in_no_order():
    data = encoded(*[[("a",) * (1 + n % 20)] for n in range(200)])
    for epoch in range(5):
        longest = [len(batch.mask) for batch in ShuffledBatches(data, 4, 0, epoch)]
        assert longest != sorted(longest)


def test_the_tail_is_another_one_in_each_epoch():
    data = encoded(*[[("a",) * (1 + n)] for n in range(5)])
    left_out = set()
    for epoch in range(60):
        seen = {row[0] for batch in ShuffledBatches(data, 2, 0, epoch) for row in read_back(batch)}
        left_out |= set(range(5)) - seen
    assert left_out == set(range(5))


def test_little_is_read_for_nothing(data_dir):
    found = load_flickr8k(data_dir)
    data = EncodedCaptions.encode(found.train, found.vocabulary)
    assert len(data) == 30_000
    batches = ShuffledBatches(data, 64, 0, 0)
    masks = [batch.mask for batch in batches]
    cells = sum(mask.numel() for mask in masks)
    assert 1 - sum(int(mask.sum()) for mask in masks) / cells < 0.04
    # Lengths come mixed: neighbours in the epoch are not of neighbouring lengths.
    lengths = torch.tensor([len(mask) for mask in masks]).double()
    assert abs(torch.corrcoef(torch.stack([lengths[:-1], lengths[1:]]))[0, 1]) < 0.2


def test_on_a_device():
    data = encoded([("a",)], [("b", "c")]).to(torch.device("meta"))
    assert data.words.device.type == data.features.device.type == "meta"


def test_numbers_that_cannot_be():
    data = encoded([("a",), ("b",)])
    with pytest.raises(CorpusError, match=r"there are 2 captions to train on, but one .* needs 3"):
        ShuffledBatches(data, 3, 0, 0)
    for number in (-1, 2):
        with pytest.raises(IndexError):
            ShuffledBatches(data, 1, 0, 0)[number]
