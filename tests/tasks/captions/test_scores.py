import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from bayesrnn.tasks.captions.data import load_flickr8k
from bayesrnn.tasks.captions.scores import bleu, longest_common_subsequence, rouge_l, score_captions

captions = st.lists(st.sampled_from("abcde"), max_size=9).map(tuple)
images = st.lists(
    st.tuples(captions, st.lists(captions, min_size=1, max_size=4)), min_size=1, max_size=6
)


@pytest.fixture(scope="module")
def flickr8k(data_dir):
    return load_flickr8k(data_dir)


def words(text):
    return tuple(text.split())


def official(candidates, references):
    """The scores of coco-caption: figures of the set, and of each image."""
    known = {n: [" ".join(c) for c in own] for n, own in enumerate(references)}
    given_ = {n: [" ".join(caption)] for n, caption in enumerate(candidates)}
    bleu_set, bleu_images = Bleu().compute_score(known, given_, verbose=0)
    rouge_set, rouge_images = Rouge().compute_score(known, given_)
    cider_set, cider_images = Cider().compute_score(known, given_)
    return [*bleu_set, rouge_set, cider_set], [*bleu_images, rouge_images, cider_images]


def assert_official(candidates, references):
    whole, single = official(candidates, references)
    found = score_captions(candidates, references)
    assert list(found.metrics().values()) == pytest.approx(whole, rel=1e-11, abs=1e-13)
    ours = [*bleu(found.bleu_counts).T.tolist(), found.rouge.tolist(), found.cider.tolist()]
    for mine, theirs in zip(ours, single, strict=True):
        assert mine == pytest.approx(list(theirs), rel=1e-10, abs=1e-13)


# Against coco-caption


@settings(deadline=None, max_examples=40)
@given(images)
def test_any_captions_against_coco_caption(drawn):
    # Empty ones, too, and images that share all their words; coco-caption needs one word.
    drawn = [*drawn, (("a",), [("a", "b")])]
    assert_official([caption for caption, _ in drawn], [known for _, known in drawn])


def test_people_against_coco_caption(flickr8k):
    known = flickr8k.valid.captions[:250]
    assert_official([own[0] for own in known], [own[1:] for own in known])


def test_the_figures_of_people_on_flickr8k(flickr8k):
    # One caption of each test image against the other four, as coco-caption 1.2 scored them.
    known = flickr8k.test.captions
    found = score_captions([own[0] for own in known], [own[1:] for own in known]).metrics()
    names = ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr"]
    assert list(found) == names
    expected = [
        0.636412701268,
        0.445777718567,
        0.305490353625,
        0.209456758896,
        0.487547501036,
        0.788605821698,
    ]
    assert [found[name] for name in names] == pytest.approx(expected, abs=1e-10)


# By hand


def test_bleu_by_hand():
    # "the" counts twice at most, as in the second reference; of the pairs, "cat the" is in none.
    found = score_captions(
        [words("the the the cat")], [[words("the cat"), words("the dog the bird sang")]]
    )
    # Length 4 is closest to 5; orders: 3 of 4, 1 of 3, 0 of 2, 0 of 1.
    assert found.bleu_counts.tolist() == [[4, 5, 4, 3, 2, 1, 3, 1, 0, 0]]
    shorter = math.exp(1 - 5 / 4)
    one, two, three, four = bleu(found.bleu_counts)[0].tolist()
    assert one == pytest.approx(shorter * 3 / 4, rel=1e-8)
    assert two == pytest.approx(shorter * math.sqrt(3 / 4 * 1 / 3), rel=1e-8)
    assert 0 < three < 1e-4
    assert 0 < four < 1e-3


@pytest.mark.parametrize(("length", "closest"), [(1, 2), (3, 2), (4, 2), (5, 6), (9, 6)])
def test_the_closest_reference_counts_and_of_two_the_shorter(length, closest):
    found = score_captions([("w",) * length], [[("w",) * 6, ("w",) * 2]])
    assert found.bleu_counts[0, :2].tolist() == [length, closest]


def test_bleu_of_a_set_is_that_of_the_sums():
    # Shares 1/2 and 3/3: together 4 of 5, not their mean.
    found = score_captions([words("a x"), words("a b c")], [[words("a b")], [words("a b c")]])
    assert found.metrics()["BLEU-1"] == pytest.approx(4 / 5, rel=1e-8)
    assert bleu(found.bleu_counts)[:, 0].tolist() == pytest.approx([1 / 2, 1], rel=1e-8)


def test_rouge_by_hand():
    # Common: "a c" with the first (2 of 3, 2 of 2) and "b" with the second (1 of 3, 1 of 4).
    found = rouge_l(words("a b c"), [words("a c"), words("x b y z")])
    precision, recall = 2 / 3, 1
    assert found == pytest.approx(2.44 * precision * recall / (recall + 1.44 * precision))
    # The best precision and the best recall need not be of the same reference.
    assert rouge_l(words("a b"), [words("a b x x x x"), words("a")]) == pytest.approx(1)
    assert rouge_l(words("a b"), [words("c")]) == 0


def test_cider_by_hand():
    # Of two images, "dog" and "cat" are in one each (weight log 2), "a" is in both (weight 0).
    # "a dog" has one pair and both weights log 2: unigrams and pairs are the same, longer runs
    # are none, so 10 * (1 + 1 + 0 + 0) / 4 = 5.
    found = score_captions([words("a dog"), words("a dog")], [[words("a dog")], [words("a cat")]])
    assert found.cider.tolist() == pytest.approx([5, 0], rel=1e-12)
    assert found.metrics()["CIDEr"] == pytest.approx(2.5, rel=1e-12)


def test_cider_clips_and_punishes_lengths():
    # "dog dog dog" against "dog": min(3, 1) * 1 / (3 * 1) of unigrams, and no pair in common. It
    # has two pairs and the reference none.
    found = score_captions([words("dog dog dog"), words("cat")], [[words("dog")], [words("cat")]])
    expected = 10 / 4 * (1 / 3) * math.exp(-(2**2) / (2 * 6**2))
    assert found.cider.tolist() == pytest.approx([expected, 2.5], rel=1e-12)


def test_words_that_no_reference_has_count_in_the_norm():
    # "dog" is in one of two images, and "bird", in none, weighs as much; one pair against none.
    found = score_captions([words("dog bird"), words("cat")], [[words("dog")], [words("cat")]])
    expected = 10 / 4 / math.sqrt(2) * math.exp(-1 / (2 * 6**2))
    assert found.cider[0].item() == pytest.approx(expected, rel=1e-12)


def test_one_image_has_no_telling_words():
    assert score_captions([words("a dog")], [[words("a dog")]]).cider.tolist() == [0]


def test_a_perfect_caption():
    known = [[words("a dog runs on grass")], [words("two men sit by water")]]
    found = score_captions([own[0] for own in known], known)
    assert list(found.metrics().values()) == pytest.approx([1] * 5 + [10], rel=1e-8)
    assert len(found) == 2
    assert found.cider.dtype == found.rouge.dtype == torch.double


# Parts


@settings(deadline=None)
@given(captions, captions)
def test_the_longest_common_subsequence_against_the_table(first, second):
    table = [0] * (len(second) + 1)
    for word in first:
        rows = pairwise(table)
        after = [0]
        for (corner, above), other in zip(rows, second, strict=True):
            after.append(corner + 1 if word == other else max(above, after[-1]))
        table = after
    assert longest_common_subsequence(first, second) == table[-1]
