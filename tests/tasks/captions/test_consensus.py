import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesrnn.tasks.captions.baseline import CaptionIndex, consensus_captions, nearest_images
from bayesrnn.tasks.captions.data import CaptionedImages, load_flickr8k
from bayesrnn.tasks.captions.scores import (
    DocumentFrequencies,
    cider_d,
    ngram_counts,
    score_captions,
)

caption = st.lists(st.sampled_from("abcd"), min_size=1, max_size=8).map(tuple)
images = st.lists(st.lists(caption, min_size=1, max_size=3), min_size=1, max_size=6)


def words(text):
    return tuple(text.split())


def slow_agreement(captions, chosen):
    """The mean of CIDEr-D, pair by pair."""
    counted = [[ngram_counts(words) for words in own] for own in captions]
    frequencies = DocumentFrequencies.of(counted)
    flat = [counts for own in counted for counts in own]
    means = []
    for number, own in enumerate(chosen):
        others = [flat[other] for place, other in enumerate(chosen) if place != number]
        scores = [cider_d(flat[own], [other], frequencies) for other in others]
        means.append(sum(scores) / max(len(scores), 1))
    return means


@settings(deadline=None, max_examples=80)
@given(images, st.data())
def test_agreement_is_the_mean_of_cider(captions, data):
    # Repeated words and equal captions included; some captions, in any order.
    total = sum(map(len, captions))
    chosen = data.draw(st.lists(st.integers(0, total - 1), min_size=1, unique=True))
    found = CaptionIndex(captions).agreement(torch.tensor(chosen))
    assert found.dtype == torch.double
    assert found.tolist() == pytest.approx(slow_agreement(captions, chosen), rel=1e-10, abs=1e-12)


def test_agreement_by_hand():
    # Two images; "dog" is in one (weight log 2): 10 / 4 * 1 for the unigram, nothing longer.
    index = CaptionIndex([[words("dog"), words("dog")], [words("cat")]])
    assert index.agreement(torch.tensor([0, 1])).tolist() == pytest.approx([2.5, 2.5])
    assert index.agreement(torch.tensor([0, 1, 2])).tolist() == pytest.approx([1.25, 1.25, 0])
    assert index.agreement(torch.tensor([2])).tolist() == [0]


def test_captions_by_their_images():
    index = CaptionIndex([[words("a"), words("b")], [words("c")], [words("d"), words("e")]])
    assert index.captions_of(torch.tensor([2, 0])).tolist() == [3, 4, 0, 1]
    assert [index.captions[n] for n in (2, 4)] == [("c",), ("e",)]


def test_nearest_is_by_direction():
    known = torch.tensor([[1.0, 0.0], [0.0, 5.0], [3.0, 3.0], [-1.0, 0.0]])
    found = nearest_images(known, torch.tensor([[0.1, 0.0], [0.0, 9.0]]), 3)
    assert found.tolist() == [[0, 2, 1], [1, 2, 0]]  # of 0 and 3, both at a right angle, the first


def test_the_caption_that_the_neighbours_agree_on():
    captions = (
        (words("a dog runs on grass"), words("some odd words here")),
        (words("a dog runs on sand"), words("a dog runs")),
        (words("two men sit"), words("two men sit down")),
        (words("two men"), words("men sit on a bench")),
    )
    features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    known = CaptionedImages(("1", "2", "3", "4"), features, captions)
    found = consensus_captions(known, torch.tensor([[2.0, 0.1], [0.1, 2.0]]), 2)
    for near, chosen in zip(([0, 1, 2, 3], [4, 5, 6, 7]), found, strict=True):
        slow = slow_agreement(captions, near)
        flat = [caption for own in captions for caption in own]
        assert chosen == flat[near[slow.index(max(slow))]]
    assert found == [words("a dog runs"), words("two men sit")]


def test_flickr8k(data_dir):
    # A part of the validation set, to be quick; against the pairs written out for one image.
    data = load_flickr8k(data_dir)
    part = data.valid.features[:200]
    chosen = consensus_captions(data.train, part, 30)
    figures = score_captions(chosen, data.valid.captions[:200]).metrics()
    nearest = [
        data.train.captions[n][0] for n in nearest_images(data.train.features, part, 1)[:, 0]
    ]
    alone = score_captions(nearest, data.valid.captions[:200]).metrics()
    assert figures["CIDEr"] > 1.4 * alone["CIDEr"]
    assert figures["BLEU-4"] > 1.3 * alone["BLEU-4"]


def test_progress_counts_every_image():
    known = CaptionedImages(("x", "y"), torch.eye(2), ((words("a dog"),), (words("a cat"),)))
    counted = []
    assert len(consensus_captions(known, torch.eye(2).repeat(3, 1), 1, counted.append)) == 6
    assert sum(counted) == 6
