import csv
import math
import random

import pytest
import torch

from bayesrnn.data.vocabulary import UNK
from bayesrnn.errors import CorpusError
from bayesrnn.tasks.sentiment.data import (
    Labels,
    Numbers,
    load_reviews,
    read_target,
    review_words,
    split_by_text,
    target_text,
    three_classes,
)


@pytest.fixture
def write_csv(tmp_path):
    def write(rows, name="own.csv"):
        path = tmp_path / name
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([["text", "rating"], *rows])
        return str(path)

    return write


def texts(count, seed=0):
    generator = random.Random(seed)
    words = ["film", "plot", "good", "bad", "actor", "scene"]
    return [" ".join([f"w{n}", *generator.choices(words, k=5)]) for n in range(count)]


def decoded(reviews, part):
    segments = getattr(reviews, part)
    return reviews.vocabulary.decode(segments.words)


def test_parts_are_disjoint_and_of_the_right_size(write_csv):
    parts = split_by_text([text.split() for text in texts(1000)])
    assert [len(part) for part in parts] == [720, 80, 200]
    assert sorted([*parts.train, *parts.valid, *parts.test]) == list(range(1000))


def test_the_split_depends_on_the_texts_alone():
    words = [text.split() for text in texts(50)]
    parts = split_by_text(words)
    back = split_by_text(words[::-1])
    for part, other in zip(parts, back, strict=True):
        assert [words[n] for n in part] == [words[::-1][n] for n in other]
    # SHA-256 begins with 19581e of "9" and 2c6242 of "8"; of the other digits with more.
    assert split_by_text([[str(number)] for number in range(10)]).test == [9, 8]


def test_equal_texts_are_in_the_same_part():
    words = [text.split() for text in texts(40)] * 3
    for part in split_by_text(words):
        assert {n % 40 for n in part} == {n for n in part if n < 40}


def test_segments_of_a_review_are_in_one_part(write_csv):
    rows = [[f"{text} " * 5, n % 3] for n, text in enumerate(texts(30))]
    reviews = load_reviews(write_csv(rows), segment=7)
    for part in (reviews.train, reviews.valid, reviews.test):
        assert len(part) > len(part.targets)
    counts = [len(getattr(reviews, part).targets) for part in ("train", "valid", "test")]
    assert counts == [22, 2, 6]


def test_the_scale_is_that_of_the_training_texts(write_csv):
    ratings = [random.Random(n).uniform(1, 5) for n in range(40)]
    reviews = load_reviews(write_csv(list(zip(texts(40), ratings, strict=True))))
    target = reviews.target
    assert isinstance(target, Numbers)
    own = reviews.train.targets.tolist()
    mean = sum(own) / len(own)
    assert target.mean == pytest.approx(mean)
    assert target.sd == pytest.approx(math.sqrt(sum((r - mean) ** 2 for r in own) / len(own)))
    standardised = target.standardised(reviews.train.targets)
    assert standardised.dtype == torch.float32
    assert standardised.mean().item() == pytest.approx(0, abs=1e-6)
    assert standardised.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    kept = torch.cat([reviews.train.targets, reviews.valid.targets, reviews.test.targets])
    assert sorted(kept.tolist()) == pytest.approx(sorted(ratings)), "ratings stay as they are"


def test_the_vocabulary_is_of_the_training_texts(write_csv):
    rows = [[text, n] for n, text in enumerate(texts(40))]
    reviews = load_reviews(write_csv(rows))
    words = set(reviews.vocabulary.words)
    assert words == {"film", "plot", "good", "bad", "actor", "scene", UNK, "<eos>"}
    assert UNK in decoded(reviews, "train"), "it is trained"
    small = load_reviews(write_csv(rows), vocabulary_limit=4)
    assert len(small.vocabulary) == 4
    twice = [[f"{text} {text}", n] for n, text in enumerate(texts(40))]
    found = load_reviews(write_csv(twice))
    own = {word for word in found.vocabulary.words if word.startswith("w")}
    assert len(own) == len(found.train.targets), "none that only the other texts have"


def test_numbers_that_differ_only_outside_the_training_texts(write_csv):
    own = texts(40)
    tested = own[split_by_text([review_words(text) for text in own]).test[0]]
    rows = [[text, 5 if text == tested else 2] for text in own]
    with pytest.raises(CorpusError, match=r"of the training texts of .* all the same \(2\)"):
        load_reviews(write_csv(rows))


def test_labels_are_numbered_in_order(write_csv):
    rows = [[text, "good" if n % 3 else "bad"] for n, text in enumerate(texts(40))]
    reviews = load_reviews(write_csv(rows))
    assert reviews.target == Labels(("bad", "good"))
    every = torch.cat([reviews.train.targets, reviews.valid.targets, reviews.test.targets])
    assert every.dtype == torch.int64
    assert int(every.sum()) == sum(row[1] == "good" for row in rows)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[t, 0.1] for t in texts(40)], r"of the training texts of .* all the same \(0.1\)"),
        ([[t, n * 1e307] for n, t in enumerate(texts(40))][:17], "deviation of (inf|nan)"),
        ([[t, "good"] for t in texts(40)], "only one label"),
        ([[t, f"label {n}"] for n, t in enumerate(texts(40))], "40 different labels for 40"),
        ([[t, n] for n, t in enumerate(texts(9))], "9 different texts"),
        ([["the same", n] for n in range(40)], "1 different texts"),
        ([*[[t, n] for n, t in enumerate(texts(40))], ["  ", 3]], "row 42: the text is empty"),
    ],
)
def test_data_that_cannot_be_learnt_is_refused(write_csv, rows, message):
    with pytest.raises(CorpusError, match=message):
        load_reviews(write_csv(rows))


def test_running_text_and_text_that_is_cut_give_the_same_words():
    cut = "it's a \" fine \" film , isn't it ? yes ."
    for text in (cut, "It's a \"fine\" film, isn't it? Yes."):
        assert " ".join(review_words(text)) == cut


@pytest.mark.parametrize("target", [Numbers(0.1, 1 / 3), Labels(("bad", "sch\u00f6n"))])
def test_the_target_comes_back_from_its_file(target):
    assert read_target(target_text(target)) == target


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "number"}'])
def test_a_damaged_target_is_named(text):
    with pytest.raises(CorpusError, match="cannot be read"):
        read_target(text)


def test_three_classes():
    ratings = torch.tensor([0.0, 0.4, 0.41, 0.5, 0.69, 0.7, 1.0], dtype=torch.double)
    assert three_classes(ratings).tolist() == [0, 0, 1, 1, 1, 2, 2]


def test_no_data_folder(monkeypatch):
    monkeypatch.delenv("BAYESRNN_DATA", raising=False)
    with pytest.raises(CorpusError, match="'scale' needs a data folder"):
        load_reviews("scale")


def test_a_scale_file_that_was_cut_short(tmp_path):
    folder = tmp_path / "scaledata" / "scaledata" / "Dennis+Schwartz"
    folder.mkdir(parents=True)
    (folder / "subj.Dennis+Schwartz").write_text("a review\n")
    (folder / "rating.Dennis+Schwartz").write_text("0.5\n")
    with pytest.raises(CorpusError, match="1 lines instead of 1,027"):
        load_reviews("scale", tmp_path)


def test_pang_and_lees_reviews(data_dir):
    reviews = load_reviews("scale", data_dir)
    parts = (reviews.train, reviews.valid, reviews.test)
    assert [len(part.targets) for part in parts] == [3607, 398, 1001]
    ratings = torch.cat([part.targets for part in parts])
    assert len(ratings) == 5006
    assert ratings.std(correction=0).item() == pytest.approx(0.1817, abs=5e-5)
    assert 0 <= ratings.min() < ratings.max() <= 1
    assert sum(len(part.words) for part in parts) == 2_148_164
    assert sum(map(len, parts)) == 13_226
    assert len(reviews.vocabulary) == 20_000
    assert max(int(part.lengths.max()) for part in parts) == 200


def test_the_classes_are_pang_and_lees(data_dir):
    """The label files agree with the thresholds in all 5,006 places."""
    found = []
    for folder in sorted((data_dir / "scaledata" / "scaledata").iterdir()):
        ratings = (folder / f"rating.{folder.name}").read_text().split()
        labels = (folder / f"label.3class.{folder.name}").read_text().split()
        classes = three_classes(torch.tensor(list(map(float, ratings)), dtype=torch.double))
        found += [c == int(label) for c, label in zip(classes.tolist(), labels, strict=True)]
    assert len(found) == 5006
    assert all(found)
